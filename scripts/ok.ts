/**
 * `deno task ok [--no-test]`: everything that a change must pass, each step whether or not an earlier one failed: formatting,
 * lint, types, layout, the settings' documentation, tests.
 */
import { sourceRoot } from "./lib/places.ts";
import { printError, printLine } from "./lib/print.ts";
import { run } from "./lib/run.ts";

/** Folders that hold TypeScript of ours. */
const SOURCES = ["main.ts", "src", "tests", "scripts", "demo", "bench"];

/** One step: what it is called and the arguments of Deno. */
interface Step {
  readonly name: string;
  readonly args: readonly string[];
}

const STEPS: readonly Step[] = [
  { name: "format", args: ["fmt", "--check"] },
  { name: "lint", args: ["lint", "--quiet"] },
  { name: "types", args: ["check", "--quiet", ...SOURCES] },
  { name: "layout", args: ["task", "--quiet", "layout"] },
  { name: "settings", args: ["task", "--quiet", "settings", "--check"] },
  { name: "operations", args: ["task", "--quiet", "operations", "--check"] },
];

const [option] = Deno.args;
if (option !== undefined && option !== "--no-test") {
  printError(`ok: unexpected argument ${JSON.stringify(option)}; the only option is --no-test`);
  Deno.exit(2);
}

const steps = option === undefined ? [...STEPS, { name: "tests", args: ["task", "--quiet", "test"] }] : STEPS;
const failed: string[] = [];
for (const { name, args } of steps) {
  const before = performance.now();
  const code = await run({ command: [Deno.execPath(), ...args], cwd: sourceRoot });
  const seconds = ((performance.now() - before) / 1000).toFixed(1);
  printLine(`${code === 0 ? "ok    " : "FAILED"} ${name} (${seconds} s)`);
  if (code !== 0) failed.push(name);
}
if (failed.length > 0) {
  printError(`ok: failed: ${failed.join(", ")}`);
  Deno.exitCode = 1;
}
