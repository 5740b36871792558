/**
 * The online trainer: samples a second from the socket to the ACK, microseconds of one step, and the ACKs' tail while
 * checkpoints are written. With `--with-torch` the same in PyTorch behind the same protocol, in the same run.
 */
import { Params } from "../../src/training/params.ts";
import { seededRandom } from "../../src/training/random.ts";
import { SGD_DEFAULTS, SgdEma } from "../../src/training/sgd.ts";
import { fromFileUrl } from "../../tests/harness/paths.ts";
import { ManagedProcess, TestFolder } from "../../tests/harness/process.ts";
import type { BenchOptions, BenchPart } from "../lib/part.ts";

const N_FEATURES = 80, BATCH = 32;
/** Samples in flight: one, as the real client sends, and many, as a file is sent. */
const WINDOWS = [1, 64] as const;

/** What one trainer reached. */
interface Figures {
  readonly step_us: number;
  readonly samples_per_s_one_in_flight: number;
  readonly samples_per_s_64_in_flight: number;
}

/** A trainer that listens. */
interface Running extends AsyncDisposable {
  readonly socket: string;
}

/** See the head of this file. */
export const training: BenchPart = {
  name: "training",
  async run(options) {
    const samples = options.quick ? 5000 : 60_000;
    const ours = await contend(
      "worker-sidecar",
      startOurs,
      () => Promise.resolve(ourStep(options.quick)),
      samples,
      options,
    );
    const acks = await ackTail(options);
    const python = options.torchPython;
    const torch = python === undefined ? null : await contend(
      "PyTorch",
      (folder) => startTorch(python, folder),
      () => torchStep(python, options.quick),
      Math.ceil(samples / 5),
      options,
    );
    const ratio = torch === null ? null : {
      samples_one_in_flight: round(ours.samples_per_s_one_in_flight / torch.samples_per_s_one_in_flight),
      samples_64_in_flight: round(ours.samples_per_s_64_in_flight / torch.samples_per_s_64_in_flight),
      step: round(torch.step_us / ours.step_us),
    };
    const rows: (readonly [string, Figures])[] = [["worker-sidecar", ours]];
    if (torch !== null) rows.push(["PyTorch", torch]);
    return {
      result: { ours: { ...ours }, acks_while_checkpointing: { ...acks }, torch: torch && { ...torch }, ratio },
      lines: [...table(rows), "", ackLine(acks)],
    };
  },
};

async function contend(
  name: string,
  start: (folder: TestFolder) => Promise<Running>,
  step: () => Promise<number>,
  samples: number,
  { progress }: BenchOptions,
): Promise<Figures> {
  progress(`training: ${name}`);
  const step_us = round(await step());
  const rates: number[] = [];
  for (const window of WINDOWS) {
    using folder = new TestFolder();
    await using trainer = await start(folder);
    using load = await Load.open(trainer.socket);
    await load.send(Math.ceil(samples / 10), window);
    const seconds = await load.send(samples, window);
    rates.push(Math.round(samples / seconds));
  }
  return { step_us, samples_per_s_one_in_flight: rates[0] ?? 0, samples_per_s_64_in_flight: rates[1] ?? 0 };
}

async function startOurs(folder: TestFolder, minSamples = 1_000_000_000): Promise<Running> {
  const socket = folder.file("s.sock");
  const process = ManagedProcess.start({
    name: "train",
    command: [
      Deno.execPath(),
      "run",
      "--quiet",
      "--no-prompt",
      "--allow-env",
      "--allow-net",
      "--allow-sys",
      `--allow-read=${folder.path}`,
      `--allow-write=${folder.path}`,
      fromFileUrl(new URL("../../main.ts", import.meta.url)),
      "train",
    ],
    env: {
      VMAFX_SIDECAR_SOCKET: socket,
      VMAFX_SIDECAR_CHECKPOINT_DIR: folder.file("versions"),
      VMAFX_SIDECAR_N_FEATURES: `${N_FEATURES}`,
      VMAFX_SIDECAR_BATCH_SIZE: `${BATCH}`,
      VMAFX_SIDECAR_MIN_SAMPLES_CKPT: `${minSamples}`,
      VMAFX_SIDECAR_CKPT_INTERVAL_S: "0",
      VMAFX_SIDECAR_HTTP_ADDR: "off",
    },
  });
  await process.line("it listens", (line) => line.includes("vmafx-sidecar listening on"));
  return { socket, [Symbol.asyncDispose]: () => process[Symbol.asyncDispose]() };
}

async function startTorch(python: string, folder: TestFolder): Promise<Running> {
  const socket = folder.file("s.sock");
  const command = [python, TORCH_PEER, "serve", socket, `${N_FEATURES}`, `${BATCH}`];
  const process = ManagedProcess.start({ name: "torch", command });
  await process.line("it listens", (line) => line === "listening");
  return { socket, [Symbol.asyncDispose]: () => process[Symbol.asyncDispose]() };
}

const TORCH_PEER = fromFileUrl(new URL("../training/torch_peer.py", import.meta.url));

async function torchStep(python: string, quick: boolean): Promise<number> {
  const command = [python, TORCH_PEER, "step", `${N_FEATURES}`, `${BATCH}`, quick ? "500" : "5000"];
  await using process = ManagedProcess.start({ name: "torch step", command });
  return Number(await process.line("the figure", (line) => /^\d/.test(line)));
}

function ourStep(quick: boolean): number {
  const random = seededRandom(1);
  const sgd = new SgdEma(Params.random(N_FEATURES, random), BATCH, SGD_DEFAULTS);
  for (let i = 0; i < sgd.features.length; i++) sgd.features[i] = random();
  for (let i = 0; i < BATCH; i++) sgd.targets[i] = 100 * random();
  for (let i = 0; i < 2000; i++) sgd.step(BATCH);
  const count = quick ? 2000 : 20_000, started = performance.now();
  for (let i = 0; i < count; i++) sgd.step(BATCH);
  return 1000 * (performance.now() - started) / count;
}

/** Sends ready-made lines and counts the line feeds that come back. */
class Load implements Disposable {
  readonly #connection: Deno.UnixConn;
  readonly #lines: Uint8Array[];
  readonly #buffer = new Uint8Array(65_536);
  #next = 0;

  private constructor(connection: Deno.UnixConn) {
    this.#connection = connection;
    const random = seededRandom(2);
    // float32 values with about eight digits, as Go's encoder writes them.
    const number = (scale: number) => Number(Math.fround(scale * random()).toPrecision(8));
    this.#lines = Array.from({ length: 512 }, (_, i) => {
      const features = Array.from({ length: N_FEATURES }, () => number(1));
      return new TextEncoder().encode(`${JSON.stringify({ job_id: `job-${i}`, features, true_score: number(100) })}\n`);
    });
  }

  static async open(path: string): Promise<Load> {
    return new Load(await Deno.connect({ transport: "unix", path }));
  }

  /** Sends `count` samples, `window` at a time. Notes the time of each window. @returns seconds. */
  async send(count: number, window: number, windowMs: number[] = []): Promise<number> {
    const started = performance.now();
    for (let sent = 0; sent < count; sent += window) {
      const before = performance.now();
      const bytes = this.#window(window);
      for (let at = 0; at < bytes.length;) at += await this.#connection.write(bytes.subarray(at));
      await this.#answers(window);
      windowMs.push(performance.now() - before);
    }
    return (performance.now() - started) / 1000;
  }

  #window(size: number): Uint8Array {
    const lines = Array.from({ length: size }, () => this.#lines[this.#next++ % this.#lines.length] as Uint8Array);
    if (lines.length === 1) return lines[0] as Uint8Array;
    const bytes = new Uint8Array(lines.reduce((sum, line) => sum + line.length, 0));
    let at = 0;
    for (const line of lines) {
      bytes.set(line, at);
      at += line.length;
    }
    return bytes;
  }

  async #answers(count: number): Promise<void> {
    while (count > 0) {
      const length = await this.#connection.read(this.#buffer);
      if (length === null) throw new Error("the trainer closed the connection");
      for (let i = 0; i < length; i++) if (this.#buffer[i] === 0x0a) count--;
      if (new TextDecoder().decode(this.#buffer.subarray(0, length)).includes('"ok":false')) {
        throw new Error("the trainer refused a sample");
      }
    }
  }

  [Symbol.dispose](): void {
    this.#connection.close();
  }
}

interface AckTail {
  readonly samples: number;
  readonly checkpoints: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly max_ms: number;
}

/** One sample in flight, and a checkpoint every 160 samples: each hundredth ACK or so waits for three synced files. */
async function ackTail({ quick, progress }: BenchOptions): Promise<AckTail> {
  progress("training: ACKs while checkpoints are written");
  using folder = new TestFolder();
  await using trainer = await startOurs(folder, 160);
  using load = await Load.open(trainer.socket), other = await Load.open(trainer.socket);
  const samples = quick ? 2000 : 10_000, times: number[] = [];
  await load.send(200, 1);
  // Two clients, so that one sends while the other's step writes.
  await Promise.all([load.send(samples / 2, 1, times), other.send(samples / 2, 1, times)]);
  times.sort((a, b) => a - b);
  const at = (part: number) => round(times[Math.floor(part * (times.length - 1))] ?? NaN);
  const checkpoints = [...Deno.readDirSync(folder.file("versions"))].filter((entry) => entry.name.endsWith(".sha256"));
  return { samples: times.length, checkpoints: checkpoints.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
}

function ackLine({ samples, checkpoints, p50_ms, p99_ms, max_ms }: AckTail): string {
  return `ACKs of ${samples} samples while ${checkpoints} checkpoints are written: p50 ${p50_ms} ms, p99 ${p99_ms} ms, ` +
    `longest ${max_ms} ms`;
}

function table(rows: readonly (readonly [string, Figures])[]): string[] {
  const line = (cells: readonly (string | number)[]) =>
    cells.map((cell, i) => i === 0 ? `${cell}`.padEnd(16) : `${cell}`.padStart(18)).join("");
  return [
    line([`training, N ${N_FEATURES}`, "µs a step", "samples/s, one", "samples/s, 64"]),
    ...rows.map(([name, { step_us, samples_per_s_one_in_flight: one, samples_per_s_64_in_flight: many }]) =>
      line([name, step_us, one, many])
    ),
  ];
}

function round(value: number): number {
  return Number(value.toPrecision(3));
}
