/**
 * The real Python backend as a peer: programs that nobody here wrote. `deno task conformance` installs them into the cache
 * folder (`scripts/lib/peers.ts`) before the tests that use them run.
 */
import { fromFileUrl } from "./paths.ts";
import { accepts, freePort, ManagedProcess } from "./process.ts";

const PEERS = fromFileUrl(new URL("../peers", import.meta.url));

/** The folder that the peers are installed in; set by `scripts/conformance.ts`. */
export function peersFolder(): string {
  const folder = Deno.env.get("WORKER_SIDECAR_PEERS");
  if (folder === undefined || folder === "") {
    throw new Error("WORKER_SIDECAR_PEERS is not set: `deno task conformance` installs the peers and sets it");
  }
  return folder;
}

/** How to start the backend. */
export interface BackendOptions {
  /** Where its IPC server listens. */
  readonly socket: string;
  /** More variables, e.g. `SIE_FAKE_FAULTS`. */
  readonly env?: Readonly<Record<string, string>>;
  /** Folder of model files; ours by default. */
  readonly models?: string;
}

/** The backend with its registry, executor and fake adapter, up and listening. Use it with `await using`. */
export async function startBackend(options: BackendOptions): Promise<ManagedProcess> {
  const port = freePort();
  return await started(
    ManagedProcess.start({
      name: "sie-server",
      command: [
        `${peersFolder()}/venv/bin/sie-server`,
        ...["serve", "--bundle", "fake", "--device", "cpu", "--no-hf-fallback"],
        ...["--models-dir", options.models ?? `${PEERS}/models`, "--host", "127.0.0.1", "--port", String(port)],
      ],
      env: { ...peerEnvironment(), SIE_IPC_SOCKET_PATH: options.socket, SIE_LOG_LEVEL: "error", ...options.env },
    }),
    async (process) =>
      await process.until("the backend is ready", async () => {
        const response = await fetch(`http://127.0.0.1:${port}/readyz`);
        await response.body?.cancel();
        return response.status === 200;
      }),
  );
}

/**
 * The wheel's own IPC test harness: the real IPC server over a stub executor, in which every model is ready.
 *
 * @param args passed on, e.g. `["--readiness", "loading_started"]`.
 */
export async function startIpcHarness(socket: string, args: readonly string[] = []): Promise<ManagedProcess> {
  return await started(
    ManagedProcess.start({
      name: "IPC harness",
      command: [
        `${peersFolder()}/venv/bin/python`,
        ...["-m", "sie_server._ipc_test_harness", "--socket", socket, "--log-level", "ERROR"],
        ...args,
      ],
      env: peerEnvironment(),
    }),
    async (process) => {
      await process.line("it listens", (line) => line.includes("HARNESS_READY"));
      await process.until("it accepts", () => accepts(socket));
    },
  );
}

/** Runs a Python program of `tests/peers` with the peers' interpreter. @returns its standard output. */
export async function runPeerScript(name: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(`${peersFolder()}/venv/bin/python`, {
    args: [`${PEERS}/${name}`, ...args],
    env: peerEnvironment(),
    stdout: "piped",
    stderr: "piped",
  }).output();
  const decoder = new TextDecoder();
  if (code !== 0) throw new Error(`${name} ended with ${code}:\n${decoder.decode(stderr)}`);
  return decoder.decode(stdout);
}

/** Without these the backend looks for models on the network and reports each start to its makers. */
function peerEnvironment(): Record<string, string> {
  return {
    PYTHONPATH: `${PEERS}/torch_stub`,
    PYTHONDONTWRITEBYTECODE: "1",
    SIE_WORKER_ID: "peer-worker-1",
    HF_HUB_OFFLINE: "1",
    TRANSFORMERS_OFFLINE: "1",
    SIE_TELEMETRY_DISABLED: "1",
    DO_NOT_TRACK: "1",
  };
}

async function started(
  process: ManagedProcess,
  ready: (process: ManagedProcess) => Promise<void>,
): Promise<ManagedProcess> {
  try {
    await ready(process);
    return process;
  } catch (thrown) {
    await process[Symbol.asyncDispose]();
    throw thrown;
  }
}
