/**
 * What is known about a batch at the moment it is dispatched, as a feature vector, and a predictor of its time made of the
 * trainer's loop (online-training.md, section 6.9; the producer in this product). Pure but for the scorer and the client
 * that are passed in; the dispatch side sees the interfaces alone.
 */
import type { FeedbackMessage } from "./feedback_message.ts";
import type { ServingModel } from "./scorer.ts";

/** Operations, in the order of their features. */
export const BATCH_OPERATIONS = ["encode", "score", "extract", "generate"] as const;
/** See {@link BATCH_OPERATIONS}. */
export type BatchOperation = typeof BATCH_OPERATIONS[number];

/** A batch that is about to be sent to the backend. */
export interface DispatchedBatch {
  readonly operation: BatchOperation;
  readonly modelId: string;
  readonly items: number;
  /** Sum of the items' costs, in the scheduler's unit (tokens). */
  readonly cost: number;
  /** Largest cost of an item. */
  readonly longest: number;
  /** What the backend computes when it pads: items × longest, in the same unit. */
  readonly paddedCost: number;
  /** Items that wait for the same model. */
  readonly queueDepth: number;
  /** Batches that the backend works on already. */
  readonly inFlight: number;
  /** Recent time of a batch of this model, in milliseconds; 0 when there was none. */
  readonly recentMs: number;
}

/** Sizes that are mapped to 1. The model has no normalisation of its own, so features must be of order one. */
export interface BatchScale {
  readonly items: number;
  readonly cost: number;
  readonly ms: number;
}

/**
 * The sizes that this program uses. They are no settings: versions and fixtures hold for one scale alone. Times from about 1 ms to
 * some seconds are learnt well.
 */
export const BATCH_SCALE: BatchScale = { items: 64, cost: 16_384, ms: 100 };

/** Places that models share, and how many of them each one has. */
export const MODEL_SLOTS = 16;
/** See {@link MODEL_SLOTS}. */
export const SLOTS_OF_MODEL = 3;

const SIZES = ["items", "cost", "longest", "padded_cost", "queue_depth", "in_flight", "recent_ms"] as const;

/** Name of every feature, in order. */
export const BATCH_FEATURE_NAMES: readonly string[] = [
  ...BATCH_OPERATIONS.map((operation) => `operation_${operation}`),
  ...SIZES,
  ...Array.from({ length: MODEL_SLOTS }, (_, slot) => `model_slot_${slot}`),
  // The time of a unit of cost differs by model, so each place gets a slope of its own.
  ...Array.from({ length: MODEL_SLOTS }, (_, slot) => `padded_cost_slot_${slot}`),
];

/** Width of the vector: the trainer's `VMAFX_SIDECAR_N_FEATURES`. */
export const BATCH_FEATURES = BATCH_FEATURE_NAMES.length;

/** A queue may be thousands deep; beyond this its length says no more. */
const LARGEST_LOAD = 4;

/** The score of 1 × {@link BatchScale.ms}: scores are of the size that the trainer was made for. */
const SCORE_AT_SCALE = 100;

/**
 * The places of a model, {@link SLOTS_OF_MODEL} different ones. Its name alone chooses them: they are the same after a restart and in
 * every process on the same trainer, whatever other models there are. Two models seldom have more than one in common, and what each
 * takes is the sum over its places.
 */
export function modelSlots(modelId: string): readonly number[] {
  const slots: number[] = [];
  for (let hash = hashOf(modelId); slots.length < SLOTS_OF_MODEL; hash = Math.floor(hash / MODEL_SLOTS)) {
    let slot = hash % MODEL_SLOTS;
    while (slots.includes(slot)) slot = (slot + 1) % MODEL_SLOTS;
    slots.push(slot);
  }
  return slots;
}

/** FNV-1a over the UTF-16 code units, mixed once more so that its low digits depend on all of it. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}

/** Writes the features of `batch` into `into`, which has {@link BATCH_FEATURES} places. */
export function writeBatchFeatures(
  batch: DispatchedBatch,
  scale: BatchScale,
  into: Float32Array,
): void {
  into.fill(0);
  into[BATCH_OPERATIONS.indexOf(batch.operation)] = 1;
  let at = BATCH_OPERATIONS.length;
  into[at++] = batch.items / scale.items;
  into[at++] = batch.cost / scale.cost;
  into[at++] = batch.longest / scale.cost;
  const padded = batch.paddedCost / scale.cost;
  into[at++] = padded;
  into[at++] = Math.min(batch.queueDepth / scale.items, LARGEST_LOAD);
  into[at++] = Math.min(batch.inFlight / 16, LARGEST_LOAD);
  into[at++] = batch.recentMs / scale.ms;
  for (const slot of modelSlots(batch.modelId)) {
    into[at + slot] = 1;
    into[at + MODEL_SLOTS + slot] = padded;
  }
}

/** The score that stands for a time. */
export function scoreOfMs(ms: number, scale: BatchScale): number {
  return SCORE_AT_SCALE * ms / scale.ms;
}

/** What the predictor asks; {@link Scorer} is one. */
export interface RowScorer {
  scoreOne(features: Float32Array, into: Float32Array): ServingModel | undefined;
}

/** Where measurements go; {@link FeedbackClient} is one. */
export interface FeedbackSink {
  send(message: FeedbackMessage): boolean;
}

/** How well predictions were, over the newest {@link ERROR_WINDOW} of them that were measured. */
export interface PredictionError {
  /** All predictions that were measured. */
  readonly count: number;
  /** Mean of |predicted − measured| ÷ measured; NaN before the first. */
  readonly relative: number;
  /** Mean of |predicted − measured| in milliseconds; NaN before the first. */
  readonly absoluteMs: number;
}

/** Measurements that the published error is taken over. */
export const ERROR_WINDOW = 200;

/** A predictor that asks the serving model and feeds the trainer. */
export class LearnedBatchTime {
  readonly #scorer: RowScorer;
  readonly #sink: FeedbackSink;
  readonly #scale: BatchScale;
  readonly #features = new Float32Array(BATCH_FEATURES);
  readonly #score = new Float32Array(1);
  readonly #relative = new SlidingMean();
  readonly #absoluteMs = new SlidingMean();
  #sent = 0;

  constructor(scorer: RowScorer, sink: FeedbackSink, scale: BatchScale) {
    this.#scorer = scorer;
    this.#sink = sink;
    this.#scale = scale;
  }

  /** The error of the newest predictions, to be published beside the measured times. */
  get error(): PredictionError {
    const { count, mean: relative } = this.#relative;
    return { count, relative, absoluteMs: this.#absoluteMs.mean };
  }

  /** Expected time of the batch in milliseconds; undefined while nothing can be said. Takes microseconds, never throws. */
  predictMs(batch: DispatchedBatch): number | undefined {
    if (!this.#describe(batch)) return undefined;
    if (this.#scorer.scoreOne(this.#features, this.#score) === undefined) return undefined;
    const ms = (this.#score[0] as number) * this.#scale.ms / SCORE_AT_SCALE;
    // A time that is not positive is no prediction: a model that has not learnt enough says so.
    return ms > 0 ? ms : undefined;
  }

  /** Tells the measured time of a batch and what had been predicted for it. Never blocks, never throws. */
  observe(batch: DispatchedBatch, measuredMs: number, predictedMs: number | undefined): void {
    if (!(measuredMs > 0) || !Number.isFinite(measuredMs) || !this.#describe(batch)) return;
    if (predictedMs !== undefined) {
      const error = Math.abs(predictedMs - measuredMs);
      this.#relative.add(error / measuredMs);
      this.#absoluteMs.add(error);
    }
    this.#sink.send({
      jobId: `batch-${++this.#sent}`,
      features: this.#features.slice(),
      trueScore: scoreOfMs(measuredMs, this.#scale),
    });
  }

  /** Writes the features down; false when one of them is no number. */
  #describe(batch: DispatchedBatch): boolean {
    writeBatchFeatures(batch, this.#scale, this.#features);
    return this.#features.every(Number.isFinite);
  }
}

/** The mean of the newest {@link ERROR_WINDOW} values. */
class SlidingMean {
  readonly #values = new Float64Array(ERROR_WINDOW);
  #count = 0;
  #sum = 0;

  /** Values so far, those that have left the window included. */
  get count(): number {
    return this.#count;
  }

  get mean(): number {
    return this.#count === 0 ? NaN : this.#sum / Math.min(this.#count, ERROR_WINDOW);
  }

  add(value: number): void {
    const at = this.#count++ % ERROR_WINDOW;
    this.#sum += value - (this.#values[at] as number);
    this.#values[at] = value;
    // Rounding does not pile up: once a round the sum is made anew.
    if (at === ERROR_WINDOW - 1) this.#sum = this.#values.reduce((sum, one) => sum + one, 0);
  }
}
