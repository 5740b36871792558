/**
 * The interface between a source of work and its execution (design.md, decision 1). JetStream and local ingest each implement it;
 * dispatch cannot tell them apart.
 *
 * A delivery ends in exactly one settlement. What types can do for that: the three settling methods alone make a {@link Settled},
 * and the one function that acts on the settlement table must return one, so no row of the table can forget to end the delivery.
 * What they cannot do, find a path that never gets there or gets there twice, is counted: a second settlement is refused, and in a
 * quiet process the {@link SettlementLedger} has nothing outstanding.
 */

/** Where a delivery came from. */
export type DeliverySource = "pool" | "direct" | "local";

/** Reason label of a settlement (spec/queue.md 5). */
export type SettleReason =
  | "completed"
  | "retry"
  | "deadline_exceeded"
  | "pool_not_assigned"
  | "model_unsupported"
  | "execution_authority_unavailable";

/** Why a delivery was deliberately left unsettled: the broker redelivers it after its ack wait. */
export type LeaveReason = "publish_failed" | "shutdown" | "crashed";

declare const settledBrand: unique symbol;

/** Proof that a delivery has been settled. It has no methods: nothing more can be done with the delivery. */
export interface Settled {
  readonly [settledBrand]: true;
  readonly action: "ack" | "nak" | "left";
}

/** Makes the proof; for implementations of {@link Delivery} only. */
export function settledBy(action: Settled["action"]): Settled {
  return PROOFS[action];
}

const PROOFS = {
  ack: Object.freeze({ action: "ack" }) as unknown as Settled,
  nak: Object.freeze({ action: "nak" }) as unknown as Settled,
  left: Object.freeze({ action: "left" }) as unknown as Settled,
};

/** One message of work, unsettled. */
export interface Delivery {
  /** Process-wide number of the delivery, for traces. */
  readonly number: number;
  readonly source: DeliverySource;
  /** Results say so to the gateway (spec/queue.md 3): true for a worker-direct subject and for local ingest. */
  readonly workerDirect: boolean;
  /** How often the broker has delivered the message, this time included; 1 where there is no broker. Never decides anything. */
  readonly attempt: number;
  /** Largest single message of a result in bytes, read anew at each use: it can change with the connection. */
  readonly maxPayload: number;

  /**
   * Hands a message for the caller to the transport, in order with other publications and the settlement. Resolves (or returns)
   * once it is handed over; throws or rejects when it cannot be, e.g. the connection is closed or the message is too large.
   * Local ingest keeps the one result, or writes the one stream event and resolves when it has been written (back-pressure).
   */
  publish(replySubject: string, payload: Uint8Array): void | Promise<void>;
  /** Resolves when the broker has taken everything published so far (the barrier after a chunked result). */
  flush(): Promise<void>;
  /**
   * Gives back the permit that the source holds for this delivery until it is settled: for work that waits for a model to load and
   * must not hold up the source (queue.md 5.2, parking). A second call, and any call on a source without permits, does nothing.
   */
  releasePermit(): void;
  /** Tells the broker that the work is alive. False when that failed; nothing else happens then. */
  progress(): boolean;

  /** Done: the message is removed. */
  ack(reason: SettleReason): Settled;
  /** Again after `delayMs` milliseconds. */
  nak(delayMs: number, reason: SettleReason): Settled;
  /** Deliberately unsettled. */
  leave(reason: LeaveReason): Settled;
}

/** Counts of all settlements of the process. In a quiet process `opened` equals the sum of the other three. */
export interface SettlementCounts {
  opened: number;
  acked: number;
  naked: number;
  left: number;
  /** Attempts to settle a second time: refused, always a bug. */
  refused: number;
}

/**
 * The ledger that every delivery of the process writes to: proves "exactly one settlement" by counting, and tells a trace.
 * Implementations of {@link Delivery} call {@link opened} once and {@link settle} at their settlement.
 */
export class SettlementLedger {
  readonly counts: SettlementCounts = { opened: 0, acked: 0, naked: 0, left: 0, refused: 0 };
  #next = 0;

  /** Registers a delivery and returns its number. */
  opened(): number {
    this.counts.opened++;
    return this.#next++;
  }

  /** Counts one settlement; `first` is false for a second one of the same delivery. */
  settle(action: Settled["action"], first: boolean): void {
    if (!first) this.counts.refused++;
    else if (action === "ack") this.counts.acked++;
    else if (action === "nak") this.counts.naked++;
    else this.counts.left++;
  }

  /** Deliveries that are not settled yet. */
  get outstanding(): number {
    const { opened, acked, naked, left } = this.counts;
    return opened - acked - naked - left;
  }
}
