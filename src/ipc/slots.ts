/** Things of which each is used by one at a time, handed out strictly in the order in which they were asked for. */

interface Waiter<Slot> {
  grant(slot: Slot): void;
  refuse(reason: Error): void;
}

/** A growing set of slots. The one that came back last goes out first: its connection and its memory are warm. */
export class Slots<Slot> {
  readonly #make: () => Slot;
  readonly #idle: Slot[] = [];
  readonly #waiters = new Set<Waiter<Slot>>();
  #size = 0;
  #closed: Error | undefined;

  /** @param size number of slots, at least 1; they are made when they are needed. */
  constructor(size: number, make: () => Slot) {
    if (!Number.isSafeInteger(size) || size < 1) throw new RangeError(`at least one slot is needed, got ${size}`);
    this.#make = make;
    this.grow(size);
  }

  get size(): number {
    return this.#size;
  }

  /** Callers that wait for a slot. */
  get waiting(): number {
    return this.#waiters.size;
  }

  /** Adds slots until there are `size`; never takes one away. */
  grow(size: number): void {
    while (this.#size < size) {
      this.#size++;
      this.release(this.#make());
    }
  }

  /** A slot for the caller alone, until {@link release}. Waits without limit. */
  acquire(): Slot | Promise<Slot> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    const slot = this.#waiters.size === 0 ? this.#idle.pop() : undefined;
    if (slot !== undefined) return slot;
    return new Promise((resolve, reject) => {
      this.#waiters.add({ grant: resolve, refuse: reject });
    });
  }

  /** Gives a slot back; who has waited longest gets it. */
  release(slot: Slot): void {
    for (const waiter of this.#waiters) {
      this.#waiters.delete(waiter);
      waiter.grant(slot);
      return;
    }
    this.#idle.push(slot);
  }

  /** Refuses everybody who waits or comes. */
  close(reason: Error): void {
    this.#closed ??= reason;
    for (const waiter of this.#waiters) waiter.refuse(reason);
    this.#waiters.clear();
  }
}
