/** `deno task settings [--check]`: writes docs/settings.md, or fails when it differs from what would be written. */
import { join } from "node:path";
import { sourceRoot } from "./lib/places.ts";
import { printError, printLine } from "./lib/print.ts";
import { settingsText } from "./lib/settings_text.ts";

const path = join(sourceRoot, "docs/settings.md");
const [option] = Deno.args;
if (option === "--check") {
  const same = await Deno.readTextFile(path).catch(() => "") === settingsText();
  if (same) printLine("settings: docs/settings.md is up to date");
  else printError("settings: docs/settings.md is out of date; run `deno task settings`");
  Deno.exitCode = same ? 0 : 1;
} else if (option === undefined) {
  await Deno.writeTextFile(path, settingsText());
} else {
  printError(`settings: unexpected argument ${JSON.stringify(option)}; the only option is --check`);
  Deno.exitCode = 2;
}
