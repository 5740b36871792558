/**
 * One optimiser step of the online trainer: forward, backward, clip, warm-up, SGD with momentum and decay, EMA
 * (online-training.md, section 2.3). The step allocates nothing; everything it needs is made with the optimiser.
 *
 * A step runs in slices: {@link SgdEma.begin}, then {@link SgdEma.advance} until it says that it is done. A small model
 * finishes in the first slice; a wide one lets the event loop breathe in between. The parameters change with the last
 * slice, and not at all when a number is not finite (section 2.7).
 */
import { TrainingError } from "./errors.ts";
import { type Kernels, makeKernels } from "./kernels.ts";
import { HIDDEN, parameterCount, Params } from "./params.ts";

/** Constants of the optimiser. */
export interface SgdConfig {
  /** Learning rate after the warm-up. */
  readonly learningRate: number;
  readonly momentum: number;
  readonly weightDecay: number;
  /** Largest norm of the gradient over all tensors. */
  readonly maxGradNorm: number;
  /** Steps over which the rate grows linearly to the learning rate; 0: none. */
  readonly warmupSteps: number;
  /** β of the exponential moving average. */
  readonly emaDecay: number;
}

/** What the executable of the reference uses; only the rate and β can be set (section 2.3). */
export const SGD_DEFAULTS: SgdConfig = {
  learningRate: 1e-4,
  momentum: 0.9,
  weightDecay: 1e-5,
  maxGradNorm: 1,
  warmupSteps: 100,
  emaDecay: 0.999,
};

/** Learning rate of the step number `step`, counted from 1 (vectors: warmup_lr.json). */
export function warmupRate(learningRate: number, warmupSteps: number, step: number): number {
  return step <= warmupSteps ? learningRate * step / warmupSteps : learningRate;
}

/** Text of the failure when a loss, a norm or a parameter is not a finite number (section 2.7). */
export const NON_FINITE = "non-finite loss or gradient";

type Phase = "idle" | "forward" | "update";

/** Float32 arrays in one memory, at multiples of 16 bytes. */
class Arena {
  readonly memory: WebAssembly.Memory;
  #end = 0;

  constructor(bytes: number) {
    // A page has 64 KiB.
    this.memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / 65_536) + 1 });
  }

  array(length: number): Float32Array<ArrayBuffer> {
    const array = new Float32Array(this.memory.buffer as ArrayBuffer, this.#end, length);
    this.#end += Arena.size(length);
    return array;
  }

  static size(length: number): number {
    return Math.ceil(length / 4) * 16;
  }
}

/** The live parameters, their EMA shadow, the momentum, and the working memory of one batch. */
export class SgdEma {
  readonly nFeatures: number;
  readonly maxRows: number;
  readonly config: SgdConfig;
  /** Feature rows of the batch, row-major [maxRows, N]; filled by the caller before {@link begin}. */
  readonly features: Float32Array<ArrayBuffer>;
  /** Targets of the batch, [maxRows]; filled by the caller before {@link begin}. */
  readonly targets: Float32Array<ArrayBuffer>;
  /** Predictions of the last batch, before its update. */
  readonly predictions: Float32Array<ArrayBuffer>;
  /** Gradient of the last batch, before clipping. */
  readonly grads: Params;

  readonly #kernels: Kernels;
  #live: Params;
  #nextLive: Params;
  readonly #ema: Params;
  #velocity: Params;
  #nextVelocity: Params;
  readonly #hidden: Float32Array<ArrayBuffer>;

  #phase: Phase = "idle";
  #rows = 0;
  #cursor = 0;
  #squares = 0;
  #steps = 0;
  #loss = NaN;
  #gradNorm = NaN;
  #clip = NaN;
  #rate: number;

  /**
   * @param initial the seed; copied to the live parameters and to the EMA alike, momentum starts at zero.
   * @param maxRows rows of the largest batch.
   */
  constructor(initial: Params, maxRows: number, config: SgdConfig) {
    const n = initial.nFeatures, count = parameterCount(n);
    const lengths = [count, count, count, count, count, count, maxRows * n, maxRows * HIDDEN, maxRows, maxRows];
    const arena = new Arena(lengths.reduce((sum, length) => sum + Arena.size(length), 0));
    const params = () => new Params(n, arena.array(count));
    this.nFeatures = n;
    this.maxRows = maxRows;
    this.config = config;
    this.#kernels = makeKernels(arena.memory);
    this.#live = params();
    this.#nextLive = params();
    this.#ema = params();
    this.#velocity = params();
    this.#nextVelocity = params();
    this.grads = params();
    this.features = arena.array(maxRows * n);
    this.#hidden = arena.array(maxRows * HIDDEN);
    this.predictions = arena.array(maxRows);
    this.targets = arena.array(maxRows);
    this.#live.flat.set(initial.flat);
    this.#ema.flat.set(initial.flat);
    this.#rate = config.learningRate;
  }

  /** Successful steps since the start. */
  get steps(): number {
    return this.#steps;
  }
  /** Mean squared error of the last batch, before its update. */
  get loss(): number {
    return this.#loss;
  }
  /** Norm of the last gradient, before clipping. */
  get gradNorm(): number {
    return this.#gradNorm;
  }
  /** Factor that the last gradient was multiplied by, at most 1. */
  get clipFactor(): number {
    return this.#clip;
  }
  /** Learning rate of the last step. */
  get rate(): number {
    return this.#rate;
  }
  /** The live parameters. The object changes identity with every step; do not keep it. */
  get live(): Params {
    return this.#live;
  }
  /** The EMA shadow, which checkpoints are made of. Changes in place; copy it before another step may run. */
  get ema(): Params {
    return this.#ema;
  }

  /**
   * Starts a step over the first `rows` rows of {@link features} and {@link targets}.
   *
   * @throws TrainingError `step_failed` when a step is under way or the number of rows does not fit.
   */
  begin(rows: number): void {
    if (this.#phase !== "idle") throw new TrainingError("step_failed", "a training step is already under way");
    if (rows < 1 || rows > this.maxRows) {
      throw new TrainingError("step_failed", `a batch must have 1 to ${this.maxRows} rows, got ${rows}`);
    }
    this.#phase = "forward";
    this.#rows = rows;
    this.#cursor = 0;
    this.#squares = 0;
    this.grads.flat.fill(0);
  }

  /**
   * Goes on with the step for about `budget` multiplications.
   *
   * @returns true when the step is done and applied.
   * @throws TrainingError `step_failed` ({@link NON_FINITE}): nothing was applied and a new step may begin.
   */
  advance(budget: number): boolean {
    if (this.#phase === "idle") throw new TrainingError("step_failed", "no training step is under way");
    let left = budget;
    if (this.#phase === "forward") left = this.#advanceRows(left);
    if (this.#phase !== "update") return false;
    return this.#advanceUpdate(left);
  }

  /** A whole step at once. */
  step(rows: number): void {
    this.begin(rows);
    while (!this.advance(Number.POSITIVE_INFINITY));
  }

  #advanceRows(budget: number): number {
    const perRow = this.nFeatures * HIDDEN * 2;
    const from = this.#cursor;
    const to = Math.min(this.#rows, from + Math.max(1, Math.floor(budget / perRow)));
    const { byteOffset: x } = this.features, nBytes = 4 * this.nFeatures;
    const rowX = x + from * nBytes, hidden = this.#hidden.byteOffset + 4 * HIDDEN * from;
    const out = this.predictions.byteOffset + 4 * from, targets = this.targets.byteOffset + 4 * from;
    const { w0, b0, w1 } = this.#live, { w0: gw0, b0: gb0, w1: gw1 } = this.grads;
    const rows = to - from, kernels = this.#kernels;
    kernels.forward(rowX, w0.byteOffset, b0.byteOffset, w1.byteOffset, hidden, out, rows, nBytes);
    this.#squares += kernels.backward(
      rowX,
      hidden,
      out,
      targets,
      w1.byteOffset,
      gw0.byteOffset,
      gb0.byteOffset,
      gw1.byteOffset,
      rows,
      nBytes,
      2 / this.#rows,
    );
    this.#cursor = to;
    if (to < this.#rows) return 0;
    this.#finishGradient();
    return budget - rows * perRow;
  }

  #finishGradient(): void {
    const { byteOffset, byteLength } = this.grads.flat;
    const norm = Math.sqrt(this.#kernels.squares(byteOffset, byteLength));
    const loss = this.#squares / this.#rows;
    if (!Number.isFinite(norm) || !Number.isFinite(Math.fround(loss))) this.#fail();
    this.#loss = loss;
    this.#gradNorm = norm;
    this.#clip = Math.min(1, this.config.maxGradNorm / (norm + 1e-6));
    this.#rate = warmupRate(this.config.learningRate, this.config.warmupSteps, this.#steps + 1);
    this.#cursor = 0;
    this.#phase = "update";
  }

  /** Works out the new parameters and the new momentum beside the old ones; the swap at the end is the commit. */
  #advanceUpdate(budget: number): boolean {
    const total = this.#live.flat.length;
    const from = this.#cursor;
    const to = Math.min(total, from + Math.max(4096, Math.floor(budget / 4)));
    const at = ({ flat }: Params) => flat.byteOffset + 4 * from;
    const witness = this.#kernels.update(
      at(this.#live),
      at(this.grads),
      at(this.#velocity),
      at(this.#nextLive),
      at(this.#nextVelocity),
      4 * (to - from),
      this.#clip,
      this.config.weightDecay,
      this.config.momentum,
      this.#rate,
    );
    if (Number.isNaN(witness)) this.#fail();
    this.#cursor = to;
    if (to < total) return false;
    const live = this.#live, velocity = this.#velocity;
    this.#live = this.#nextLive;
    this.#nextLive = live;
    this.#velocity = this.#nextVelocity;
    this.#nextVelocity = velocity;
    this.#steps++;
    const { emaDecay } = this.config, { byteOffset, byteLength } = this.#ema.flat;
    this.#kernels.average(byteOffset, this.#live.flat.byteOffset, byteLength, emaDecay, 1 - emaDecay);
    this.#phase = "idle";
    return true;
  }

  #fail(): never {
    this.#phase = "idle";
    throw new TrainingError("step_failed", NON_FINITE);
  }
}
