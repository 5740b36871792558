/** What one round of heartbeats means (health-telemetry.md 3). */

/** Answer of one backend child; `ok` is false when the call failed. */
export interface ChildAnswer {
  readonly ok: boolean;
  readonly ready: boolean;
}

/** Judgement on a round. */
export interface PingRound {
  /** At least one child is ready: the worker has a backend. */
  readonly successful: boolean;
  /** Number of ready children. */
  readonly readyChildren: number;
}

/** A child is ready if it answered, says so, and the pool is not quarantined. */
export function judgePingRound(answers: readonly ChildAnswer[], poolQuarantined: boolean): PingRound {
  const readyChildren = poolQuarantined ? 0 : answers.filter((answer) => answer.ok && answer.ready).length;
  return { successful: readyChildren > 0, readyChildren };
}
