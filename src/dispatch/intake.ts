/** The one entrance of dispatch: what sources of work (consumer, local ingest) call. */
import type { WorkItem } from "../wire/work_item.ts";
import type { Delivery } from "./delivery.ts";

/** One delivery with its decoded work item. */
export interface Arrival {
  readonly delivery: Delivery;
  readonly work: WorkItem;
}

/**
 * Takes work. The source has already checked what only it can check: NATS headers, the subject, that the item decodes, the reply
 * subject (spec/queue.md 5.1, rows 1 to 5 and 11), or the local-ingest envelope. Everything from cancellation on is dispatch's.
 */
export interface WorkIntake {
  /**
   * Takes a batch of arrivals. Each of them will be settled through its delivery, sooner or later. Resolves when all of the batch
   * have been prepared and queued (or settled), which is what the pull loop's dispatch permits count; never rejects.
   */
  accept(arrivals: readonly Arrival[]): Promise<void>;
}
