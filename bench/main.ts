/**
 * `deno task bench [NAME…] [--quick] [--json]`: gets the tools, then starts `run.ts` with the permissions that it needs, which
 * are known only now.
 */
import { cacheFolder } from "../scripts/lib/places.ts";
import { printError } from "../scripts/lib/print.ts";
import { runProgram } from "../scripts/lib/test_run.ts";
import { buildTools } from "./lib/build.ts";

try {
  // Standard output belongs to the result: it may be JSON.
  const tools = await buildTools(cacheFolder(Deno.env.toObject()), printError);
  const programs = Object.values(tools);
  Deno.exitCode = await runProgram("bench/run.ts", [JSON.stringify(tools), ...Deno.args], { programs });
} catch (thrown) {
  printError(`bench: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
