/**
 * `deno task bench [NAME…] [--quick] [--json] [--with-torch]`: gets the tools, then starts `run.ts` with the permissions that
 * it needs, which are known only now. PyTorch is large; it is installed only when it is asked for.
 */
import { cacheFolder } from "../scripts/lib/places.ts";
import { printError } from "../scripts/lib/print.ts";
import { runProgram } from "../scripts/lib/test_run.ts";
import { buildTools } from "./lib/build.ts";
import { ensureTorchPython } from "./lib/torch.ts";

try {
  // Standard output belongs to the result: it may be JSON.
  const cache = cacheFolder(Deno.env.toObject());
  const tools = await buildTools(cache, printError);
  const torch = Deno.args.includes("--with-torch")
    ? await ensureTorchPython(cache, Deno.env.get("TORCH_PYTHON"))
    : undefined;
  Deno.exitCode = await runProgram("bench/run.ts", [JSON.stringify(tools), ...Deno.args], {
    programs: [...Object.values(tools), ...(torch === undefined ? [] : [torch])],
    env: { TORCH_PYTHON: torch ?? "" },
  });
} catch (thrown) {
  printError(`bench: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
