import type { Schedulable } from "../scheduler/schedulable.ts";
import { type BatchEntry, INLINE_INPUT, type PreparedInput } from "../wire/ipc/batch_items.ts";
import type { WorkItem } from "../wire/work_item.ts";
import type { Delivery, Settled } from "./delivery.ts";
import type { Arrival } from "./intake.ts";

/** One item on its way through dispatch: the delivery, what it asks for, and what preparation made of it. One object per item. */
export class WorkUnit implements Schedulable, BatchEntry {
  readonly delivery: Delivery;
  readonly work: WorkItem;
  input: PreparedInput = INLINE_INPUT;
  cost = 1;
  hardCostCap = Infinity;
  runsAlone = false;
  queueEntry: object | undefined = undefined;
  /** Clock time at which the item went into the scheduler, milliseconds. */
  submittedAt = 0;
  /** Whether the scheduler has taken it: from then on whoever runs its batch settles it. */
  scheduled = false;
  /** The proof of its settlement, once there is one. */
  settled: Settled | undefined = undefined;

  constructor(arrival: Arrival) {
    this.delivery = arrival.delivery;
    this.work = arrival.work;
  }
}
