/**
 * One optimiser step of the online trainer: forward, backward, clip, warm-up, SGD with momentum and decay, EMA
 * (online-training.md, section 2.3). The step allocates nothing; everything it needs is made with the optimiser.
 *
 * A step runs in slices: {@link SgdEma.begin}, then {@link SgdEma.advance} until it says that it is done. A small model
 * finishes in the first slice; a wide one lets the event loop breathe in between. Nothing that a reader can see changes
 * before the last slice, and nothing at all when a number is not finite (section 2.7).
 */
import { HIDDEN, Params } from "./params.ts";
import { backwardRows, forwardRows } from "./network.ts";
import { TrainingError } from "./errors.ts";

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

/** The live parameters, their EMA shadow, the momentum, and the working memory of one batch. */
export class SgdEma {
  readonly nFeatures: number;
  readonly maxRows: number;
  readonly config: SgdConfig;
  /** Feature rows of the batch, row-major [maxRows, N]; filled by the caller before {@link begin}. */
  readonly features: Float32Array<ArrayBuffer>;
  /** Targets of the batch, [maxRows]; filled by the caller before {@link begin}. */
  readonly targets: Float32Array<ArrayBuffer>;

  #live: Params;
  #nextLive: Params;
  readonly #ema: Params;
  #velocity: Float32Array<ArrayBuffer>;
  #nextVelocity: Float32Array<ArrayBuffer>;
  readonly #grads: Params;
  readonly #hidden: Float32Array<ArrayBuffer>;
  readonly #predictions: Float32Array<ArrayBuffer>;

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
    const n = initial.nFeatures;
    this.nFeatures = n;
    this.maxRows = maxRows;
    this.config = config;
    this.features = new Float32Array(maxRows * n);
    this.targets = new Float32Array(maxRows);
    this.#live = initial.clone();
    this.#nextLive = new Params(n);
    this.#ema = initial.clone();
    this.#velocity = new Float32Array(initial.flat.length);
    this.#nextVelocity = new Float32Array(initial.flat.length);
    this.#grads = new Params(n);
    this.#hidden = new Float32Array(maxRows * HIDDEN);
    this.#predictions = new Float32Array(maxRows);
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
  /** The EMA shadow, which checkpoints are made of. Changes in place; copy it before awaiting. */
  get ema(): Params {
    return this.#ema;
  }

  /** Multiplications of one whole step over `rows` rows, roughly; for deciding how to slice. */
  costOf(rows: number): number {
    return rows * this.nFeatures * HIDDEN * 2 + this.#ema.flat.length * 4;
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
    this.#grads.flat.fill(0);
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
    forwardRows(this.#live, this.features, from, to, this.#predictions, this.#hidden);
    this.#squares += backwardRows(
      this.#live,
      this.features,
      this.targets,
      this.#predictions,
      this.#hidden,
      from,
      to,
      this.#rows,
      this.#grads,
    );
    this.#cursor = to;
    if (to < this.#rows) return 0;
    this.#finishGradient();
    return budget - (to - from) * perRow;
  }

  #finishGradient(): void {
    const grads = this.#grads.flat;
    let squares = 0;
    for (let i = 0; i < grads.length; i++) squares += (grads[i] as number) * (grads[i] as number);
    const norm = Math.sqrt(squares);
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
    if (!this.#updateRange(from, to)) this.#fail();
    this.#cursor = to;
    if (to < total) return false;
    [this.#live, this.#nextLive] = [this.#nextLive, this.#live];
    [this.#velocity, this.#nextVelocity] = [this.#nextVelocity, this.#velocity];
    this.#steps++;
    this.#averageInto(this.#ema.flat, this.#live.flat);
    this.#phase = "idle";
    return true;
  }

  #updateRange(from: number, to: number): boolean {
    const { momentum, weightDecay } = this.config;
    const live = this.#live.flat, nextLive = this.#nextLive.flat, grads = this.#grads.flat;
    const velocity = this.#velocity, nextVelocity = this.#nextVelocity;
    const clip = this.#clip, rate = this.#rate;
    // A sum stays finite only when every term is; one test a range instead of one a number.
    let witness = 0;
    for (let i = from; i < to; i++) {
      const p = live[i] as number;
      // With the momentum zero at the start, 0.9·0 + d is d: the first step needs no case of its own.
      nextVelocity[i] = momentum * (velocity[i] as number) + (grads[i] as number) * clip + weightDecay * p;
      nextLive[i] = p - rate * (nextVelocity[i] as number);
      witness += Math.abs(nextLive[i] as number) + Math.abs(nextVelocity[i] as number);
    }
    return Number.isFinite(witness);
  }

  #averageInto(ema: Float32Array, live: Float32Array): void {
    const keep = this.config.emaDecay, take = 1 - keep;
    for (let i = 0; i < ema.length; i++) ema[i] = keep * (ema[i] as number) + take * (live[i] as number);
  }

  #fail(): never {
    this.#phase = "idle";
    throw new TrainingError("step_failed", NON_FINITE);
  }
}
