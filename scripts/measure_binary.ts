/**
 * `measure_binary.ts BINARY…`: size of each compiled executable and the time from its start until `/healthz` answers, the
 * median of five. Everything that it needs besides is made up: no broker has to be there for a local executable, and the
 * backend is not waited for. An executable of the profile nats is started against a broker of its own.
 */
import { freePort, ManagedProcess, TestFolder } from "../tests/harness/process.ts";
import { NatsServer } from "../tests/harness/nats_server.ts";
import { printError, printLine } from "./lib/print.ts";

const RUNS = 5;

/** Milliseconds from the start of `binary` to the first 200 at `/healthz`. */
async function startTime(binary: string, env: Readonly<Record<string, string>>): Promise<number> {
  const port = freePort();
  const before = performance.now();
  await using process = ManagedProcess.start({
    name: binary,
    command: [binary],
    env: { ...env, SIE_WORKER_PROBE_PORT: `${port}`, SIE_DEBUG_ADDR: `127.0.0.1:${freePort()}`, RUST_LOG: "warn" },
  });
  await process.until("/healthz answers", async () => {
    const response = await fetch(`http://127.0.0.1:${port}/healthz`);
    await response.body?.cancel();
    return response.status === 200;
  });
  const elapsed = performance.now() - before;
  await process.stop("SIGTERM");
  return elapsed;
}

async function measure(binary: string): Promise<void> {
  using folder = new TestFolder();
  const lane = { SIE_POOL: "default", SIE_BUNDLE: "default", SIE_MACHINE_PROFILE: "l4" };
  const common = { ...lane, SIE_IPC_SOCKET_PATH: folder.file("ipc.sock") };
  const local = { ...common, SIE_SIDECAR_INGEST: "local", SIE_SIDECAR_LOCAL_SOCKET: folder.file("ingest.sock") };
  const isLocal = binary.endsWith("-local");
  await using nats = isLocal ? undefined : await NatsServer.start({ folder: folder.path });
  const env = nats === undefined ? local : { ...common, SIE_NATS_URL: nats.url };
  const times: number[] = [];
  for (let run = 0; run < RUNS; run++) times.push(await startTime(binary, env));
  times.sort((a, b) => a - b);
  const { size } = await Deno.stat(binary);
  printLine(`${binary}: ${(size / 1e6).toFixed(1)} MB, /healthz after ${Math.round(times[RUNS >> 1] ?? 0)} ms`);
}

try {
  for (const binary of Deno.args) await measure(binary);
} catch (thrown) {
  printError(`measure: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
