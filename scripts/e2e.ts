/**
 * `deno task e2e`: compiles the executable of each profile and runs the end-to-end tests on it, then the tests that compile
 * strict executables themselves. At the end it prints sizes and start times.
 */
import { join } from "node:path";
import { type CompilerVariables, ensureCompiler } from "./lib/compile/runtime.ts";
import { cacheFolder, sourceRoot } from "./lib/places.ts";
import { printError, printLine } from "./lib/print.ts";
import { mustRun } from "./lib/run.ts";
import { scopeFlags } from "./lib/scopes.ts";
import { makeScratch, runProgram, runTests } from "./lib/test_run.ts";

const env = Deno.env.toObject();
const cache = cacheFolder(env);

/** End-to-end tests of a profile, by the start of their names. */
function testsOf(profile: "nats" | "local"): string[] {
  const folder = join(sourceRoot, "tests/e2e");
  const names = [...Deno.readDirSync(folder)].map((entry) => entry.name).sort();
  const files = names.filter((name) => name.startsWith(`${profile}_`) && name.endsWith("_test.ts"));
  if (files.length === 0) throw new Error(`there is no end-to-end test of the profile ${profile}`);
  return files.map((name) => join("tests/e2e", name));
}

/** Compiles as the task does, where the compiler is known by now. */
async function compile(args: readonly string[], compiler: CompilerVariables): Promise<void> {
  const flags = scopeFlags("compile", { ...env, ...compiler }, Deno.execPath());
  await mustRun({
    command: [Deno.execPath(), "run", "--quiet", "-P=scripts", ...flags, "scripts/compile.ts", ...args],
    env: { ...compiler },
    cwd: sourceRoot,
  });
}

async function main(): Promise<boolean> {
  const compiler = await ensureCompiler(cache, env);
  const scratch = await makeScratch();
  try {
    const binaries: string[] = [];
    let passed = true;
    for (const profile of ["nats", "local"] as const) {
      const binary = join(cache, "e2e", `worker-sidecar-${profile}`);
      // The tests use folders of their own below one that is known only now; sockets, payloads and traces lie there.
      const places = ["--read", scratch, "--write", scratch];
      await compile(["--profile", profile, "--generic", ...places, "--output", binary], compiler);
      binaries.push(binary);
      const code = await runTests(testsOf(profile), [], { env: { SIDECAR_CMD: binary }, scratch });
      passed &&= code === 0;
    }
    const code = await runTests(["tests/compiled/"], [], {
      env: { ...compiler },
      programs: [compiler.COMPILE_DENO, join(scratch, "worker-sidecar")],
      scratch,
    });
    passed &&= code === 0;
    printLine();
    const measured = await runProgram("scripts/measure_binary.ts", binaries, { programs: binaries, scratch });
    return passed && measured === 0;
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
}

try {
  Deno.exitCode = await main() ? 0 : 1;
} catch (thrown) {
  printError(`e2e: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
