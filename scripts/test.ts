/**
 * `deno task test [FILE…] [OPTION…]`: runs the tests on a machine that has nothing but Deno and Python (or Go). Arguments
 * that name files or folders of tests replace the default, all of them; options go to `deno test`.
 */
import { delimiter } from "node:path";
import { ensureNatsServer } from "./lib/nats_server.ts";
import { cacheFolder, sourceRoot, temporaryFolder } from "./lib/places.ts";
import { printError, printLine } from "./lib/print.ts";
import { run } from "./lib/run.ts";
import { testFlags } from "./lib/test_flags.ts";

/** Tests that need more than this script provides; `deno task conformance` runs them. */
const ELSEWHERE = ["tests/conformance/"];

const env = Deno.env.toObject();
const cache = cacheFolder(env);

try {
  const folder = await ensureNatsServer({ cache, progress: printLine });
  const path = folder === undefined ? env["PATH"] ?? "" : [folder, env["PATH"]].join(delimiter);
  const options = Deno.args.filter((argument) => argument.startsWith("-"));
  const named = Deno.args.filter((argument) => !argument.startsWith("-"));
  const files = named.length > 0 ? named : ["tests/", `--ignore=${ELSEWHERE.join(",")}`];
  // Everything that the tests write lies in one folder, which goes away with the run.
  const scratch = await Deno.makeTempDir({ dir: temporaryFolder(env), prefix: "ws" });
  try {
    const flags = testFlags({ denoPath: Deno.execPath(), scratch, cache, env });
    const code = await run({
      command: [Deno.execPath(), "test", "--quiet", "--permission-set=test", ...flags, ...options, ...files],
      env: { PATH: path, TMPDIR: scratch, WORKER_SIDECAR_CACHE: cache },
      cwd: sourceRoot,
    });
    Deno.exitCode = code;
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
} catch (thrown) {
  printError(`test: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
