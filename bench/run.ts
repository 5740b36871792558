/** Runs the parts of the benchmark: `run.ts TOOLS [NAME…] [--quick] [--json] [--with-torch]`, started by `main.ts`. */
import { printError, printLine } from "../scripts/lib/print.ts";
import type { Tools } from "./lib/build.ts";
import type { Json } from "./lib/part.ts";
import { allParts } from "./parts/all.ts";

const [toolsText = "", ...args] = Deno.args;
const tools: Tools = JSON.parse(toolsText);
const json = args.includes("--json");
const quick = args.includes("--quick");
const names = args.filter((argument) => !["--json", "--quick", "--with-torch"].includes(argument));
const unknown = names.filter((name) => !allParts.some((part) => part.name === name));
if (unknown.length > 0) {
  printError(
    `bench: unknown argument ${JSON.stringify(unknown[0])}; parts: ${allParts.map((part) => part.name).join(", ")}`,
  );
  Deno.exit(2);
}

try {
  const results: Record<string, Json> = {};
  for (const part of allParts) {
    if (names.length > 0 && !names.includes(part.name)) continue;
    const { result, lines } = await part.run({
      quick,
      tools,
      torchPython: Deno.env.get("TORCH_PYTHON") || undefined,
      progress: printError,
    });
    results[part.name.replaceAll("-", "_")] = result;
    if (!json) { for (const line of ["", ...lines]) printLine(line); }
  }
  if (json) printLine(JSON.stringify(results));
  else {printLine(
      `\nDeno ${Deno.version.deno}, ${navigator.hardwareConcurrency} cores shared with broker, backend and load`,
    );}
} catch (thrown) {
  printError(`bench: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
