/** One run of `deno test`: its tools, its permissions and the one folder it writes in. */
import { delimiter } from "node:path";
import { ensureNatsServer } from "./nats_server.ts";
import { cacheFolder, sourceRoot, temporaryFolder } from "./places.ts";
import { printLine } from "./print.ts";
import { run } from "./run.ts";
import { testFlags } from "./test_flags.ts";

/** What to test. */
export interface TestRun {
  /** Files and folders of tests. */
  readonly files: readonly string[];
  /** Options of `deno test`. */
  readonly options?: readonly string[];
  /** More variables for the tests. */
  readonly env?: Readonly<Record<string, string>>;
  /** More programs that the tests may start. */
  readonly programs?: readonly string[];
  /** More places that the tests may read. */
  readonly read?: readonly string[];
}

/** Runs tests with this Deno. @returns the exit code of `deno test`. */
export async function runTests(test: TestRun): Promise<number> {
  const env = { ...Deno.env.toObject(), ...test.env };
  const cache = cacheFolder(env);
  const folder = await ensureNatsServer({ cache, progress: printLine });
  const path = folder === undefined ? env["PATH"] ?? "" : [folder, env["PATH"]].join(delimiter);
  // Everything that the tests write lies in one folder, which goes away with the run. A short name: paths of Unix sockets
  // have 107 bytes.
  const scratch = await Deno.makeTempDir({ dir: temporaryFolder(env), prefix: "ws" });
  try {
    const { programs = [], read = [] } = test;
    const flags = testFlags({ denoPath: Deno.execPath(), scratch, cache, env, programs, read });
    return await run({
      command: [
        Deno.execPath(),
        "test",
        "--quiet",
        "--permission-set=test",
        ...flags,
        ...test.options ?? [],
        ...test.files,
      ],
      env: { ...test.env, PATH: path, TMPDIR: scratch, WORKER_SIDECAR_CACHE: cache },
      cwd: sourceRoot,
    });
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
}
