/** A text generator that knows which word followed which two in the text it was trained on. Deterministic for a seed. */
import { hash32 } from "./text.ts";

const START = "\u0002";
const END = "\u0003";

/** Followers of a state with their counts. */
type Followers = Map<string, number>;

/** What a generation may set. */
export interface Sampling {
  /** 0 always takes the likeliest word; 1 follows the counts. */
  readonly temperature: number;
  readonly seed: number;
}

/** A Markov chain over words, of order two with a fall back to order one. */
export class MarkovChain {
  readonly #pairs = new Map<string, Followers>();
  readonly #singles = new Map<string, Followers>();

  /** Learns one sentence. */
  train(sentence: string): void {
    let before = START, last = START;
    for (const word of [...sentence.split(/\s+/).filter((part) => part !== ""), END]) {
      count(this.#pairs, `${before} ${last}`, word);
      count(this.#singles, last, word);
      before = last;
      last = word;
    }
  }

  /**
   * Words that go on from a prompt, without end: after a full stop a new sentence begins. The first one continues the prompt when
   * its last words are known.
   */
  *generate(prompt: string, sampling: Sampling): Generator<string, never, undefined> {
    const random = generator(sampling.seed);
    let [before, last] = this.#entry(prompt);
    for (;;) {
      const followers = this.#pairs.get(`${before} ${last}`) ?? this.#singles.get(last);
      const word = followers === undefined ? END : choose(followers, sampling.temperature, random);
      if (word === END) {
        [before, last] = [START, START];
        continue;
      }
      yield word;
      [before, last] = [last, word];
    }
  }

  /** The last two words of the prompt if one of them leads on; else the start of a sentence. */
  #entry(prompt: string): [string, string] {
    const parts = prompt.split(/\s+/).filter((part) => part !== "");
    const last = parts.at(-1) ?? START;
    const before = parts.at(-2) ?? START;
    const leadsOn = this.#pairs.has(`${before} ${last}`) || this.#singles.get(last)?.has(END) === false;
    return leadsOn ? [before, last] : [START, START];
  }
}

/** A seed from a text, for callers that gave none. */
export function seedOf(text: string): number {
  return hash32(text, 2);
}

function count(table: Map<string, Followers>, state: string, word: string): void {
  let followers = table.get(state);
  if (followers === undefined) table.set(state, followers = new Map());
  followers.set(word, (followers.get(word) ?? 0) + 1);
}

function choose(followers: Followers, temperature: number, random: () => number): string {
  const entries = [...followers];
  const weights = entries.map(([, n]) => temperature <= 0 ? n : n ** (1 / temperature));
  if (temperature <= 0) return entries[weights.indexOf(Math.max(...weights))]?.[0] ?? END;
  let left = random() * weights.reduce((sum, weight) => sum + weight, 0);
  for (const [index, weight] of weights.entries()) {
    left -= weight;
    if (left < 0) return entries[index]?.[0] ?? END;
  }
  return entries.at(-1)?.[0] ?? END;
}

/** Numbers in [0, 1) from a seed (the generator known as mulberry32). */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
