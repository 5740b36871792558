/**
 * `deno task bench [NAME…] [--quick] [--json]`: gets the tools, then starts `run.ts` with the permissions that it needs, which
 * are known only now.
 */
import { delimiter } from "node:path";
import { ensureNatsServer } from "../scripts/lib/nats_server.ts";
import { cacheFolder, sourceRoot, temporaryFolder } from "../scripts/lib/places.ts";
import { printError } from "../scripts/lib/print.ts";
import { run } from "../scripts/lib/run.ts";
import { testFlags } from "../scripts/lib/test_flags.ts";
import { buildTools } from "./lib/build.ts";

const env = Deno.env.toObject();
const cache = cacheFolder(env);
try {
  // Standard output belongs to the result: it may be JSON.
  const folder = await ensureNatsServer({ cache, progress: printError });
  const tools = await buildTools(cache, printError);
  const scratch = await Deno.makeTempDir({ dir: temporaryFolder(env), prefix: "ws" });
  try {
    const flags = testFlags({
      denoPath: Deno.execPath(),
      scratch,
      cache,
      env,
      programs: Object.values(tools),
      read: [],
    });
    Deno.exitCode = await run({
      command: [
        Deno.execPath(),
        "run",
        "--quiet",
        "--no-prompt",
        "--permission-set=test",
        ...flags,
        "bench/run.ts",
        JSON.stringify(tools),
        ...Deno.args,
      ],
      env: { PATH: folder === undefined ? env["PATH"] ?? "" : [folder, env["PATH"]].join(delimiter), TMPDIR: scratch },
      cwd: sourceRoot,
    });
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
} catch (thrown) {
  printError(`bench: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
