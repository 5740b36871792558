/** The programs of the loop that learns batch times: a backend that pads, a trainer, and a sidecar between them. */
import type { PlainValue } from "../../src/client/values.ts";
import { LocalIngestClient } from "../../src/client/client.ts";
import { BATCH_FEATURES } from "../../src/training/batch_features.ts";
import { fromFileUrl } from "./paths.ts";
import { freePort, ManagedProcess, type TestFolder } from "./process.ts";
import { Sidecar } from "./sidecar.ts";

const ROOT = fromFileUrl(new URL("../../", import.meta.url));

/** What the backend takes: `baseMs` and so many microseconds for each character of `items × longest`. */
export interface PaddingTimes {
  readonly baseMs: number;
  readonly usPerCharacter: number;
}

/** Starts `padding_backend.ts` at `ipc.sock` and waits until it listens. */
export async function startPaddingBackend(folder: TestFolder, times: PaddingTimes): Promise<ManagedProcess> {
  const socket = folder.file("ipc.sock");
  const isNew = Number(Deno.version.deno.split(".")[1]) >= 9;
  const backend = ManagedProcess.start({
    name: "padding backend",
    command: [
      ...[Deno.execPath(), "run", "--quiet", "--no-prompt", `--config=${ROOT}deno.json`],
      ...[`--allow-read=${ROOT},${folder.path}`, `--allow-write=${folder.path}`],
      ...(isNew ? [`--allow-net=unix:${socket}`] : []),
      ...[`${ROOT}tests/harness/padding_backend.ts`, socket, `${times.baseMs}`, `${times.usPerCharacter}`],
    ],
  });
  await backend.line("it listens", (line) => line.startsWith("READY"));
  return backend;
}

/** Variables of the trainer that docs/training.md recommends for batch times, in `folder`. */
export function trainerVariables(folder: TestFolder): Record<string, string> {
  return {
    VMAFX_SIDECAR_SOCKET: folder.file("train.sock"),
    VMAFX_SIDECAR_CHECKPOINT_DIR: folder.file("versions"),
    VMAFX_SIDECAR_N_FEATURES: `${BATCH_FEATURES}`,
    VMAFX_SIDECAR_BATCH_SIZE: "16",
    VMAFX_SIDECAR_REPLAY_MIX: "0.75",
    VMAFX_SIDECAR_LR: "0.05",
    VMAFX_SIDECAR_EMA_DECAY: "0.95",
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "100",
    VMAFX_SIDECAR_CKPT_INTERVAL_S: "0",
    VMAFX_SIDECAR_HTTP_ADDR: "off",
  };
}

/** Starts `worker-sidecar train ARGS` from source. */
export function startTrain(folder: TestFolder, args: readonly string[] = []): ManagedProcess {
  return ManagedProcess.start({
    name: ["train", ...args].join(" "),
    command: [
      ...[Deno.execPath(), "run", "--quiet", "--no-prompt", "--allow-env", "--allow-net", "--allow-sys"],
      ...[`--allow-read=${folder.path}`, `--allow-write=${folder.path}`, `${ROOT}main.ts`, "train", ...args],
    ],
    env: trainerVariables(folder),
  });
}

/** A sidecar for that backend, and a caller. Use it with `await using`. */
export class TimedSidecar implements AsyncDisposable {
  readonly sidecar: Sidecar;
  readonly client: LocalIngestClient;
  readonly #debug: string;

  private constructor(sidecar: Sidecar, client: LocalIngestClient, debug: string) {
    this.sidecar = sidecar;
    this.client = client;
    this.#debug = debug;
  }

  static async start(folder: TestFolder, variables: Readonly<Record<string, string>>): Promise<TimedSidecar> {
    const socketPath = folder.file("ingest.sock"), debug = `127.0.0.1:${freePort()}`;
    const sidecar = await Sidecar.start({
      env: {
        SIE_POOL: "default",
        SIE_BUNDLE: "default",
        SIE_MACHINE_PROFILE: "cpu",
        SIE_IPC_SOCKET_PATH: folder.file("ipc.sock"),
        SIE_SIDECAR_INGEST: "local",
        SIE_SIDECAR_LOCAL_SOCKET: socketPath,
        SIE_DEBUG_ADDR: debug,
        ...variables,
      },
    });
    const route = { pool: "default", machineProfile: "cpu", bundle: "default" };
    return new TimedSidecar(sidecar, new LocalIngestClient({ socketPath, route }), debug);
  }

  /** Runs one score call of as many items as lengths are given. */
  async score(...lengths: readonly number[]): Promise<void> {
    const inputs = lengths.map((length) => ({
      queryItem: { text: "q" },
      scoreItems: [{ id: "a", text: "x".repeat(length) }] satisfies PlainValue[],
    }));
    const results = await this.client.publishWork({ operation: "score", model: "padded", inputs });
    for (const { success, error } of results) if (!success) throw new Error(`an item failed: ${error}`);
  }

  /** What is shown at a path of the debug server. */
  async debug(path: string): Promise<unknown> {
    const response = await fetch(`http://${this.#debug}${path}`);
    return await response.json();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    await this.sidecar[Symbol.asyncDispose]();
  }
}
