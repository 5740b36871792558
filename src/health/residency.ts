/** Which models are loaded or being loaded, as the backend children last said (health-telemetry.md 4). */

import { sortedUnion } from "../runtime/sorted_union.ts";

/** Age after which what a silent child was loading is forgotten, in milliseconds. */
export const LOADING_EXPIRY_MS = 15_000;

/** What one backend child answered to a heartbeat. */
export interface ResidencyAnswer {
  /** Index of the child. */
  readonly child: number;
  /** Ready in the sense of the heartbeat round; only then its loaded models count. */
  readonly ready: boolean;
  readonly loadedModels: readonly string[];
  readonly loadingModels: readonly string[];
}

interface ChildLoading {
  readonly models: readonly string[];
  readonly at: number;
}

/** Keeps both lists between rounds. */
export class Residency {
  readonly #loading = new Map<number, ChildLoading>();
  #loadedModels: readonly string[] = [];
  #loadingModels: readonly string[] = [];

  /** Loaded models of the last round with a ready child; sorted, without duplicates. */
  get loadedModels(): readonly string[] {
    return this.#loadedModels;
  }

  /** Models being loaded; trimmed, sorted, without empty ones and duplicates. */
  get loadingModels(): readonly string[] {
    return this.#loadingModels;
  }

  /**
   * Takes the answers of one round; a child without an answer is left out.
   *
   * @param now monotonic milliseconds.
   * @returns true when the loading models changed: a health message is due at once.
   */
  update(now: number, answers: readonly ResidencyAnswer[]): boolean {
    const ready = answers.filter((answer) => answer.ready);
    if (ready.length > 0) this.#loadedModels = sortedUnion(ready.map((answer) => answer.loadedModels));
    for (const answer of answers) this.#loading.set(answer.child, { models: answer.loadingModels, at: now });
    for (const [child, loading] of this.#loading) {
      if (now - loading.at > LOADING_EXPIRY_MS) this.#loading.delete(child);
    }
    const before = this.#loadingModels;
    const lists = [...this.#loading.values()].map(({ models }) => models.map((model) => model.trim()));
    this.#loadingModels = sortedUnion(lists).filter((model) => model !== "");
    return before.length !== this.#loadingModels.length ||
      before.some((model, at) => model !== this.#loadingModels[at]);
  }
}
