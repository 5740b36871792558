/** Limits and windows of batch forming (spec/scheduler.md 4). */
import { BatchConfigError } from "./errors.ts";

/** What the adaptive controller may move while the program runs. */
export interface BatchLimits {
  /** Longest time an item waits before its former is due, in milliseconds. */
  readonly maxBatchWaitMs: number;
  /** Largest cost of a batch of more than one item. */
  readonly maxBatchCost: number;
}

/** All limits of a former. */
export interface BatchConfig extends BatchLimits {
  /** Largest number of items in a batch. */
  readonly maxBatchRequests: number;
  /** A former is due when nothing has arrived for this long, in milliseconds ... */
  readonly coalesceMs: number;
  /** ... or for this share of `maxBatchWaitMs`, whichever is shorter. */
  readonly coalesceRatio: number;
}

/** Values that apply when nothing is set. */
export const DEFAULT_BATCH_CONFIG: BatchConfig = {
  maxBatchCost: 16384,
  maxBatchRequests: 12,
  maxBatchWaitMs: 15,
  coalesceMs: 5,
  coalesceRatio: 0.5,
};

/** How long nothing may arrive before a batch is due, in milliseconds. */
export function effectiveCoalesceMs(config: BatchConfig): number {
  return Math.min(config.coalesceMs, config.maxBatchWaitMs * config.coalesceRatio);
}

/**
 * Refuses values that the reference takes as given (a batch of no requests, a negative wait) but that nobody can mean.
 *
 * @throws BatchConfigError naming the first such field
 */
export function checkBatchConfig(config: BatchConfig): void {
  check("maxBatchRequests", config.maxBatchRequests, Number.isSafeInteger(config.maxBatchRequests), 1);
  check("maxBatchCost", config.maxBatchCost, Number.isSafeInteger(config.maxBatchCost), 1);
  check("maxBatchWaitMs", config.maxBatchWaitMs, Number.isFinite(config.maxBatchWaitMs), 0);
  check("coalesceMs", config.coalesceMs, Number.isFinite(config.coalesceMs), 0);
  check("coalesceRatio", config.coalesceRatio, Number.isFinite(config.coalesceRatio), 0);
}

function check(field: keyof BatchConfig, value: number, isKind: boolean, least: number): void {
  if (!isKind || value < least) {
    const kind = field === "maxBatchRequests" || field === "maxBatchCost" ? "a whole number" : "a finite number";
    throw new BatchConfigError(`${field} must be ${kind} of at least ${least}, got ${value}`);
  }
}
