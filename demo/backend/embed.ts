/** Embeddings without a neural network: hashed character n-grams, weighted by how rare their word is. Deterministic. */
import { hash32, words, type WordStatistics } from "./text.ts";

/** Length of a dense vector. */
export const DENSE_DIMS = 256;
/** Length of a sparse vector; a word is one dimension. */
export const SPARSE_DIMS = 32_768;

const SHORTEST_GRAM = 3;
const LONGEST_GRAM = 5;

/** A sparse vector; indices ascend. */
export interface SparseVector {
  readonly indices: readonly number[];
  readonly values: readonly number[];
}

/** A dense vector of length 1; all zero for a text without words. */
export function embedDense(text: string, statistics: WordStatistics): Float32Array {
  const sums = new Float64Array(DENSE_DIMS);
  for (const [word, count] of counted(words(text))) {
    const weight = (1 + Math.log(count)) * statistics.rarity(word);
    const grams = gramsOf(word);
    for (const gram of grams) {
      const hash = hash32(gram);
      // A hash decides the sign too, so that collisions cancel out on average.
      sums[hash % DENSE_DIMS] = (sums[hash % DENSE_DIMS] as number) +
        (hash >>> 31 === 0 ? 1 : -1) * weight / grams.length;
    }
  }
  const norm = Math.hypot(...sums);
  return Float32Array.from(sums, (sum) => norm === 0 ? 0 : sum / norm);
}

/** Words as dimensions, weighted by count and rarity. */
export function embedSparse(text: string, statistics: WordStatistics): SparseVector {
  const weights = new Map<number, number>();
  for (const [word, count] of counted(words(text))) {
    const index = hash32(word, 1) % SPARSE_DIMS;
    weights.set(index, (weights.get(index) ?? 0) + (1 + Math.log(count)) * statistics.rarity(word));
  }
  const sorted = [...weights].sort(([a], [b]) => a - b);
  return { indices: sorted.map(([index]) => index), values: sorted.map(([, weight]) => Math.fround(weight)) };
}

/** Character n-grams of a word with its ends marked, and the word itself. */
function gramsOf(word: string): string[] {
  const marked = [...`<${word}>`];
  const grams = [word];
  for (let length = SHORTEST_GRAM; length <= LONGEST_GRAM; length++) {
    for (let at = 0; at + length <= marked.length; at++) grams.push(marked.slice(at, at + length).join(""));
  }
  return grams;
}

function counted(all: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const word of all) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}
