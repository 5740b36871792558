/**
 * Prints the permission flags of one scope, for the tasks in `deno.json`:
 * `deno run -P=scripts $(deno run --allow-env --allow-read scripts/flags.ts test) scripts/test.ts`
 */
import { isScopeName, scopeFlags, scopeNames } from "./lib/scopes.ts";
import { printError, printLine } from "./lib/print.ts";

const [name = ""] = Deno.args;
if (!isScopeName(name)) {
  printError(`flags: unknown scope ${JSON.stringify(name)}; known: ${scopeNames().join(", ")}`);
  Deno.exit(2);
}
try {
  printLine(scopeFlags(name, Deno.env.toObject(), Deno.execPath()).join(" "));
} catch (thrown) {
  printError(`flags: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exit(1);
}
