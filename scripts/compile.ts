/**
 * `deno task compile`: one executable of the sidecar with exactly the permissions that its deployment needs. What is baked
 * is printed, and embedded so that the executable can name what is missing. See `lib/compile/options.ts` for the usage.
 */
import { dirname, resolve } from "node:path";
import { type Compiler, inspectCompiler, permissionSet } from "./lib/compile/compiler.ts";
import { genericGrants, type Grant, GrantError, strictGrants, withoutGrants } from "./lib/compile/grants.ts";
import { type CompileOptions, readOptions, USAGE, UsageError } from "./lib/compile/options.ts";
import { SET_NAME, stage } from "./lib/compile/staging.ts";
import { neverLoadedFiles } from "./lib/compile/unused_files.ts";
import { version } from "../src/settings/version.ts";
import { sourceRoot, temporaryFolder } from "./lib/places.ts";
import { printError, printLine } from "./lib/print.ts";
import { capture } from "./lib/run.ts";

try {
  const options = readOptions(Deno.args, Deno.readTextFileSync);
  if (options === undefined) printLine(USAGE);
  else await compile(options);
} catch (thrown) {
  if (!(thrown instanceof Error)) throw thrown;
  printError(`compile: ${thrown.message}`);
  if (thrown instanceof UsageError) printError(`\n${USAGE}`);
  Deno.exitCode = thrown instanceof UsageError || thrown instanceof GrantError ? 2 : 1;
}

async function compile(options: CompileOptions): Promise<void> {
  const compiler = await inspectCompiler(Deno.env.get("COMPILE_DENO") || Deno.execPath());
  const { profile, target, generic, deployment } = options;
  const needed = generic ? genericGrants(profile, deployment) : strictGrants(profile, deployment);
  const grants = withoutGrants(needed, options.without);
  printGrants(options, compiler, grants);
  if (options.dryRun) return;
  const staging = await Deno.makeTempDir({ dir: temporaryFolder(Deno.env.toObject()), prefix: "ws-compile-" });
  try {
    const output = resolve(options.output);
    await Deno.mkdir(dirname(output), { recursive: true });
    const manifest = { version, profile, target, generic, grants };
    const workers = await stage(sourceRoot, staging, permissionSet(grants, compiler), manifest);
    await runCompiler(compiler, staging, workers, target, output);
    await requireMachine(output, target);
    const { size } = await Deno.stat(output);
    printLine(`\n${output}: ${(size / 1e6).toFixed(1)} MB`);
  } finally {
    await Deno.remove(staging, { recursive: true });
  }
}

async function runCompiler(
  compiler: Compiler,
  staging: string,
  workers: readonly string[],
  target: string,
  output: string,
): Promise<void> {
  // The packages must be in the cache before the files that can be left out are looked for.
  await must([compiler.path, "install", "--quiet", "--entrypoint", "main.ts", ...workers], staging);
  const unused = await neverLoadedFiles(`${staging}/deno.lock`, await npmCacheOf(compiler, staging));
  await must([
    compiler.path,
    "compile",
    "--quiet",
    "--frozen",
    "--no-check",
    "--no-prompt",
    `--permission-set=${SET_NAME}`,
    ...(compiler.excludesUnusedPackages ? ["--exclude-unused-npm"] : []),
    ...workers.map((worker) => `--include=${worker}`),
    ...unused.map((file) => `--exclude=${file}`),
    `--target=${target}`,
    `--output=${output}`,
    "main.ts",
  ], staging);
}

/**
 * `DENORT_BIN` is used for every target, also for one that it was not made for; the result would start nowhere. The ELF
 * header says which machine a program is for, in the 16 bits at offset 18.
 */
async function requireMachine(program: string, target: string): Promise<void> {
  using file = await Deno.open(program);
  const header = new Uint8Array(20);
  const read = await file.read(header);
  const machine = new DataView(header.buffer).getUint16(18, true);
  const wanted = target.startsWith("x86_64") ? 0x3e : 0xb7;
  if (read === header.length && machine === wanted) return;
  await Deno.remove(program);
  throw new Error(
    `the result is not a program for ${target} (machine ${machine}, not ${wanted}): DENORT_BIN is for another one`,
  );
}

/** Runs a step of the compiling Deno; its output is shown only when it fails. */
async function must(command: readonly string[], cwd: string): Promise<string> {
  const { code, stdout, stderr } = await capture({ command, cwd, env: { NO_COLOR: "1" } });
  if (code !== 0) throw new Error(`${command.slice(0, 2).join(" ")} ended with ${code}:\n${stderr}`);
  return stdout;
}

async function npmCacheOf(compiler: Compiler, cwd: string): Promise<string> {
  const info: unknown = JSON.parse(await must([compiler.path, "info", "--json"], cwd));
  if (typeof info === "object" && info !== null && "npmCache" in info && typeof info.npmCache === "string") {
    return info.npmCache;
  }
  throw new Error(`${compiler.path} info --json does not name its npm cache`);
}

function printGrants(options: CompileOptions, compiler: Compiler, grants: readonly Grant[]): void {
  const form = options.generic ? "generic" : "strict";
  printLine(`worker-sidecar ${version}, profile ${options.profile}, ${form}, ${options.target}`);
  printLine(`compiled by Deno ${compiler.version}; permissions baked (no prompt, no other):`);
  for (const { kind, value, for: purpose } of grants) {
    printLine(`  ${kind.padEnd(5)} ${(value === true ? "all" : value).padEnd(40)} ${purpose}`);
  }
}
