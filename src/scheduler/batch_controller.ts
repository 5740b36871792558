/** The socket for the adaptive controller of a model (spec/scheduler.md 8). Without one the limits stay as configured. */
import type { BatchLimits } from "./batch_config.ts";

/** One completed wave, as `record_completion` of 8.4 sees it. */
export interface CompletedWave {
  /** Cost and number of items of the batch. */
  readonly batchCost: number;
  readonly batchSize: number;
  /** Cost cap in force before the step; the fill sample is `batchCost / costCap`. */
  readonly costCap: number;
  /** Median of the model's latency window, undefined while it has too few samples. */
  readonly latencyP50Ms: number | undefined;
}

/** Moves the limits of one model. */
export interface BatchController {
  /** Takes one inference time in milliseconds; of use only until it has calibrated itself. */
  recordInference(inferenceMs: number): void;
  /** Takes one completed wave. Returns the new limits, or undefined when nothing moves. */
  recordCompletion(wave: CompletedWave): BatchLimits | undefined;
}
