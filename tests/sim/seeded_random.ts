/** Random numbers that are the same for the same seed, so that a failing simulation can be run again. */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A number in [0, 1). */
  next(): number {
    // A Weyl sequence through a multiplicative mix; good enough for tests.
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let x = this.#state;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    return ((x ^ (x >>> 16)) >>> 0) / 0x100000000;
  }

  /** A whole number from `least` to `most`, both included. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  /** True with the given probability. */
  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** One of the given values. */
  pick<V>(values: readonly V[]): V {
    const value = values[Math.floor(this.next() * values.length)];
    if (value === undefined) throw new RangeError("nothing to pick from");
    return value;
  }
}
