/** What the consumer counts; telemetry implements it with pre-bound counters, so that a call costs next to nothing. */
import type { SettleReason } from "../dispatch/delivery.ts";

/** Which pull loop a message came through. */
export type LaneKind = "pool" | "direct";

/** Receives the consumer's events (spec/queue.md 5 and 6, spec/health-telemetry.md 7). */
export interface ConsumerMetrics {
  /** A message arrived; `attempt` is the broker's delivery count, 0 when the message did not tell. */
  received(lane: LaneKind, attempt: number): void;
  /** ACK, NAK or progress: handed to the connection, or failed. */
  settled(
    lane: LaneKind,
    operation: "ack" | "nak" | "progress",
    outcome: "success" | "error",
    reason: SettleReason | "none",
  ): void;
  /** A pull request failed (`transport`), or the pull ended and is opened anew (`stream_ended`). */
  pullFailed(lane: LaneKind, operation: "fetch" | "stream", reason: "transport" | "stream_ended"): void;
  /** State of a pull loop; see {@link PullState}. */
  pullState(lane: LaneKind, state: PullState): void;
}

/**
 * What a pull loop is doing: `pulling` (asking for work, or working on all it may hold), `paused` (admission or memory says no),
 * `stalled` (the broker does not answer; the loop asks again), `rebuilding` (the consumer is looked up or made anew), `refused`
 * (the broker refuses the request for want of rights), `stopped`.
 */
export type PullState = "pulling" | "paused" | "stalled" | "rebuilding" | "refused" | "stopped";

/** Counts nothing. */
export const noConsumerMetrics: ConsumerMetrics = {
  received: () => {},
  settled: () => {},
  pullFailed: () => {},
  pullState: () => {},
};
