/** The program as it is called: streams, exit codes, and the permission that is missing. */
import assert from "node:assert/strict";
import { fromFileUrl } from "../harness/paths.ts";

const MAIN = fromFileUrl(new URL("../../main.ts", import.meta.url));
const LANE = { SIE_POOL: "p", SIE_BUNDLE: "b", SIE_MACHINE_PROFILE: "m", SIE_NATS_URL: "nats://u:s3cret@127.0.0.1:1" };

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the program with a clean environment. `flags` are permissions beyond the environment. */
async function run(args: string[], env: Record<string, string> = LANE, flags: string[] = []): Promise<Ended> {
  const inherited = Object.fromEntries(
    ["PATH", "HOME", "DENO_DIR", "XDG_CACHE_HOME"].flatMap((name) => {
      const value = Deno.env.get(name);
      return value === undefined ? [] : [[name, value]];
    }),
  );
  const output = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--allow-env", ...flags, MAIN, ...args],
    env: { ...inherited, NO_COLOR: "1", ...env },
    clearEnv: true,
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code: output.code, stdout: text(output.stdout), stderr: text(output.stderr) };
}

Deno.test("help and version go to stdout and need no settings and no permissions", async () => {
  const help = await run(["--help"], {});
  assert.equal(help.code, 0);
  assert.match(help.stdout, /^Usage: worker-sidecar \[OPTIONS\] --pool <POOL>/m);
  assert.equal(help.stderr, "");
  const version = await run(["serve", "-V"], {});
  assert.deepEqual([version.code, version.stderr], [0, ""]);
  assert.match(version.stdout, /^worker-sidecar \d+\.\d+\.\d+\n$/);
});

Deno.test("usage errors exit with 2, validation errors with 1, both on stderr", async () => {
  const usage = await run(["run"]);
  assert.deepEqual([usage.code, usage.stdout], [2, ""]);
  assert.match(usage.stderr, /^error: unexpected argument 'run' found\n\nUsage: worker-sidecar /);
  const invalid = await run(["serve"], { ...LANE, SIE_POOL: "a.b" });
  assert.deepEqual([invalid.code, invalid.stdout], [1, ""]);
  assert.equal(invalid.stderr, "Error: SIE_POOL must not contain '.', '*', '>', or whitespace\n");
});

Deno.test("check prints the settings and names what it may not use; without a permission missing it exits with 0", async () => {
  const refused = await run(["check"], LANE, ["--allow-net=127.0.0.1"]);
  assert.deepEqual([refused.code, refused.stderr], [1, ""]);
  assert.match(refused.stdout, /^ +SIE_NATS_URL +nats:\/\/<redacted>@127\.0\.0\.1:1 +\(environment SIE_NATS_URL\)$/m);
  assert.match(
    refused.stdout,
    /^missing: SIE_WORKER_PROBE_PORT needs 0\.0\.0\.0:9095, .*--allow-net=0\.0\.0\.0:9095$/m,
  );
  assert.match(refused.stdout, /^missing: SIE_IPC_SOCKET_PATH needs \/tmp\/sie-ipc\.sock, .* read/m);
  assert.doesNotMatch(refused.stdout, /missing: SIE_NATS_URL/);
  assert.doesNotMatch(refused.stdout, /s3cret/);
  const allowed = await run(["check", "--gpu-count=3"], LANE, [
    "--allow-net",
    "--allow-read=/tmp",
    "--allow-write=/tmp",
  ]);
  assert.equal(allowed.code, 0, allowed.stdout);
  assert.match(allowed.stdout, /^ +SIE_GPU_COUNT +3 +\(flag --gpu-count\)$/m);
});

Deno.test("serve refuses to start without a permission, in one line that names the setting", async () => {
  const flags = ["--allow-net", "--allow-read=/tmp"];
  for (const args of [[], ["serve"], ["--gpu-count=2"]]) {
    const { code, stderr } = await run(args, LANE, flags);
    assert.equal(code, 1);
    assert.equal(
      stderr,
      "Error: SIE_IPC_SOCKET_PATH needs /tmp/sie-ipc.sock, which this program may not write: " +
        "--allow-write=/tmp/sie-ipc.sock\n",
    );
  }
});

Deno.test("serve names everything that is missing, each in a line of its own", async () => {
  const { code, stderr } = await run(["serve"], { ...LANE, SIE_DEBUG_ADDR: "off" }, ["--allow-read=/tmp"]);
  assert.equal(code, 1);
  const lines = stderr.trimEnd().split("\n");
  const named = lines.map((line) => /^Error: (SIE_\w+) needs (\S+), /.exec(line)?.slice(1, 3).join(" "));
  assert.deepEqual(named.filter((line) => !line?.includes("unix:")), [
    "SIE_WORKER_PROBE_PORT 0.0.0.0:9095",
    "SIE_IPC_SOCKET_PATH /tmp/sie-ipc.sock",
    "SIE_NATS_URL 127.0.0.1:1",
  ]);
});
