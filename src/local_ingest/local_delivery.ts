/** A delivery of local ingest: one attempt at one item of a `publish_work` call (spec/local-ingest.md 6). */
import {
  type Delivery,
  type LeaveReason,
  type Settled,
  settledBy,
  type SettlementLedger,
} from "../dispatch/delivery.ts";

/** The call whose item is attempted. Each attempt tells it exactly one of the last three. */
export interface AttemptOwner {
  /** A result for the item; only the first one counts. */
  result(index: number, payload: Uint8Array): void;
  acked(index: number): void;
  naked(index: number, attempt: number, delayMs: number): void;
  left(index: number, attempt: number, reason: LeaveReason): void;
}

/** Stands between dispatch and a call: settles once, and keeps the ledger. */
export class LocalDelivery implements Delivery {
  readonly number: number;
  readonly source = "local";
  readonly workerDirect = true;
  readonly attempt: number;
  /** Results of local ingest are never cut: the one answer that carries them has its own limit. */
  readonly maxPayload = Number.MAX_SAFE_INTEGER;
  readonly #owner: AttemptOwner;
  readonly #index: number;
  readonly #ledger: SettlementLedger;
  #settled = false;

  /**
   * @param index place of the item in its call
   * @param attempt counted from 1
   */
  constructor(owner: AttemptOwner, index: number, attempt: number, ledger: SettlementLedger) {
    this.#owner = owner;
    this.#index = index;
    this.#ledger = ledger;
    this.attempt = attempt;
    this.number = ledger.opened();
  }

  publish(_replySubject: string, payload: Uint8Array): void {
    this.#owner.result(this.#index, payload);
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }

  releasePermit(): void {}

  /** There is no broker whose patience could end. */
  progress(): boolean {
    return true;
  }

  ack(): Settled {
    if (this.#settle("ack")) this.#owner.acked(this.#index);
    return settledBy("ack");
  }

  nak(delayMs: number): Settled {
    if (this.#settle("nak")) this.#owner.naked(this.#index, this.attempt, delayMs);
    return settledBy("nak");
  }

  leave(reason: LeaveReason): Settled {
    if (this.#settle("left")) this.#owner.left(this.#index, this.attempt, reason);
    return settledBy("left");
  }

  /** @returns whether this is the first settlement; a second one is only counted */
  #settle(action: Settled["action"]): boolean {
    const first = !this.#settled;
    this.#settled = true;
    this.#ledger.settle(action, first);
    return first;
  }
}
