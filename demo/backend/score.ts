/** Lexical relevance of documents to a query: BM25, plus a little for words that share their beginning. Deterministic. */
import { words, type WordStatistics } from "./text.ts";

const SATURATION = 1.2;
const LENGTH_WEIGHT = 0.75;
/** What a document word counts that only begins like a query word ("weld" and "welder"). */
const SAME_STEM = 0.4;
const STEM_LENGTH = 4;

/** One score a document, in the order of the documents; 0 for nothing in common. */
export function scoreDocuments(query: string, documents: readonly string[], statistics: WordStatistics): number[] {
  const wanted = [...new Set(words(query))];
  return documents.map((document) => Math.fround(scoreOne(wanted, words(document), statistics)));
}

function scoreOne(wanted: readonly string[], document: readonly string[], statistics: WordStatistics): number {
  const shortness = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * document.length / statistics.averageLength;
  let score = 0;
  for (const word of wanted) {
    const frequency = frequencyOf(word, document);
    score += statistics.rarity(word) * frequency * (SATURATION + 1) / (frequency + SATURATION * shortness);
  }
  return score;
}

function frequencyOf(word: string, document: readonly string[]): number {
  const stem = word.length > STEM_LENGTH ? word.slice(0, STEM_LENGTH) : undefined;
  let frequency = 0;
  for (const other of document) {
    if (other === word) frequency++;
    else if (stem !== undefined && other.startsWith(stem)) frequency += SAME_STEM;
  }
  return frequency;
}
