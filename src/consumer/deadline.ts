/**
 * Work deadlines (spec/queue.md 2.4): what the deadline of an item means now, and how long its broker delivery may be kept alive
 * by progress. Pure; all times in seconds.
 */

/** Limits that decide whether a deadline is believed. */
export interface DeadlineLimits {
  /** Difference between the gateway's clock and ours that is forgiven. */
  readonly skewToleranceS: number;
  /** Longest time from publication to deadline that is believed. */
  readonly maxBudgetS: number;
}

/** What a deadline means at one moment. */
export type DeadlineStatus =
  | { readonly kind: "unbounded" }
  /** `seconds` are left. */
  | { readonly kind: "live"; readonly seconds: number }
  /** It passed `seconds` ago. */
  | { readonly kind: "expired"; readonly seconds: number };

const UNBOUNDED: DeadlineStatus = { kind: "unbounded" };

/**
 * Judges a deadline. It is believed when it and the publication time are finite and positive and the budget between them is
 * plausible; otherwise the item counts as having none.
 *
 * @param deadline Unix seconds on the gateway's clock, undefined when the item has none
 * @param timestamp Unix seconds of the publication
 * @param nowS Unix seconds on our clock
 */
export function deadlineStatus(
  deadline: number | undefined,
  timestamp: number,
  nowS: number,
  limits: DeadlineLimits,
): DeadlineStatus {
  if (deadline === undefined || !isPlausible(deadline, timestamp, limits.maxBudgetS)) return UNBOUNDED;
  const remaining = deadline + limits.skewToleranceS - nowS;
  if (remaining <= 0) return { kind: "expired", seconds: -remaining };
  return { kind: "live", seconds: Math.min(remaining, limits.maxBudgetS + limits.skewToleranceS) };
}

/** Whether deadline and publication time can be believed together. */
export function isPlausible(deadline: number, timestamp: number, maxBudgetS: number): boolean {
  if (!(Number.isFinite(deadline) && deadline > 0 && Number.isFinite(timestamp) && timestamp > 0)) return false;
  const budget = deadline - timestamp;
  return budget >= 0 && budget <= maxBudgetS;
}

/**
 * How long a delivery with this deadline is worth keeping alive, in seconds; undefined: not at all, or without such a limit.
 *
 * @param enforce whether expired items are dropped; when not, they may still run and get one more budget
 * @param maxHorizonS no horizon passes this: the life of a cancellation
 */
export function leaseHorizonS(
  status: DeadlineStatus,
  enforce: boolean,
  limits: DeadlineLimits,
  maxHorizonS: number,
): number | undefined {
  if (status.kind === "unbounded" || (status.kind === "expired" && enforce)) return undefined;
  const horizon = status.kind === "expired"
    ? limits.maxBudgetS - status.seconds
    : enforce
    ? status.seconds
    : status.seconds + limits.maxBudgetS;
  const capped = Math.min(horizon, maxHorizonS);
  return capped > 0 ? capped : undefined;
}
