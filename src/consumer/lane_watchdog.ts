/**
 * When a pull loop that has credit hears nothing, something is wrong that no error told of: the server holding the request is gone
 * or hangs, the consumer was made anew, a status was lost. This decides what to try, mildest first. Pure.
 */

/** What is known about a lane at one moment; times in clock milliseconds. */
export interface LaneObservation {
  readonly now: number;
  /** Last message or status of any kind. */
  readonly heardAt: number;
  /** Last pull request. */
  readonly askedAt: number;
  readonly credit: number;
  /** Interval of the heartbeats that the broker was asked for. */
  readonly heartbeatMs: number;
  /** Steps tried since something was heard last. */
  readonly stepsTried: number;
}

/** What to try. */
export type HealingStep =
  | "none"
  /** Ask again: the request was lost. */
  | "repull"
  /** Look the consumer up, correct it or make it anew. */
  | "rebuild"
  /** Make a new connection: this server does not do its work. */
  | "reconnect";

/** Heartbeats missed in a row before something is tried. */
const MISSED_HEARTBEATS = 3;

const STEPS: readonly HealingStep[] = ["repull", "rebuild", "reconnect"];

/** The next step for a lane. */
export function nextStep(seen: LaneObservation): HealingStep {
  if (seen.credit === 0) return "none";
  const silentFor = seen.now - Math.max(seen.heardAt, seen.askedAt);
  if (silentFor < MISSED_HEARTBEATS * seen.heartbeatMs) return "none";
  return STEPS[Math.min(seen.stepsTried, STEPS.length - 1)] ?? "reconnect";
}

const LONGEST_HEARTBEAT_MS = 1_250;
const SHORTEST_HEARTBEAT_MS = 100;

/** The heartbeat to ask for with a request of this expiry; the broker takes at most half of the expiry. */
export function heartbeatFor(expiresMs: number): number {
  return Math.max(SHORTEST_HEARTBEAT_MS, Math.min(LONGEST_HEARTBEAT_MS, Math.floor(expiresMs / 4)));
}
