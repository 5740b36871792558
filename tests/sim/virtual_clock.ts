/**
 * A clock whose time stands still until a test moves it. Timers fire in the order of their times, those of one time in the order
 * in which they were set; between two of them everything that follows from the first one (promises, microtasks) has happened.
 */
import { setImmediate } from "node:timers";
import type { CancelTimer, Clock } from "../../src/runtime/clock.ts";

interface Timer {
  readonly at: number;
  readonly action: () => void;
}

/** Lets every promise continuation run that can run without time passing or input arriving. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Virtual time in milliseconds. */
export class VirtualClock implements Clock {
  #now: number;
  readonly #unixAtZero: number;
  /** By time, then by the order in which they were set. */
  readonly #timers: Timer[] = [];

  constructor(startMs = 0, unixStartMs = 1_750_000_000_000) {
    this.#now = startMs;
    this.#unixAtZero = unixStartMs - startMs;
  }

  now(): number {
    return this.#now;
  }

  unixMs(): number {
    return this.#unixAtZero + this.#now;
  }

  /** Number of timers that are set. */
  get timerCount(): number {
    return this.#timers.length;
  }

  after(delayMs: number, action: () => void): CancelTimer {
    return this.at(this.#now + Math.max(delayMs, 0), action);
  }

  /** Calls `action` at a given time, which must not have passed. */
  at(time: number, action: () => void): CancelTimer {
    if (!(time >= this.#now)) throw new RangeError(`${time} has passed: it is ${this.#now}`);
    const timer: Timer = { at: time, action };
    let low = 0, high = this.#timers.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#timers[middle]?.at ?? Infinity) <= time) low = middle + 1;
      else high = middle;
    }
    this.#timers.splice(low, 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer);
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** Moves time to `time`, firing every timer on the way, those that are set on the way included. */
  async runUntil(time: number): Promise<void> {
    await settle();
    for (let timer = this.#timers[0]; timer !== undefined && timer.at <= time; timer = this.#timers[0]) {
      this.#fire(timer);
      await settle();
    }
    this.#now = Math.max(this.#now, time);
  }

  /** Moves time on by `ms` milliseconds; see {@link runUntil}. */
  advance(ms: number): Promise<void> {
    return this.runUntil(this.#now + ms);
  }

  /** Runs until no timer is left. Fails after `mostTimers`, for something then sets timers for ever. */
  async runToEnd(mostTimers = 100_000): Promise<void> {
    await settle();
    for (let timer = this.#timers[0]; timer !== undefined; timer = this.#timers[0]) {
      if (mostTimers-- === 0) throw new Error("timers are set without end");
      this.#fire(timer);
      await settle();
    }
  }

  #fire(timer: Timer): void {
    this.#timers.shift();
    this.#now = timer.at;
    timer.action();
  }
}
