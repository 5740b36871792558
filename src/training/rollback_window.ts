/** The sliding failure rate that takes a bad version out of service (online-training.md, section 6.5). */

/** When a rollback is due. */
export interface RollbackRule {
  /** Length of the window, in milliseconds. */
  readonly windowMs: number;
  /** Rate that must be exceeded, 0 to 1. */
  readonly threshold: number;
  /** Calls in the window below which nothing is decided. */
  readonly minCount: number;
}

/** The numbers behind a decision. */
export interface FailureRate {
  readonly total: number;
  readonly failures: number;
  /** failures ÷ total. */
  readonly rate: number;
}

/** Ticks that a window is cut into: at the default of 300 s one is 100 ms long. */
const TICKS = 3000;

/**
 * Counts scoring calls over the window (now − length, now]. Calls are counted by tick, so that memory does not grow with
 * the request rate; an event leaves the window at most one tick early.
 */
export class RollbackWindow {
  readonly #rule: RollbackRule;
  readonly #tickMs: number;
  readonly #good = new Uint32Array(TICKS);
  readonly #bad = new Uint32Array(TICKS);
  /** Number of the newest tick; −1 before the first event. */
  #newest = -1;
  #total = 0;
  #failures = 0;

  constructor(rule: RollbackRule) {
    this.#rule = rule;
    this.#tickMs = rule.windowMs / TICKS;
  }

  /**
   * Counts one scoring call of the active version.
   *
   * @param nowMs monotonic milliseconds, not smaller than at the call before.
   * @returns the numbers when a rollback is due, otherwise undefined.
   */
  record(nowMs: number, succeeded: boolean): FailureRate | undefined {
    this.#moveTo(Math.floor(nowMs / this.#tickMs));
    const slot = this.#newest % TICKS;
    const counts = succeeded ? this.#good : this.#bad;
    counts[slot] = (counts[slot] as number) + 1;
    this.#total++;
    if (!succeeded) this.#failures++;
    const rate = this.#failures / this.#total;
    if (this.#total < this.#rule.minCount || rate <= this.#rule.threshold) return undefined;
    return { total: this.#total, failures: this.#failures, rate };
  }

  /** Forgets everything; called at every swap. */
  clear(): void {
    this.#good.fill(0);
    this.#bad.fill(0);
    this.#newest = -1;
    this.#total = 0;
    this.#failures = 0;
  }

  #moveTo(tick: number): void {
    if (this.#newest === -1) this.#newest = tick;
    if (tick - this.#newest >= TICKS) {
      this.clear();
      this.#newest = tick;
    }
    while (this.#newest < tick) {
      this.#newest++;
      const slot = this.#newest % TICKS;
      this.#total -= (this.#good[slot] as number) + (this.#bad[slot] as number);
      this.#failures -= this.#bad[slot] as number;
      this.#good[slot] = 0;
      this.#bad[slot] = 0;
    }
  }
}
