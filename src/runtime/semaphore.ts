/**
 * Permits that are handed out strictly in the order in which they were asked for. Used wherever a number of things may be in
 * work at once: pull permits, batches at the backend, parked groups, IPC connections.
 */

interface Waiter {
  grant(): void;
}

/**
 * A counting semaphore. Fair: nobody overtakes a waiter, so {@link tryAcquire} fails while somebody waits.
 * Counts only, no object per permit: it stands on the hot path.
 */
export class Semaphore {
  readonly capacity: number;
  #free: number;
  /** Insertion-ordered, so that the oldest waiter is first and a cancelled one leaves in constant time. */
  readonly #waiters = new Set<Waiter>();

  /** @param capacity number of permits, an integer of at least 1. */
  constructor(capacity: number) {
    if (!Number.isSafeInteger(capacity) || capacity < 1) {
      throw new RangeError(`a semaphore needs a whole number of permits of at least 1, got ${capacity}`);
    }
    this.capacity = capacity;
    this.#free = capacity;
  }

  /** Permits that nobody holds. */
  get free(): number {
    return this.#free;
  }

  /** Permits that are held. */
  get held(): number {
    return this.capacity - this.#free;
  }

  /** Number of {@link acquire} calls that wait. */
  get waiting(): number {
    return this.#waiters.size;
  }

  /** Takes a permit if one is free and nobody waits for it. */
  tryAcquire(): boolean {
    if (this.#free === 0 || this.#waiters.size > 0) return false;
    this.#free--;
    return true;
  }

  /**
   * Waits for a permit.
   *
   * @returns true with the permit held; false, without one, when `signal` is aborted first.
   */
  acquire(signal?: AbortSignal): Promise<boolean> {
    if (signal?.aborted) return Promise.resolve(false);
    if (this.tryAcquire()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const onAbort = () => {
        this.#waiters.delete(waiter);
        resolve(false);
      };
      const waiter: Waiter = {
        grant() {
          signal?.removeEventListener("abort", onAbort);
          resolve(true);
        },
      };
      this.#waiters.add(waiter);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  /**
   * Gives `count` permits back; the longest waiters get them.
   *
   * @throws RangeError when more permits come back than are held: a permit was released twice.
   */
  release(count = 1): void {
    if (!Number.isSafeInteger(count) || count < 0 || count > this.held) {
      throw new RangeError(`cannot release ${count} permits: ${this.held} of ${this.capacity} are held`);
    }
    this.#free += count;
    for (const waiter of this.#waiters) {
      if (this.#free === 0) break;
      this.#free--;
      this.#waiters.delete(waiter);
      waiter.grant();
    }
  }
}
