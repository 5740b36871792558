/**
 * How long a pull loop collects further messages after the first one of a fetch (spec/scheduler.md 10.1). The median it depends
 * on is that of a {@link LatencyWindow} over the successes of all models.
 */

/** Limits of the quantum, in milliseconds. */
export interface PullQuantumConfig {
  readonly minMs: number;
  /** Raised to `minMs` when below it. */
  readonly maxMs: number;
  /** Median latency to aim at: below it the loop may collect longer. */
  readonly targetP50Ms: number;
}

/** Values that apply when nothing is set. */
export const DEFAULT_PULL_QUANTUM: PullQuantumConfig = { minMs: 2, maxMs: 15, targetP50Ms: 50 };

const GAIN = 0.2;

/**
 * The quantum for the next fetch, in milliseconds.
 *
 * @param p50Ms observed median latency, undefined while it is not known: then the minimum
 * @param currentMs what the correction starts from; the pull loop leaves it at the minimum, so nothing accumulates
 */
export function pullQuantumMs(config: PullQuantumConfig, p50Ms: number | undefined, currentMs = config.minMs): number {
  if (p50Ms === undefined) return config.minMs;
  const most = Math.max(config.maxMs, config.minMs);
  return Math.max(config.minMs, Math.min(most, currentMs + (config.targetP50Ms - p50Ms) * GAIN));
}
