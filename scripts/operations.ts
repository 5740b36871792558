/** `deno task operations [--check]`: writes the settlement table into docs/operations.md, or fails when it is out of date. */
import { join } from "node:path";
import { sourceRoot } from "./lib/places.ts";
import { printError, printLine } from "./lib/print.ts";
import { withSettlementTable } from "./lib/settlement_text.ts";

const path = join(sourceRoot, "docs/operations.md");
const [option] = Deno.args;
if (option !== undefined && option !== "--check") {
  printError(`operations: unexpected argument ${JSON.stringify(option)}; the only option is --check`);
  Deno.exit(2);
}
const before = await Deno.readTextFile(path);
const after = withSettlementTable(before);
if (option === undefined) await Deno.writeTextFile(path, after);
else if (before === after) printLine("operations: docs/operations.md is up to date");
else {
  printError("operations: docs/operations.md is out of date; run `deno task operations`");
  Deno.exitCode = 1;
}
