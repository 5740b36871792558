/** The models of the demonstration, what they can do, and the work of loading them. */
import type { Clock } from "../../src/runtime/clock.ts";
import { lines, WordStatistics } from "./text.ts";
import { MarkovChain } from "./markov.ts";

/** What a model may be asked for. */
export type Operation = "encode" | "score" | "extract" | "generate";

/** Tables that all models share, built from the corpus. */
export interface Tables {
  readonly statistics: WordStatistics;
  readonly chain: MarkovChain;
}

/** The models by id. */
export const MODELS: ReadonlyMap<string, readonly Operation[]> = new Map<string, readonly Operation[]>([
  ["demo/all", ["encode", "score", "extract", "generate"]],
  ["demo/lexical", ["score"]],
  ["demo/markov", ["generate"]],
  ["demo/ngram-256", ["encode"]],
  ["demo/patterns", ["extract"]],
]);

/** Sentences that are taken up between two looks at the sockets. */
const SENTENCES_A_SLICE = 32;

/** Answer to "is this model there?". */
export type LoadState = "ready" | "loading_started" | "loading_in_progress" | "retry_later";

/** Which models are loaded. The tables are built once, when the first model is asked for. */
export class ModelStore {
  readonly #corpus: string;
  readonly #clock: Clock;
  readonly #loaded = new Set<string>();
  readonly #loading = new Map<string, Promise<void>>();
  #tables: Promise<Tables> | undefined;
  #built: Tables | undefined;

  /** @param corpus one sentence a line */
  constructor(corpus: string, clock: Clock) {
    this.#corpus = corpus;
    this.#clock = clock;
  }

  get loaded(): string[] {
    return [...this.#loaded].sort();
  }

  get loading(): string[] {
    return [...this.#loading.keys()].sort();
  }

  /** The state of a model; asking for one that is not loaded starts its load. */
  ensure(id: string): LoadState {
    if (!MODELS.has(id)) return "retry_later";
    if (this.#loaded.has(id)) return "ready";
    if (this.#loading.has(id)) return "loading_in_progress";
    void this.load(id);
    return "loading_started";
  }

  /** Loads a model and waits for it. False when there is no such model. */
  async load(id: string): Promise<boolean> {
    if (!MODELS.has(id)) return false;
    let loading = this.#loading.get(id);
    if (loading === undefined && !this.#loaded.has(id)) {
      this.#tables ??= this.#build();
      loading = this.#tables.then(() => {
        this.#loading.delete(id);
        this.#loaded.add(id);
      });
      this.#loading.set(id, loading);
    }
    await loading;
    return true;
  }

  /** The tables for a loaded model; undefined when it is not. */
  tablesFor(id: string): Tables | undefined {
    return this.#loaded.has(id) ? this.#built : undefined;
  }

  async #build(): Promise<Tables> {
    const tables = { statistics: new WordStatistics(), chain: new MarkovChain() };
    const sentences = lines(this.#corpus);
    for (let at = 0; at < sentences.length; at += SENTENCES_A_SLICE) {
      for (const sentence of sentences.slice(at, at + SENTENCES_A_SLICE)) {
        tables.statistics.add(sentence);
        tables.chain.train(sentence);
      }
      await new Promise<void>((resolve) => this.#clock.after(0, resolve));
    }
    return this.#built = tables;
  }
}
