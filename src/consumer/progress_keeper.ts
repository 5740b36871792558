/**
 * Keeps held deliveries alive (spec/queue.md 2.4, and beyond it: also without deadlines): whatever waits in a queue, for a model or
 * in the backend is progress-acknowledged before the broker would deliver it again. One timer per lane serves all its deliveries.
 */
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import type { WorkItem } from "../wire/work_item.ts";
import { type DeadlineLimits, deadlineStatus, leaseHorizonS } from "./deadline.ts";
import { type Held, HeldList } from "./held_list.ts";

/** A delivery that can be kept alive. */
export interface KeptDelivery extends Held {
  readonly work: WorkItem;
  /** Clock time of its arrival, milliseconds. */
  readonly arrivedAt: number;
  /** Sends progress. */
  progress(): boolean;
}

/** What decides how long a delivery is kept. */
export interface KeepingRules {
  readonly deadlines: DeadlineLimits;
  /** Whether expired items are dropped anyway. */
  readonly enforce: boolean;
  /** Nothing is kept longer than this, in milliseconds: the life of a cancellation (`max(stream age, 30 s × max_deliver)`). */
  readonly longestMs: number;
  /** False while nothing may be kept alive: the process drains, or the backend has fallen silent. */
  readonly mayProgress: () => boolean;
}

/** Progress comes this many times per ack wait, so that one may be late and one may be lost. */
const PER_ACK_WAIT = 3;
/** And never less often than this, in milliseconds. */
const LONGEST_INTERVAL_MS = 15_000;
/** No timer runs faster than this, however short somebody has made the ack wait. */
const SHORTEST_INTERVAL_MS = 50;

/** How often progress is sent under an ack wait, in milliseconds. */
export function progressIntervalMs(ackWaitMs: number): number {
  return Math.max(SHORTEST_INTERVAL_MS, Math.min(ackWaitMs / PER_ACK_WAIT, LONGEST_INTERVAL_MS));
}

/** Keeps the deliveries of one lane alive. */
export class ProgressKeeper {
  readonly #clock: Clock;
  readonly #rules: KeepingRules;
  readonly #list = new HeldList<KeptDelivery>();
  #intervalMs: number;
  #cancelTimer: CancelTimer | undefined;
  #closed = false;

  constructor(clock: Clock, rules: KeepingRules, ackWaitMs: number) {
    this.#clock = clock;
    this.#rules = rules;
    this.#intervalMs = progressIntervalMs(ackWaitMs);
  }

  /** Number of deliveries kept. */
  get size(): number {
    return this.#list.size;
  }

  /** Follows the consumer's own ack wait, which an operator may have changed. */
  setAckWait(ackWaitMs: number): void {
    const intervalMs = progressIntervalMs(ackWaitMs);
    if (intervalMs === this.#intervalMs) return;
    this.#intervalMs = intervalMs;
    // Times in the list must ascend: everything gets the new interval from now on.
    const now = this.#clock.now();
    for (let left = this.#list.size; left > 0; left--) this.#again(this.#list.first, now);
    this.#arm();
  }

  /** Begins to keep a delivery. */
  hold(delivery: KeptDelivery): void {
    if (this.#closed) return;
    this.#list.append(delivery, delivery.arrivedAt + this.#intervalMs);
    if (this.#cancelTimer === undefined) this.#arm();
  }

  /** Ends that, at its settlement: no progress follows. */
  release(delivery: KeptDelivery): void {
    this.#list.remove(delivery);
  }

  /** Sees to all deliveries at once: the connection was away. */
  refreshAll(): void {
    if (this.#closed) return;
    const now = this.#clock.now();
    const may = this.#rules.mayProgress();
    for (let left = this.#list.size; left > 0; left--) this.#see(this.#list.first, now, may);
    this.#arm();
  }

  /** Keeps nothing any more. */
  close(): void {
    this.#closed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    for (let first = this.#list.first; first !== undefined; first = this.#list.first) this.#list.remove(first);
  }

  #arm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const first = this.#list.first;
    if (first === undefined || this.#closed) return;
    this.#cancelTimer = this.#clock.after(first.dueAt - this.#clock.now(), () => this.#tick());
  }

  #tick(): void {
    this.#cancelTimer = undefined;
    const now = this.#clock.now();
    const may = this.#rules.mayProgress();
    for (let left = this.#list.size; left > 0; left--) {
      const first = this.#list.first;
      if (first === undefined || first.dueAt > now) break;
      this.#see(first, now, may);
    }
    this.#arm();
  }

  /** Sends progress for one delivery, or lets go of it when its time is over. */
  #see(delivery: KeptDelivery | undefined, now: number, may: boolean): void {
    if (delivery === undefined) return;
    if (!this.#isWorthKeeping(delivery, now)) return this.#list.remove(delivery);
    if (may) delivery.progress();
    this.#again(delivery, now);
  }

  #again(delivery: KeptDelivery | undefined, now: number): void {
    // Sending progress may have ended it: a closed connection settles.
    if (delivery === undefined || !delivery.held) return;
    this.#list.remove(delivery);
    this.#list.append(delivery, now + this.#intervalMs);
  }

  #isWorthKeeping({ work, arrivedAt }: KeptDelivery, now: number): boolean {
    const { deadlines, enforce, longestMs } = this.#rules;
    if (now - arrivedAt >= longestMs) return false;
    if (work.operation === "generate") return true;
    const status = deadlineStatus(work.deadline, work.timestamp, this.#clock.unixMs() / 1000, deadlines);
    return status.kind === "unbounded" || leaseHorizonS(status, enforce, deadlines, longestMs / 1000) !== undefined;
  }
}
