/** Failures that repeat (heartbeat, health message, retry) are logged now and then, not each time (health-telemetry.md 9). */

/** Whether the `count`-th failure in a row is logged: the 1st, 5th, 30th and every 120th. */
export function isReported(count: number): boolean {
  return count === 1 || count === 5 || count === 30 || (count > 0 && count % 120 === 0);
}
