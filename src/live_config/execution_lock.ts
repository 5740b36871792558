import type { ExecutionBarrier } from "../dispatch/views.ts";

/**
 * Readers and one writer: inference holds the shared side, a configuration change the exclusive side (seed "Live Config"). A waiting
 * change lets running work finish and keeps new work out, so it cannot starve; waiting work goes on in order of arrival.
 */
export class ExecutionLock implements ExecutionBarrier {
  #shared = 0;
  #exclusive = false;
  readonly #waitingShared: (() => void)[] = [];
  readonly #waitingExclusive: (() => void)[] = [];

  /** Holders of the shared side. */
  get sharedHolders(): number {
    return this.#shared;
  }

  tryEnterShared(): boolean {
    if (this.#exclusive || this.#waitingExclusive.length > 0) return false;
    this.#shared++;
    return true;
  }

  enterShared(): Promise<void> {
    if (this.tryEnterShared()) return Promise.resolve();
    return new Promise((resolve) => this.#waitingShared.push(resolve));
  }

  leaveShared(): void {
    if (this.#shared === 0) throw new RangeError("the shared side of the execution lock is not held");
    this.#shared--;
    this.#handOver();
  }

  /** Takes the exclusive side: waits for running work, then keeps new work out. */
  enterExclusive(): Promise<void> {
    if (!this.#exclusive && this.#shared === 0) {
      this.#exclusive = true;
      return Promise.resolve();
    }
    return new Promise((resolve) => this.#waitingExclusive.push(resolve));
  }

  leaveExclusive(): void {
    if (!this.#exclusive) throw new RangeError("the exclusive side of the execution lock is not held");
    this.#exclusive = false;
    // Work that waited during the change goes first, so that a stream of changes cannot hold it up for ever.
    while (this.#waitingShared.length > 0) {
      this.#shared++;
      this.#waitingShared.shift()?.();
    }
    this.#handOver();
  }

  #handOver(): void {
    if (this.#exclusive || this.#shared > 0) return;
    const next = this.#waitingExclusive.shift();
    if (next === undefined) return;
    this.#exclusive = true;
    next();
  }
}
