/** Work that takes its time: items wait until the test lets some of them go on. */
import { answer, type Script } from "./support.ts";

/** Holds items back. Use it with `using`. */
export class Pace implements Disposable {
  readonly #waiting: (() => void)[] = [];
  #timer: ReturnType<typeof setInterval> | undefined;

  /** Items held back. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** A script that holds each item back, then runs `then`. */
  script(then: Script = answer): Script {
    return async (arrival) => {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
      await then(arrival);
    };
  }

  /** Lets `count` items go on every `everyMs` milliseconds. */
  run(count: number, everyMs = 5): void {
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.release(count), everyMs);
  }

  /** Lets nothing go on. */
  halt(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Lets items go on now; all of them by default. */
  release(count = this.#waiting.length): void {
    for (const resolve of this.#waiting.splice(0, count)) resolve();
  }

  [Symbol.dispose](): void {
    this.halt();
    this.release();
  }
}
