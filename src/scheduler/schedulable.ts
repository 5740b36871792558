/** What the scheduler knows of an item and of its batch key (spec/scheduler.md 2 and 3). It never looks at anything else. */

/** Operations that are batched; `generate` has a path of its own. */
export type Operation = "encode" | "score" | "extract";

/** An item that can wait in a batch former. The scheduler is generic over the rest of it. */
export interface Schedulable {
  /** Scheduler cost, a whole number of at least 0; constant while the item waits (section 3). */
  readonly cost: number;
  /** Lowers the cost cap of the former while the item waits in it; `Infinity` for none (3.3). */
  readonly hardCostCap: number;
  /** Whether the item never shares a batch (3.3). */
  readonly runsAlone: boolean;
  /**
   * The scheduler's own bookkeeping: set while the item waits, undefined otherwise. Nobody else writes it. It makes removal
   * cheap without a lookup table; items that declare the field from the start keep one object shape.
   */
  queueEntry?: object | undefined;
}

/** Items of one model share a batch only when these are equal (section 2). */
export interface BatchKey {
  readonly operation: Operation;
  /** LoRA name, "" for the base model. */
  readonly lora: string;
}
