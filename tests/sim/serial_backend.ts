/** A backend that works on one batch after the other, in virtual time. */
import type { Clock } from "../../src/runtime/clock.ts";

/** When the backend worked on something, in milliseconds. */
export interface ServiceTime {
  readonly start: number;
  readonly end: number;
}

/** First come, first served. */
export class SerialBackend {
  readonly #clock: Clock;
  readonly #serviceMs: number;
  #freeAt = -Infinity;

  constructor(clock: Clock, serviceMs: number) {
    this.#clock = clock;
    this.#serviceMs = serviceMs;
  }

  /** Queues one piece of work: when it will be worked on, and a promise of its end. */
  run(): ServiceTime & { readonly done: Promise<void> } {
    const start = Math.max(this.#clock.now(), this.#freeAt);
    const end = start + this.#serviceMs;
    this.#freeAt = end;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#clock.after(end - this.#clock.now(), resolve);
    return { start, end, done: promise };
  }
}
