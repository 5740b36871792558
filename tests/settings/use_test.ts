/** What the table says about the use of a variable is true: "not used yet" exactly where nothing reads its setting. */
import assert from "node:assert/strict";
import type { Settings } from "../../src/settings/settings.ts";
import { variables } from "../../src/settings/table.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { settingsOf } from "./loading.ts";

/** Settings that only other settings are checked against. */
const ONLY_CHECKED: ReadonlySet<string> = new Set(["SIE_WORKER_LIVENESS_BUDGET_S"]);

/** All sources but those of the settings themselves. */
function sources(folder: string): string {
  return [...Deno.readDirSync(folder)].filter(({ name }) => name !== "settings").map(({ name, isDirectory }) =>
    isDirectory ? sources(`${folder}/${name}`) : Deno.readTextFileSync(`${folder}/${name}`)
  ).join("\n");
}

/** The members of the settings on the way to what `show` returns, e.g. `["ipc", "socketPaths"]`. */
function membersRead(show: (settings: Settings) => unknown, settings: Settings): string[] {
  const members: string[] = [];
  const watched = (value: unknown): unknown =>
    typeof value !== "object" || value === null || Array.isArray(value)
      ? value
      : new Proxy({ ...value } as Record<PropertyKey, unknown>, {
        get(target, key) {
          members.push(String(key));
          return watched(target[key]);
        },
      });
  show(watched(settings) as Settings);
  return members;
}

/** Whether a source takes the member out of an object: `.name`, or a destructuring. */
function isRead(member: string, text: string): boolean {
  return new RegExp(`\\.${member}\\b|[{,]\\s*${member}\\s*[,}]`).test(text);
}

const everything = sources(fromFileUrl(new URL("../../src", import.meta.url)).replace(/\/$/, ""));

for (const [name, row] of variables) {
  Deno.test(`${name} is ${row.later === true ? "not used yet, as the table says" : "used"}`, () => {
    const members = membersRead((settings) => row.show(settings), settingsOf());
    assert.notEqual(members.length, 0);
    const used = members.every((member) => isRead(member, everything)) || ONLY_CHECKED.has(name);
    assert.equal(used, row.later !== true, members.join("."));
  });
}
