/**
 * Percentiles over the last samples of a latency (spec/scheduler.md 8.1). The samples are kept in arrival order and in sorted
 * order at once, so a sample costs one binary search and one move of at most `capacity` numbers, and a percentile costs nothing.
 */
export class LatencyWindow {
  readonly #minimum: number;
  /** Ring of the last samples in arrival order. */
  readonly #recent: Float64Array;
  /** The same samples, ascending. */
  readonly #sorted: Float64Array;
  #count = 0;
  #next = 0;

  /**
   * @param capacity number of samples kept
   * @param minimum number of samples below which there is no percentile
   */
  constructor(capacity = 200, minimum = 10) {
    if (!Number.isSafeInteger(capacity) || capacity < 1) {
      throw new RangeError(`capacity must be at least 1, got ${capacity}`);
    }
    this.#minimum = Math.max(minimum, 1);
    this.#recent = new Float64Array(capacity);
    this.#sorted = new Float64Array(capacity);
  }

  /** Number of samples held. */
  get count(): number {
    return this.#count;
  }

  /** Takes a sample in milliseconds; the oldest leaves when the window is full. NaN and infinities are ignored. */
  record(ms: number): void {
    if (!Number.isFinite(ms)) return;
    const capacity = this.#recent.length;
    if (this.#count === capacity) this.#removeSorted(this.#recent[this.#next] ?? 0);
    this.#recent[this.#next] = ms;
    this.#next = (this.#next + 1) % capacity;
    const at = this.#lowerBound(ms);
    this.#sorted.copyWithin(at + 1, at, this.#count);
    this.#sorted[at] = ms;
    this.#count++;
  }

  /** The sample at `trunc(percent / 100 * (n - 1))` in ascending order, or undefined below the minimum count. No interpolation. */
  percentile(percent: number): number | undefined {
    if (this.#count < this.#minimum) return undefined;
    return this.#sorted[Math.trunc((percent / 100) * (this.#count - 1))];
  }

  /** Forgets all samples. */
  clear(): void {
    this.#count = 0;
    this.#next = 0;
  }

  #removeSorted(ms: number): void {
    const at = this.#lowerBound(ms);
    this.#sorted.copyWithin(at, at + 1, this.#count);
    this.#count--;
  }

  /** Index of the first sorted sample that is not below `ms`. */
  #lowerBound(ms: number): number {
    let low = 0, high = this.#count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sorted[middle] ?? 0) < ms) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
