/**
 * Collects deliveries into batches for dispatch: a batch is handed over when it is full, when the quantum since its first delivery
 * has passed, or when nothing more can come; and only while fewer than `inflight` of them are being taken in (spec/queue.md 6).
 */
import { getLogger } from "@logtape/logtape";
import type { WorkIntake } from "../dispatch/intake.ts";
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { JetStreamDelivery } from "./jetstream_delivery.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** What collecting needs. */
export interface LaneBatchesParts {
  readonly intake: WorkIntake;
  readonly clock: Clock;
  /** Largest batch (`SIE_NATS_FETCH_BUDGET`). */
  readonly size: number;
  /** Batches taken in at once (`SIE_PULL_LOOP_INFLIGHT`). */
  readonly inflight: number;
  /** How long to collect after the first delivery, in milliseconds; asked for each batch. */
  readonly quantumMs: () => number;
}

/** Batches of one lane. */
export class LaneBatches {
  readonly #parts: LaneBatchesParts;
  #pending: JetStreamDelivery[] = [];
  #running = 0;
  /** The pending batch waits only for a free place. */
  #due = false;
  #cancelTimer: CancelTimer | undefined;
  readonly #idleWaiters = new Set<() => void>();

  constructor(parts: LaneBatchesParts) {
    this.#parts = parts;
  }

  /** Adds a delivery. */
  add(delivery: JetStreamDelivery): void {
    this.#pending.push(delivery);
    if (this.#pending.length >= this.#parts.size) this.complete();
    else if (this.#cancelTimer === undefined && !this.#due) this.#startQuantum();
  }

  /** Nothing more is coming soon: what there is goes on now. */
  complete(): void {
    if (this.#pending.length === 0) return;
    this.#due = true;
    this.#handOver();
  }

  /** Takes back what has not been handed over. */
  takeBack(): readonly JetStreamDelivery[] {
    const pending = this.#pending;
    this.#pending = [];
    this.#due = false;
    this.#stopQuantum();
    return pending;
  }

  /** Resolves when all batches have been taken in: true; or false after `limitMs`. */
  join(limitMs: number): Promise<boolean> {
    if (this.#running === 0) return Promise.resolve(true);
    return new Promise((resolve) => {
      const finish = () => {
        cancel();
        this.#idleWaiters.delete(finish);
        resolve(this.#running === 0);
      };
      const cancel = this.#parts.clock.after(limitMs, finish);
      this.#idleWaiters.add(finish);
    });
  }

  #startQuantum(): void {
    this.#cancelTimer = this.#parts.clock.after(this.#parts.quantumMs(), () => {
      this.#cancelTimer = undefined;
      this.complete();
    });
  }

  #stopQuantum(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #handOver(): void {
    const { size, inflight } = this.#parts;
    while (this.#due && this.#running < inflight) {
      this.#stopQuantum();
      const batch = this.#pending.length <= size ? this.#pending : this.#pending.slice(0, size);
      this.#pending = batch === this.#pending ? [] : this.#pending.slice(size);
      this.#due = this.#pending.length >= size;
      if (!this.#due && this.#pending.length > 0) this.#startQuantum();
      void this.#run(batch);
    }
  }

  async #run(batch: readonly JetStreamDelivery[]): Promise<void> {
    this.#running++;
    try {
      await this.#parts.intake.accept(batch);
    } catch (thrown) {
      // The intake promises not to reject. What it has not settled would hold its permits, and be kept alive, for ever.
      logger.error("a batch was not taken in: {error}", { error: errorText(thrown) });
      for (const delivery of batch) if (!delivery.settled) delivery.leave("crashed");
    } finally {
      this.#running--;
      this.#handOver();
      if (this.#running === 0) { for (const waiter of [...this.#idleWaiters]) waiter(); }
    }
  }
}
