/**
 * Flow control towards the broker. The client writes to its socket without waiting, so a slow broker would let results pile up in
 * memory. Every so many bytes a round trip asks how far the broker has come; too far ahead of that, publishers wait.
 */

/** Bytes after which a round trip is started. */
const STEP_BYTES = 1024 * 1024;
/** Bytes on the way at which publishers begin to wait, and down to which they do. */
const HIGH_BYTES = 8 * 1024 * 1024;

interface Waiter {
  resolve(): void;
  reject(reason: unknown): void;
}

/** Counts bytes handed over against bytes known to have arrived. */
export class FlowWindow {
  readonly #flush: () => Promise<void>;
  #handed = 0;
  /** Position up to which a round trip has been started, and up to which one has ended. */
  #asked = 0;
  #confirmed = 0;
  #waiters: Waiter[] = [];

  /** @param flush a round trip to the broker; rejects when the connection breaks */
  constructor(flush: () => Promise<void>) {
    this.#flush = flush;
  }

  /** Bytes handed over that may not have arrived. */
  get onTheWay(): number {
    return this.#handed - this.#confirmed;
  }

  /**
   * Notes that `total` bytes have been handed over since the start.
   *
   * @returns a promise to wait for when too much is on the way; it rejects when the connection breaks meanwhile
   */
  handed(total: number): void | Promise<void> {
    this.#handed = total;
    if (total - this.#asked >= STEP_BYTES) this.#ask();
    if (total - this.#confirmed <= HIGH_BYTES) return;
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  /** Forgets what is on the way: the connection broke. Whoever waits is told so. */
  reset(reason: unknown = new Error("the connection to the broker broke")): void {
    this.#asked = this.#confirmed = this.#handed;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.reject(reason);
  }

  #ask(): void {
    const position = this.#handed;
    this.#asked = position;
    this.#flush().then(
      () => this.#confirm(position),
      (reason) => this.reset(reason),
    );
  }

  #confirm(position: number): void {
    if (position <= this.#confirmed) return;
    this.#confirmed = position;
    if (this.#waiters.length === 0 || this.#handed - position > HIGH_BYTES) return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.resolve();
  }
}
