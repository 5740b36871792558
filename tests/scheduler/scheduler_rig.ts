/** A model scheduler on a virtual clock whose batches a test ends by hand or lets a serial backend work on. */
import type { BatchFeedback, FormedBatch } from "../../src/scheduler/batch.ts";
import { DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import { ModelScheduler, type SchedulerOptions } from "../../src/scheduler/model_scheduler.ts";
import type { BatchKey } from "../../src/scheduler/schedulable.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";
import type { LoggedBatch, TestItem } from "./naive_model.ts";

export const ENCODE: BatchKey = { operation: "encode", lora: "" };

/** `operation` or `operation/lora`. */
export function keyText({ operation, lora }: BatchKey): string {
  return lora === "" ? operation : `${operation}/${lora}`;
}

/** A batch as tests compare it. */
export function logged(batch: FormedBatch<TestItem>): LoggedBatch {
  const { formedAt: t, role, reason, totalCost: cost } = batch;
  return { t, key: keyText(batch.key), role, reason, items: batch.items.map((item) => item.name), cost };
}

/** A batch in flight. */
export interface OpenBatch {
  readonly batch: FormedBatch<TestItem>;
  /** Ends it and lets everything that follows happen. */
  end(feedback?: BatchFeedback): Promise<void>;
}

/** Scheduler, clock and what the scheduler did. */
export class SchedulerRig {
  readonly clock = new VirtualClock();
  readonly batches: LoggedBatch[] = [];
  readonly open: OpenBatch[] = [];
  readonly faults: unknown[] = [];
  readonly scheduler: ModelScheduler<TestItem>;

  constructor(overrides: Partial<SchedulerOptions<TestItem>> = {}) {
    this.scheduler = new ModelScheduler<TestItem>("model", this.options(overrides));
  }

  /** Options whose `run` adds to {@link batches} and {@link open}. */
  options(overrides: Partial<SchedulerOptions<TestItem>> = {}): SchedulerOptions<TestItem> {
    return {
      clock: this.clock,
      config: DEFAULT_BATCH_CONFIG,
      pipelineDepth: 2,
      idleBypass: true,
      waveCadence: true,
      onFault: (_batch, thrown) => this.faults.push(thrown),
      run: (batch) => this.#run(batch),
      ...overrides,
    };
  }

  #run(batch: FormedBatch<TestItem>): Promise<BatchFeedback | undefined> {
    this.batches.push(logged(batch));
    const { promise, resolve } = Promise.withResolvers<BatchFeedback | undefined>();
    const opened: OpenBatch = {
      batch,
      end: (feedback) => {
        this.open.splice(this.open.indexOf(opened), 1);
        resolve(feedback);
        return settle();
      },
    };
    this.open.push(opened);
    return promise;
  }

  /** Names of the items of each batch so far. */
  get contents(): string[] {
    return this.batches.map((batch) => batch.items.join(" "));
  }

  /** Ends the oldest batch in flight. */
  async endOldest(feedback?: BatchFeedback): Promise<void> {
    const oldest = this.open[0];
    if (oldest === undefined) throw new Error("no batch is in flight");
    await oldest.end(feedback);
  }
}
