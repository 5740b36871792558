/** When a worker calls itself saturated (health-telemetry.md 5.3): on at 90 % of its capacity, off below 70 %. */

const ON_PERCENT = 90;
const OFF_PERCENT = 70;

/** Load of the worker at one moment. */
export interface Load {
  /** Items waiting in the scheduler. */
  readonly queueDepth: number;
  /** Batches at the backend. */
  readonly inflightBatches: number;
  readonly readySlots: number;
  /** `SIE_MAX_CONCURRENT_BATCHES`. */
  readonly maxConcurrentBatches: number;
}

/** Batches that the ready slots take. */
export function capacityOf(load: Pick<Load, "readySlots" | "maxConcurrentBatches">): number {
  return load.readySlots * Math.max(1, load.maxConcurrentBatches);
}

/** The new state after `before`. Without a ready slot nothing is saturated. */
export function isSaturated(before: boolean, load: Load): boolean {
  if (load.readySlots <= 0) return false;
  const used = load.queueDepth + load.inflightBatches;
  return used * 100 >= capacityOf(load) * (before ? OFF_PERCENT : ON_PERCENT);
}
