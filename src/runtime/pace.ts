/**
 * Computations that can be long, in slices: after each of them everything else that waits for the event loop gets its turn. What is
 * small, which is nearly everything, never waits.
 */
import type { Clock } from "./clock.ts";
import { sleep } from "./clock.ts";

/** So many bytes are worked on at a time: a few milliseconds, whatever is done with them. */
export const SLICE_BYTES = 1024 * 1024;

/** Counts what one computation has done since it last gave way. */
export class Pace {
  readonly #clock: Clock;
  #done = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Notes that `bytes` have been worked on.
   *
   * @returns what to wait for before going on; undefined while the slice is not full
   */
  worked(bytes: number): Promise<unknown> | undefined {
    this.#done += bytes;
    if (this.#done < SLICE_BYTES) return undefined;
    this.#done = 0;
    return sleep(this.#clock, 0);
  }
}
