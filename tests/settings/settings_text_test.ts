/** The documentation of the settings: complete, and what the repository holds. */
import assert from "node:assert/strict";
import { areasWithoutHeading, settingsText } from "../../scripts/lib/settings_text.ts";
import { variables } from "../../src/settings/table.ts";
import { fromFileUrl } from "../harness/paths.ts";

Deno.test("each variable and each flag is documented once, under a heading", () => {
  const text = settingsText();
  assert.deepEqual(areasWithoutHeading(), []);
  for (const [name, { flag }] of variables) {
    assert.equal(text.split(`\n| \`${name}\` |`).length, 2, name);
    if (flag !== undefined) assert.ok(text.includes(`| \`${flag}\` |`), flag);
  }
});

Deno.test("docs/settings.md is what the table says; `deno task settings` writes it", async () => {
  const path = fromFileUrl(new URL("../../docs/settings.md", import.meta.url));
  assert.equal(await Deno.readTextFile(path), settingsText());
});
