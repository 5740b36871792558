/** What the tests of the trainer share: logs that remember, settings, a line client, synthetic data. */
import { systemClock } from "../../src/runtime/clock.ts";
import { CheckpointStore, type StoreOptions } from "../../src/training/checkpoint_store.ts";
import type { TrainingLog } from "../../src/training/log.ts";
import { TrainingMetrics } from "../../src/training/metrics.ts";
import { Params } from "../../src/training/params.ts";
import { seededRandom } from "../../src/training/random.ts";
import { TrainService } from "../../src/training/service.ts";
import { loadTrainSettings } from "../../src/training/settings.ts";
import { VersionLoader } from "../../src/training/version_loader.ts";
import { TestFolder } from "../harness/process.ts";

/** A log that keeps its lines. */
export class TestLog implements TrainingLog {
  readonly lines: string[] = [];
  info(message: string): void {
    this.lines.push(`INFO ${message}`);
  }
  warn(message: string): void {
    this.lines.push(`WARN ${message}`);
  }
  error(message: string): void {
    this.lines.push(`ERROR ${message}`);
  }
  has(part: string): boolean {
    return this.lines.some((line) => line.includes(part));
  }
}

/** A running service in a folder of its own. Use it with `await using`. */
export class TestService implements AsyncDisposable {
  readonly folder: TestFolder;
  readonly log: TestLog;
  readonly service: TrainService;
  #stopped = false;

  private constructor(folder: TestFolder, log: TestLog, service: TrainService) {
    this.folder = folder;
    this.log = log;
    this.service = service;
  }

  /** Starts with HTTP on a free port, no gates before a checkpoint, and `env` on top. */
  static async start(env: Record<string, string> = {}, folder = new TestFolder()): Promise<TestService> {
    const log = new TestLog();
    const settings = loadTrainSettings({ ...testEnvironment(folder), ...env });
    const service = await TrainService.start(settings, { clock: systemClock, log, randomSeed: 7 });
    return new TestService(folder, log, service);
  }

  get socket(): string {
    return this.service.settings.socket;
  }
  /** Address of HTTP, without a slash at the end. */
  get http(): string {
    return `http://127.0.0.1:${this.service.httpPort}`;
  }

  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    await this.service.stop();
    await this.service.settled();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    try {
      this.folder[Symbol.dispose]();
    } catch (thrown) {
      // Two services in turn may have used one folder.
      if (!(thrown instanceof Deno.errors.NotFound)) throw thrown;
    }
  }
}

/** Settings of a small trainer in `folder`. */
export function testEnvironment(folder: TestFolder): Record<string, string> {
  return {
    VMAFX_SIDECAR_SOCKET: folder.file("s.sock"),
    VMAFX_SIDECAR_CHECKPOINT_DIR: folder.file("versions"),
    VMAFX_SIDECAR_N_FEATURES: "3",
    VMAFX_SIDECAR_BATCH_SIZE: "4",
    VMAFX_SIDECAR_CKPT_INTERVAL_S: "0",
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "1000000",
    VMAFX_SIDECAR_HTTP_ADDR: "127.0.0.1:0",
    VMAFX_SIDECAR_SEED: "1",
  };
}

/** A client that writes raw bytes and reads answers line by line. Use it with `using`. */
export class LineClient implements Disposable {
  readonly connection: Deno.UnixConn;
  #rest = "";
  #closed = false;

  private constructor(connection: Deno.UnixConn) {
    this.connection = connection;
  }

  static async connect(path: string): Promise<LineClient> {
    return new LineClient(await Deno.connect({ transport: "unix", path }));
  }

  async write(text: string | Uint8Array): Promise<void> {
    const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
    for (let at = 0; at < bytes.length;) at += await this.connection.write(bytes.subarray(at));
  }

  /** The next answer; null at the end of input. */
  async answer(): Promise<Record<string, unknown> | null> {
    for (;;) {
      const end = this.#rest.indexOf("\n");
      if (end >= 0) {
        const line = this.#rest.slice(0, end);
        this.#rest = this.#rest.slice(end + 1);
        return JSON.parse(line) as Record<string, unknown>;
      }
      const bytes = new Uint8Array(65_536);
      const count = await this.connection.read(bytes);
      if (count === null) return null;
      this.#rest += new TextDecoder().decode(bytes.subarray(0, count));
    }
  }

  /** Sends one request and returns its answer. */
  async ask(request: unknown): Promise<Record<string, unknown> | null> {
    await this.write(`${JSON.stringify(request)}\n`);
    return await this.answer();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.connection.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }
}

/** A store in `folder`. */
export function openStore(folder: string, more: Partial<StoreOptions> = {}): Promise<CheckpointStore> {
  return CheckpointStore.open({
    folder,
    baseName: "online",
    nFeatures: 3,
    producerVersion: "0",
    readOnly: false,
    clock: systemClock,
    random: seededRandom(5),
    log: new TestLog(),
    ...more,
  });
}

/** A loader on `store` with its own counters. */
export function newLoader(store: CheckpointStore, log: TrainingLog = new TestLog(), metrics = new TrainingMetrics()) {
  return { loader: new VersionLoader(store, { nFeatures: 3, clock: systemClock, log, metrics }), metrics };
}

/** Parameters of a small model; another seed gives other ones. */
export function someParams(seed: number, nFeatures = 3): Params {
  return Params.random(nFeatures, seededRandom(seed));
}

/** A model whose score is `bias` for every row. */
export function constantModel(bias: number, nFeatures = 3): Params {
  const params = new Params(nFeatures);
  params.b1[0] = bias;
  return params;
}

/** A model whose score is the sum of the (not negative) features times `slope`, plus `bias`. */
export function sumModel(slope: number, bias: number, nFeatures = 3): Params {
  const params = constantModel(bias, nFeatures);
  params.w0.fill(1, 0, nFeatures);
  params.w1[0] = slope;
  return params;
}

/** Feature rows uniform in [0, 1) and scores linear in them, about 50. */
export class LinearData {
  readonly nFeatures: number;
  readonly #random = seededRandom(99);
  readonly #weights: number[];

  constructor(nFeatures: number) {
    this.nFeatures = nFeatures;
    this.#weights = Array.from({ length: nFeatures }, () => 10 * this.#random());
  }

  row(): number[] {
    return Array.from({ length: this.nFeatures }, () => this.#random());
  }

  score(row: readonly number[]): number {
    return row.reduce((sum, value, i) => sum + (value - 0.5) * (this.#weights[i] as number), 50);
  }

  /** Text of a fixtures file with `count` pairs. */
  fixtures(count: number): string {
    const pairs = Array.from({ length: count }, (_, i) => {
      const features = this.row();
      return { id: `pair ${i}`, features, score: this.score(features) };
    });
    return JSON.stringify({ version: 1, n_features: this.nFeatures, pairs });
  }
}

/**
 * Makes a symbolic link by way of a child process: making one takes unscoped permissions, which the tests do not have.
 */
export async function makeSymlink(target: string, path: string): Promise<void> {
  const code = `Deno.symlinkSync(${JSON.stringify(target)}, ${JSON.stringify(path)})`;
  const { success, stderr } = await new Deno.Command(Deno.execPath(), { args: ["eval", "--quiet", code] }).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
}
