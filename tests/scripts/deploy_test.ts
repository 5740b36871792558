/** The manifests in deploy/ and what the compiler bakes for them belong together. */
import assert from "node:assert/strict";
import { readOptions } from "../../scripts/lib/compile/options.ts";
import { strictGrants } from "../../scripts/lib/compile/grants.ts";
import { missingGrants } from "../../src/settings/grants.ts";
import { loadSettings } from "../../src/settings/load.ts";
import { fromFileUrl } from "../harness/paths.ts";

function deployFile(name: string): string {
  return Deno.readTextFileSync(fromFileUrl(new URL(`../../deploy/${name}`, import.meta.url)));
}

/** The variables of the sidecar's container that have a plain value: `- { name: NAME, value: TEXT }`. */
function manifestVariables(name: string): Record<string, string> {
  const [, sidecar = ""] = deployFile(name).split("- name: worker-sidecar");
  const entries = [...sidecar.matchAll(/- \{ name: (\w+), value: "?([^"}]+?)"? \}/g)];
  return Object.fromEntries(entries.map(([, variable = "", value = ""]) => [variable, value]));
}

for (const profile of ["nats", "local"] as const) {
  Deno.test(`the ${profile} pod asks for nothing beyond what ${profile}-strict.json bakes`, () => {
    const environment = manifestVariables(`${profile}-pod.yaml`);
    assert.ok(Object.keys(environment).length >= 6, JSON.stringify(environment));
    const loaded = loadSettings({ program: "worker-sidecar", args: [], environment, newWorkerId: () => "w" });
    assert.ok(loaded.kind === "settings", JSON.stringify(loaded));
    assert.deepEqual(loaded.settings.warnings.filter((warning) => !warning.includes("does not use it yet")), []);
    const options = readOptions(
      ["--profile", profile, "--deployment", `${profile}-strict.json`],
      deployFile,
    );
    assert.ok(options !== undefined);
    const baked = strictGrants(profile, options.deployment);
    const missing = missingGrants(
      loaded.settings,
      ({ permission, target }) => baked.some(({ kind, value }) => kind === permission && value === target),
    );
    assert.deepEqual(missing, []);
  });
}

Deno.test("the image sets the variables and the port of the contract, and both names of the program", () => {
  const text = Deno.readTextFileSync(fromFileUrl(new URL("../../Containerfile", import.meta.url)));
  for (
    const line of [
      "SIE_WORKER_PROBE_PORT=9095",
      "SIE_IPC_SOCKET_PATH=/var/run/sie/ipc.sock",
      "RUST_LOG=info",
      "EXPOSE 9095",
      "USER 65532:65532",
      'ENTRYPOINT ["/sie-server-sidecar"]',
      "ln -s worker-sidecar /layout/sie-server-sidecar",
    ]
  ) {
    assert.ok(text.includes(line), line);
  }
});
