/** One run of tests, or of a program that needs what tests need: its tools, its permissions and the one folder it writes in. */
import { delimiter } from "node:path";
import { ensureNatsServer } from "./nats_server.ts";
import { cacheFolder, sourceRoot, temporaryFolder } from "./places.ts";
import { printError } from "./print.ts";
import { run } from "./run.ts";
import { testFlags } from "./test_flags.ts";

/** What a run needs beside Deno, nats-server and a folder of its own. */
export interface Surroundings {
  /** More variables. */
  readonly env?: Readonly<Record<string, string>>;
  /** More programs that may be started. */
  readonly programs?: readonly string[];
  /** More places that may be read. */
  readonly read?: readonly string[];
  /** The folder to write in, when it is needed before; the caller removes it. */
  readonly scratch?: string;
}

/**
 * The folder for everything that a run writes, to be removed with the run. A short name, because the path of a Unix socket has
 * 107 bytes at most.
 */
export async function makeScratch(): Promise<string> {
  return await Deno.makeTempDir({ dir: temporaryFolder(Deno.env.toObject()), prefix: "ws" });
}

/** Runs `deno test` with this Deno. @returns its exit code. */
export async function runTests(
  files: readonly string[],
  options: readonly string[],
  surroundings: Surroundings = {},
): Promise<number> {
  return await runDeno(["test", "--quiet"], [...options, ...files], surroundings);
}

/** Runs a program of ours with this Deno. @returns its exit code. */
export async function runProgram(
  program: string,
  args: readonly string[],
  surroundings: Surroundings = {},
): Promise<number> {
  return await runDeno(["run", "--quiet", "--no-prompt"], [program, ...args], surroundings);
}

async function runDeno(command: readonly string[], args: readonly string[], given: Surroundings): Promise<number> {
  const env = { ...Deno.env.toObject(), ...given.env };
  const cache = cacheFolder(env);
  // Standard output may be somebody's JSON, so progress goes to the other stream.
  const folder = await ensureNatsServer({ cache, progress: printError });
  const path = folder === undefined ? env["PATH"] ?? "" : [folder, env["PATH"]].join(delimiter);
  const scratch = given.scratch ?? await makeScratch();
  try {
    const { programs = [], read = [] } = given;
    const flags = testFlags({ denoPath: Deno.execPath(), scratch, cache, env, programs, read });
    return await run({
      command: [Deno.execPath(), ...command, "--permission-set=test", ...flags, ...args],
      env: { ...given.env, PATH: path, TMPDIR: scratch, WORKER_SIDECAR_CACHE: cache },
      cwd: sourceRoot,
    });
  } finally {
    if (given.scratch === undefined) await Deno.remove(scratch, { recursive: true });
  }
}
