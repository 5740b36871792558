/** The schedulers of all models (spec/scheduler.md 9). */
import { SchedulerClosedError } from "./errors.ts";
import { ModelScheduler, type SchedulerOptions } from "./model_scheduler.ts";
import type { Schedulable } from "./schedulable.ts";

/** Sums over all models, for the heartbeat. */
export interface SchedulerTotals {
  readonly pendingItems: number;
  readonly pendingCost: number;
  readonly inflightBatches: number;
}

/** One scheduler per model id, made with its first item and kept: its limits and what its controller has learnt survive. */
export class SchedulerRegistry<T extends Schedulable> {
  readonly #options: SchedulerOptions<T>;
  readonly #schedulers = new Map<string, ModelScheduler<T>>();
  #closing = false;

  constructor(options: SchedulerOptions<T>) {
    this.#options = options;
  }

  /**
   * The scheduler of a model. The id is taken as it stands in the work item; only ids of models that the backend has confirmed
   * may come here, for the entry stays.
   *
   * @throws SchedulerClosedError for a model without one once {@link drainAll} has been called
   */
  getOrCreate(modelId: string): ModelScheduler<T> {
    let scheduler = this.#schedulers.get(modelId);
    if (scheduler === undefined) {
      if (this.#closing) throw new SchedulerClosedError(modelId);
      scheduler = new ModelScheduler(modelId, this.#options);
      this.#schedulers.set(modelId, scheduler);
    }
    return scheduler;
  }

  /** What waits for one model; nothing for a model without a scheduler. */
  waiting(modelId: string): { readonly items: number; readonly cost: number } {
    const scheduler = this.#schedulers.get(modelId);
    return { items: scheduler?.pendingItems ?? 0, cost: scheduler?.pendingCost ?? 0 };
  }

  /** The schedulers there are, oldest first. */
  schedulers(): Iterable<ModelScheduler<T>> {
    return this.#schedulers.values();
  }

  totals(): SchedulerTotals {
    let pendingItems = 0, pendingCost = 0, inflightBatches = 0;
    for (const scheduler of this.#schedulers.values()) {
      pendingItems += scheduler.pendingItems;
      pendingCost += scheduler.pendingCost;
      inflightBatches += scheduler.inflightBatches;
    }
    return { pendingItems, pendingCost, inflightBatches };
  }

  /**
   * Drains all schedulers at once; see {@link ModelScheduler.drain}. To be called when intake has ended: an idle scheduler closes
   * immediately and refuses what comes later.
   *
   * @param deadlineMs time for all of them together, in milliseconds
   * @returns the items that were left waiting; the caller settles them
   */
  async drainAll(deadlineMs: number): Promise<T[]> {
    this.#closing = true;
    const leftovers = await Promise.all([...this.#schedulers.values()].map((scheduler) => scheduler.drain(deadlineMs)));
    return leftovers.flat();
  }
}
