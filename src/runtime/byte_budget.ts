/**
 * The one byte budget of the process (design.md, decision 6): pulled messages and requests of local ingest
 * are counted together until their work is settled. Whoever pulls listens to the marks: stop at the high one, go on at the low one.
 */
import { SidecarError } from "./errors.ts";

/** Why a reservation can never be granted. Code `byte_budget_exceeded`. */
export class ByteBudgetError extends SidecarError {
  constructor(bytes: number, limit: number) {
    super("byte_budget_exceeded", `${bytes} bytes do not fit into the budget of ${limit} bytes`);
  }
}

/** Limits of a {@link ByteBudget}, all in bytes; `0 <= low <= high <= limit`. */
export interface ByteBudgetLimits {
  /** No reservation passes this. */
  readonly limit: number;
  /** At or above this the `high` listeners are called. Default: the limit. */
  readonly high?: number;
  /** At or below this, after a `high`, the `low` listeners are called. Default: half of `high`. */
  readonly low?: number;
}

/** What a listener is told; each is called once per crossing. */
export interface PressureListener {
  high?(): void;
  low?(): void;
}

interface Waiter {
  readonly bytes: number;
  grant(): void;
}

/** Counts reserved bytes against a limit. Waiting reservations are granted in the order in which they were asked for. */
export class ByteBudget {
  readonly limit: number;
  readonly high: number;
  readonly low: number;
  #used = 0;
  #pressed = false;
  readonly #waiters = new Set<Waiter>();
  readonly #listeners = new Set<PressureListener>();

  constructor(limits: ByteBudgetLimits) {
    this.limit = limits.limit;
    this.high = limits.high ?? limits.limit;
    this.low = limits.low ?? Math.floor(this.high / 2);
    const whole = [this.limit, this.high, this.low].every(Number.isSafeInteger);
    if (!whole || this.limit < 1 || this.low < 0 || this.low > this.high || this.high > this.limit) {
      throw new RangeError(`unusable byte budget: limit ${this.limit}, high ${this.high}, low ${this.low}`);
    }
  }

  /** Bytes reserved now. Above {@link limit} only through {@link add}. */
  get used(): number {
    return this.#used;
  }

  /** Number of {@link acquire} calls that wait. */
  get waiting(): number {
    return this.#waiters.size;
  }

  /** True from reaching the high mark until the low mark is reached again. */
  get pressed(): boolean {
    return this.#pressed;
  }

  /** Reserves `bytes` if they fit now and nobody waits. */
  tryReserve(bytes: number): boolean {
    checkBytes(bytes);
    if (this.#waiters.size > 0 || this.#used + bytes > this.limit) return false;
    this.#take(bytes);
    return true;
  }

  /**
   * Counts `bytes` that are in memory already (a message that was delivered), even past the limit. The marks make the caller
   * stop; refusing to count would only hide them.
   */
  add(bytes: number): void {
    checkBytes(bytes);
    this.#take(bytes);
  }

  /**
   * Waits until `bytes` fit, then reserves them.
   *
   * @returns true with the bytes reserved; false, without them, when `signal` is aborted first.
   * @throws ByteBudgetError (rejection) when they could never fit.
   */
  acquire(bytes: number, signal?: AbortSignal): Promise<boolean> {
    checkBytes(bytes);
    if (bytes > this.limit) return Promise.reject(new ByteBudgetError(bytes, this.limit));
    if (signal?.aborted) return Promise.resolve(false);
    if (this.tryReserve(bytes)) return Promise.resolve(true);
    return new Promise((resolve) => {
      const onAbort = () => {
        this.#waiters.delete(waiter);
        resolve(false);
        // The one that left may have been the big one that kept smaller ones behind it waiting.
        this.#grantWaiters();
      };
      const waiter: Waiter = {
        bytes,
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
   * Gives `bytes` back.
   *
   * @throws RangeError when more come back than are reserved: something was released twice.
   */
  release(bytes: number): void {
    checkBytes(bytes);
    if (bytes > this.#used) throw new RangeError(`cannot release ${bytes} bytes: only ${this.#used} are reserved`);
    this.#used -= bytes;
    this.#grantWaiters();
    if (this.#pressed && this.#used <= this.low) {
      this.#pressed = false;
      for (const listener of [...this.#listeners]) listener.low?.();
    }
  }

  /** Listens to the marks; the returned function ends that. A listener that comes while pressed is told `high` at once. */
  listen(listener: PressureListener): () => void {
    this.#listeners.add(listener);
    if (this.#pressed) listener.high?.();
    return () => {
      this.#listeners.delete(listener);
    };
  }

  #take(bytes: number): void {
    this.#used += bytes;
    if (!this.#pressed && this.#used >= this.high) {
      this.#pressed = true;
      for (const listener of [...this.#listeners]) listener.high?.();
    }
  }

  #grantWaiters(): void {
    for (const waiter of this.#waiters) {
      if (this.#used + waiter.bytes > this.limit) return;
      this.#waiters.delete(waiter);
      this.#take(waiter.bytes);
      waiter.grant();
    }
  }
}

function checkBytes(bytes: number): void {
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new RangeError(`a number of bytes is needed, got ${bytes}`);
}
