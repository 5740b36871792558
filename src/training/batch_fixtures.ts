/** Measured batches as fixtures for the stability gate: an even sample of all that were measured. */
import { BATCH_FEATURES } from "./batch_features.ts";
import { type Random, randomBelow } from "./random.ts";

/** Pairs that are kept; the gate is made for 10 to 20. */
const PAIRS = 20;

/** A fixtures file (online-training.md, section 6.3). */
export interface FixturesFile {
  readonly version: 1;
  readonly n_features: number;
  readonly pairs: readonly { readonly id: string; readonly features: readonly number[]; readonly score: number }[];
}

/** Keeps {@link PAIRS} of the batches told so far, each with the same probability. */
export class FixtureSample {
  readonly #random: Random;
  readonly #pairs: FixturesFile["pairs"][number][] = [];
  #seen = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  add(id: string, features: ArrayLike<number>, score: number): void {
    const place = this.#pairs.length < PAIRS ? this.#seen : randomBelow(this.#random, this.#seen + 1);
    this.#seen++;
    if (place < PAIRS) this.#pairs[place] = { id, features: Array.from(features), score };
  }

  file(): FixturesFile {
    return { version: 1, n_features: BATCH_FEATURES, pairs: this.#pairs };
  }
}
