/** The demonstration's programs, each with the permissions it needs and no more, and how to tell that it is ready. */
import { join } from "node:path";
import { cacheFolder, sourceRoot } from "../scripts/lib/places.ts";
import { createBackend } from "../src/ipc/backend_pool.ts";
import { sleep, systemClock } from "../src/runtime/clock.ts";
import type { Children } from "./child.ts";
import { DemoFailure } from "./failure.ts";

/** Lane of the sidecar. */
export const LANE = { pool: "default", machineProfile: "cpu", bundle: "default" } as const;

/** Longest wait for a program. Generous, because the first start downloads packages. */
const START_LIMIT_MS = 180_000;
const ASK_EVERY_MS = 20;
/** Longest wait for one answer of the backend. */
const CALL_LIMIT_MS = 30_000;
/** Pause between two generated words, so that one can watch them come. */
const WORD_MS = 30;

/** Where everything of one run lies. */
export interface Places {
  readonly backendSocket: string;
  readonly ingestSocket: string;
  readonly traceFile: string;
  readonly natsStore: string;
  readonly folder: string;
}

/** Names within the folder of one run. */
export function placesIn(folder: string): Places {
  return {
    folder,
    backendSocket: join(folder, "backend.sock"),
    ingestSocket: join(folder, "ingest.sock"),
    traceFile: join(folder, "trace.jsonl"),
    natsStore: join(folder, "jetstream"),
  };
}

/** Starts the backend and waits until it listens. */
export async function startBackend(places: Places, children: Children, signal: AbortSignal): Promise<void> {
  const socket = places.backendSocket;
  const child = children.start({
    name: "the backend",
    command: [
      ...denoRun(),
      ...unixPermission(socket),
      `--allow-read=${join(sourceRoot, "demo")},${places.folder}`,
      `--allow-write=${places.folder}`,
      join(sourceRoot, "demo/backend/main.ts"),
      `--socket=${socket}`,
      `--word-ms=${WORD_MS}`,
    ],
  });
  await child.line((line) => line.startsWith("READY ") || undefined, START_LIMIT_MS, signal);
}

/**
 * Has the backend load models. The first item for a model would do that too, and would then wait: the sidecar asks a backend that
 * is loading again after five seconds.
 */
export async function loadModels(places: Places, models: readonly string[], signal: AbortSignal): Promise<void> {
  const backend = createBackend({
    sockets: [places.backendSocket],
    poolSize: 1,
    requestTimeoutMs: CALL_LIMIT_MS,
    modelReadyTimeoutMs: CALL_LIMIT_MS,
    generateFrameTimeoutMs: CALL_LIMIT_MS,
  });
  try {
    for (const model of models) {
      for (;;) {
        signal.throwIfAborted();
        const { state } = await backend.ensureModelReady(model);
        if (state === "ready") break;
        if (state === "failed" || state === "retry_later") {
          throw new DemoFailure(`the backend does not load ${model}: ${state}`);
        }
        await sleep(systemClock, ASK_EVERY_MS, signal);
      }
    }
  } finally {
    backend.close();
  }
}

/** Starts the sidecar as `deno task serve` does, and waits until it is ready for work. @param natsUrl undefined: no broker */
export async function startSidecar(
  places: Places,
  natsUrl: string | undefined,
  children: Children,
  signal: AbortSignal,
): Promise<void> {
  const child = children.start({
    name: "the sidecar",
    command: [
      ...denoRun(),
      "-P=serve",
      `--allow-read=${sourceRoot},${places.folder}`,
      `--allow-write=${places.folder}`,
      join(sourceRoot, "main.ts"),
      "serve",
      ...natsUrl === undefined
        ? ["--ingest=local", `--local-socket=${places.ingestSocket}`]
        : ["--ingest=nats", `--nats-url=${natsUrl}`],
    ],
    env: {
      SIE_POOL: LANE.pool,
      SIE_MACHINE_PROFILE: LANE.machineProfile,
      SIE_BUNDLE: LANE.bundle,
      SIE_WORKER_ID: "demo-worker",
      SIE_IPC_SOCKET_PATH: places.backendSocket,
      SIE_TRACE_FILE: places.traceFile,
      SIE_LOG_FORMAT: "text",
      // The system chooses, so that nothing can be in the way.
      SIE_WORKER_PROBE_PORT: "0",
      SIE_DEBUG_ADDR: "off",
    },
  });
  const port = await child.line(
    (line) => /probe server listens .*\bport=(\d+)/.exec(line)?.[1],
    START_LIMIT_MS,
    signal,
  );
  await untilReady(`http://127.0.0.1:${port}/readyz`, signal);
}

async function untilReady(url: string, signal: AbortSignal): Promise<void> {
  const giveUpAt = systemClock.now() + START_LIMIT_MS;
  let state = "";
  while (systemClock.now() < giveUpAt) {
    signal.throwIfAborted();
    const response = await fetch(url, { signal });
    state = await response.text();
    if (response.ok) return;
    await sleep(systemClock, ASK_EVERY_MS, signal);
  }
  throw new DemoFailure(`the sidecar was not ready within ${START_LIMIT_MS / 1000} s: ${state}`);
}

/**
 * Starts a nats-server with JetStream and waits until it accepts clients. Gets one before when there is none.
 *
 * @returns its URL
 */
export async function startNats(places: Places, children: Children, signal: AbortSignal): Promise<string> {
  const folder = await folderOfNats(signal);
  const child = children.start({
    name: "nats-server",
    command: [
      folder === "" ? "nats-server" : join(folder, "nats-server"),
      "--addr=127.0.0.1",
      "--port=-1",
      "--jetstream",
      `--store_dir=${places.natsStore}`,
    ],
    // What it returns after SIGTERM depends on its version.
    goodCodes: [1],
  });
  const address = /Listening for client connections on (\S+)/;
  const listening = await child.line((line) => address.exec(line)?.[1], START_LIMIT_MS, signal);
  await child.line((line) => line.includes("Server is ready") || undefined, START_LIMIT_MS, signal);
  return `nats://${listening}`;
}

/** The folder that holds nats-server; empty when it is on the PATH. What is done to get one is said on standard error. */
async function folderOfNats(signal: AbortSignal): Promise<string> {
  const cache = cacheFolder(Deno.env.toObject());
  const [program = "", ...run] = denoRun();
  const { code, stdout } = await new Deno.Command(program, {
    args: [
      ...run,
      "--allow-env",
      `--allow-read=${sourceRoot},${cache}`,
      `--allow-write=${cache}`,
      "--allow-run=nats-server,python3,go",
      join(sourceRoot, "demo/get_nats.ts"),
    ],
    stdin: "null",
    stderr: "inherit",
    signal,
  }).output();
  signal.throwIfAborted();
  if (code !== 0) throw new DemoFailure("there is no nats-server; without --nats the demonstration needs none");
  return new TextDecoder().decode(stdout).trim();
}

function denoRun(): string[] {
  return [Deno.execPath(), "run", "--quiet", "--no-prompt", `--config=${join(sourceRoot, "deno.json")}`];
}

/** Permission for a Unix socket; Deno before 2.9 has none, does not take it and needs none. */
function unixPermission(path: string): string[] {
  const [major = 0, minor = 0] = Deno.version.deno.split(".").map(Number);
  return major > 2 || (major === 2 && minor >= 9) ? [`--allow-net=unix:${path}`] : [];
}
