/**
 * Attempts of one call that are to be made later. A call can have thousands of items that come back at once: those of one moment
 * share a timer, and are attempted in slices, between which everything else gets its turn.
 */
import { type CancelTimer, type Clock, sleep } from "../runtime/clock.ts";

/** Attempts made in one go: a few milliseconds. */
const SLICE = 64;

/** One attempt that is to be made. */
interface Later {
  readonly index: number;
  readonly attempt: number;
}

/** What is due at one time. */
interface Moment {
  readonly attempts: Later[];
  readonly cancel: CancelTimer;
}

/** Keeps attempts until they are due. */
export class LaterAttempts {
  readonly #clock: Clock;
  readonly #make: (index: number, attempt: number) => void;
  readonly #moments = new Map<number, Moment>();
  #waiting = 0;

  /** @param make makes an attempt at the item with this index */
  constructor(clock: Clock, make: (index: number, attempt: number) => void) {
    this.#clock = clock;
    this.#make = make;
  }

  /** An attempt to be made after `afterMs` milliseconds. */
  add(index: number, attempt: number, afterMs: number): void {
    this.#waiting++;
    const now = this.#clock.now();
    const due = Math.ceil(now + afterMs);
    const known = this.#moments.get(due);
    if (known !== undefined) {
      known.attempts.push({ index, attempt });
      return;
    }
    const attempts = [{ index, attempt }];
    const cancel = this.#clock.after(due - now, () => {
      this.#moments.delete(due);
      this.#makeAll(attempts);
    });
    this.#moments.set(due, { attempts, cancel });
  }

  /** Gives up what has not been made yet. @returns how many these are */
  drop(): number {
    for (const { cancel } of this.#moments.values()) cancel();
    this.#moments.clear();
    const dropped = this.#waiting;
    this.#waiting = 0;
    return dropped;
  }

  async #makeAll(attempts: readonly Later[]): Promise<void> {
    for (const [made, { index, attempt }] of attempts.entries()) {
      if (made > 0 && made % SLICE === 0) await sleep(this.#clock, 0);
      if (this.#waiting === 0) return;
      this.#waiting--;
      this.#make(index, attempt);
    }
  }
}
