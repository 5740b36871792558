/**
 * The hard cost caps of everything that waits in one former (spec/scheduler.md 3.3 and 5.2). There are few distinct values (one
 * today), so they are counted and the lowest is kept: O(1) per item in place of a scan of all that waits.
 */
export class HardCaps {
  readonly #counts = new Map<number, number>();
  #lowest = Infinity;

  /** The lowest cap, `Infinity` when there is none. */
  get lowest(): number {
    return this.#lowest;
  }

  add(cap: number): void {
    if (cap === Infinity) return;
    this.#counts.set(cap, (this.#counts.get(cap) ?? 0) + 1);
    if (cap < this.#lowest) this.#lowest = cap;
  }

  /** Takes back one {@link add} of the same cap. */
  remove(cap: number): void {
    if (cap === Infinity) return;
    const left = (this.#counts.get(cap) ?? 0) - 1;
    if (left > 0) {
      this.#counts.set(cap, left);
      return;
    }
    this.#counts.delete(cap);
    if (cap === this.#lowest) {
      this.#lowest = Infinity;
      for (const other of this.#counts.keys()) this.#lowest = Math.min(this.#lowest, other);
    }
  }
}
