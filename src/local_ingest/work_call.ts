/**
 * One `publish_work` call (spec/local-ingest.md 6): its items go the way of all work, each has a slot for its result, and when every
 * slot is filled the call is answered. What the broker does elsewhere, redelivery, happens here.
 */
import type { LeaveReason, SettlementLedger } from "../dispatch/delivery.ts";
import type { Arrival, WorkIntake } from "../dispatch/intake.ts";
import { LOCAL_GENERATE_UNSUPPORTED, type Refusal } from "../dispatch/refusals.ts";
import type { ResultSender } from "../dispatch/result_sender.ts";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";
import type { IngestBody } from "../wire/ingest/request.ts";
import type { WorkItem } from "../wire/work_item.ts";
import { afterNak, retriesExhausted } from "./in_lane_retry.ts";
import { LaterAttempts } from "./later_attempts.ts";
import { type AttemptOwner, LocalDelivery } from "./local_delivery.ts";
import { poolRefusal } from "./pool_admission.ts";
import { workTimeoutMs } from "./validation.ts";

const logger = logFor("local_ingest");

/** What a call works with. */
export interface WorkCallParts {
  /** Pool of this worker's lane. */
  readonly pool: string;
  readonly intake: WorkIntake;
  readonly sender: Pick<ResultSender, "refusal">;
  readonly ledger: SettlementLedger;
  readonly clock: Clock;
}

/** How a call ended: with one result per item in the order of the items, or as a whole with an error text. */
export type WorkCallOutcome =
  | { readonly kind: "results"; readonly results: readonly Uint8Array[] }
  | { readonly kind: "failed"; readonly error: string };

const CANCELLED: WorkCallOutcome = { kind: "failed", error: "cancelled" };
/** Stands for an attempt that was acknowledged without a result, which no path of dispatch should do here. */
const NO_RESULT: Refusal = { code: "internal_error", message: "the item was settled without a result" };

/** Runs the items of one call. */
export class WorkCall implements AttemptOwner {
  readonly #parts: WorkCallParts;
  readonly #body: IngestBody;
  readonly #items: readonly WorkItem[];
  readonly #results: (Uint8Array | undefined)[];
  readonly #outcome = Promise.withResolvers<WorkCallOutcome>();
  readonly #quiet = Promise.withResolvers<void>();
  readonly #later: LaterAttempts;
  /** The call has its outcome: nothing is attempted again. */
  #isOver = false;
  #missing: number;
  /** What uses the bytes of the request: the call, its attempts, waits before an attempt. */
  #users = 1;

  /** @param items the validated items of the body */
  constructor(parts: WorkCallParts, body: IngestBody, items: readonly WorkItem[]) {
    this.#parts = parts;
    this.#body = body;
    this.#items = items;
    this.#missing = items.length;
    this.#results = new Array(items.length).fill(undefined);
    this.#later = new LaterAttempts(parts.clock, (index, attempt) => this.#attemptAgain(index, attempt));
  }

  /** Resolves when nothing uses the bytes of the request any more: with the outcome, or later than that after a deadline. */
  get quiet(): Promise<void> {
    return this.#quiet.promise;
  }

  /**
   * Dispatches the items and waits for their results.
   *
   * @param signal aborted at shutdown and when the connection has gone: the call ends as `cancelled`, dispatched work still runs
   */
  async run(signal: AbortSignal): Promise<WorkCallOutcome> {
    const onAbort = () => this.#end(CANCELLED);
    signal.addEventListener("abort", onAbort, { once: true });
    const timeoutMs = workTimeoutMs(this.#body);
    const cancelTimer = this.#parts.clock.after(timeoutMs, () => {
      const error = `TimeoutError: publish_work timed out after ${timeoutMs}ms (lane '${this.#body.lane}')`;
      this.#end({ kind: "failed", error });
    });
    try {
      if (signal.aborted) onAbort();
      else this.#dispatch();
      return await this.#outcome.promise;
    } finally {
      cancelTimer();
      signal.removeEventListener("abort", onAbort);
      this.#leaveBytes();
    }
  }

  result(index: number, payload: Uint8Array): void {
    if (this.#isOver || this.#results[index] !== undefined) return;
    this.#results[index] = payload;
    if (--this.#missing > 0) return;
    this.#end({ kind: "results", results: this.#results.filter((result) => result !== undefined) });
  }

  acked(index: number): void {
    if (!this.#isSettled(index)) this.#refuse(index, NO_RESULT);
    this.#leaveBytes();
  }

  naked(index: number, attempt: number, delayMs: number): void {
    if (!this.#isSettled(index)) {
      const decision = afterNak(attempt - 1, delayMs);
      if (decision.kind === "again") {
        this.#users++;
        this.#later.add(index, attempt + 1, decision.afterMs);
      } else this.#refuse(index, retriesExhausted(this.#items[index]?.workItemId ?? ""));
    }
    this.#leaveBytes();
  }

  left(index: number, attempt: number, reason: LeaveReason): void {
    if (reason === "shutdown") {
      this.#end(CANCELLED);
      this.#leaveBytes();
    } else {
      // A broker would deliver it again after its ack wait.
      this.naked(index, attempt, IngestLimits.retryDelayCapMs);
    }
  }

  #isSettled(index: number): boolean {
    return this.#isOver || this.#results[index] !== undefined;
  }

  #dispatch(): void {
    const arrivals: Arrival[] = [];
    for (const [index, work] of this.#items.entries()) {
      const refusal = this.#refusalOf(work);
      if (refusal !== undefined) {
        this.#refuse(index, refusal);
        continue;
      }
      // A local caller puts no chunks together.
      work.acceptsResultChunks = false;
      arrivals.push(this.#attempt(index, work, 1));
    }
    // Not waited for: the answer depends on the settlements, and the deadline holds whatever intake is doing.
    if (arrivals.length > 0) this.#parts.intake.accept(arrivals);
  }

  #refusalOf(work: WorkItem): Refusal | undefined {
    const message = poolRefusal(this.#parts.pool, this.#body.admissionPool, work.admissionPool);
    if (message !== undefined) return { code: "pool_admission_rejected", message };
    return work.operation === "generate" ? LOCAL_GENERATE_UNSUPPORTED : undefined;
  }

  #attempt(index: number, work: WorkItem, attempt: number): Arrival {
    this.#users++;
    return { delivery: new LocalDelivery(this, index, attempt, this.#parts.ledger), work };
  }

  #attemptAgain(index: number, attempt: number): void {
    const work = this.#items[index];
    if (work !== undefined) this.#parts.intake.accept([this.#attempt(index, work, attempt)]);
    this.#leaveBytes();
  }

  /** Makes an error the result of an item: an attempt that ends here. */
  async #refuse(index: number, refusal: Refusal): Promise<void> {
    const work = this.#items[index];
    if (work === undefined) return;
    const { delivery } = this.#attempt(index, work, 1);
    try {
      await this.#parts.sender.refusal(delivery, work, refusal);
      if (!this.#isSettled(index)) throw new Error("nothing was written");
    } catch (thrown) {
      logger.error("no result could be made for {item}: {error}", { item: work.workItemId, error: errorText(thrown) });
      this.#end({ kind: "failed", error: `EncodeError: results encode failed: ${errorText(thrown)}` });
    }
    delivery.ack("completed");
  }

  #end(outcome: WorkCallOutcome): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#leaveBytes(this.#later.drop());
    this.#outcome.resolve(outcome);
  }

  #leaveBytes(users = 1): void {
    this.#users -= users;
    if (this.#users === 0) this.#quiet.resolve();
  }
}
