import type { BatchOutcome, ItemOutcome } from "../wire/ipc/batch_outcome.ts";
import type { Delivery } from "./delivery.ts";
import type { Refusal } from "./refusals.ts";
import type { WorkUnit } from "./work_unit.ts";
import type { WorkItem } from "../wire/work_item.ts";

/** Whether a result was handed over; a reply subject that is empty needs none and counts as handed over. */
export type Sent = boolean;

/**
 * Makes WorkResults and publishes them (spec/queue.md 3 and 4); implemented by `publish/`. Answers at once on the ordinary path, and
 * with a promise where the transfer takes several messages and a flush, or the transport makes the caller wait.
 */
export interface ResultSender {
  /**
   * Sends what the backend made of an item: `publish_and_ack` or `publish_error_and_ack`.
   *
   * @param executedHash the item's bundle hash if it was the one held while the batch ran, else ""
   */
  outcome(unit: WorkUnit, answer: BatchOutcome, outcome: ItemOutcome, executedHash: string): Sent | Promise<Sent>;
  /** Sends an error that the queue side makes itself. All timings are nil. */
  refusal(delivery: Delivery, work: WorkItem, refusal: Refusal): Sent | Promise<Sent>;
}
