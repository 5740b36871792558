/** The work that the demonstration sends: sentences to embed, queries to score against them, entities to extract. */
import type { WorkInput } from "../src/client/requests.ts";
import { callAll, type Timing } from "./measure.ts";
import type { Entrance } from "./entrance.ts";
import { denseOf, entitiesOf, type Entity, scoresOf } from "./results.ts";
import type { Screen } from "./screen.ts";
import type { Sentence } from "./texts.ts";

/** Calls on their way at a time, each with one item: as many users would send them. */
export const CALLERS = 48;
/** Sentences nearest to a query that are scored. */
export const CANDIDATES = 30;

/** The backend's model for each operation. */
export const MODELS = {
  encode: "demo/ngram-256",
  score: "demo/lexical",
  extract: "demo/patterns",
  generate: "demo/markov",
} as const;

type Operation = Exclude<keyof typeof MODELS, "generate">;
const CALL_TIMEOUT_MS = 60_000;

/** A sentence beside a query. */
export interface Match {
  readonly sentence: Sentence;
  /** Cosine of the angle between both embeddings; 1 is the same direction. */
  readonly similarity: number;
  /** BM25 of the words they share. */
  readonly score: number;
}

/** What came of the work. */
export interface Findings {
  readonly timings: ReadonlyMap<Operation, Timing>;
  /** The sentences most similar to each query, those with the highest score first. */
  readonly matches: ReadonlyMap<string, readonly Match[]>;
  /** Entities of all sentences. */
  readonly entities: readonly Entity[];
}

/** Sends everything and collects what comes back. */
export async function doWork(
  entrance: Entrance,
  sentences: readonly Sentence[],
  queries: readonly string[],
  screen: Screen,
  signal: AbortSignal,
): Promise<Findings> {
  const one = async (operation: Operation, input: WorkInput) => {
    const request = { operation, model: MODELS[operation], inputs: [input], timeoutMs: CALL_TIMEOUT_MS };
    const [result] = await entrance.publishWork(request, signal);
    if (result === undefined) throw new TypeError("publishWork gave no result for its one input");
    return result;
  };
  const counted = (label: string, total: number) => (done: number) => screen.progress(label, `${done} of ${total}`);

  const texts = [...sentences.map(({ text }) => text), ...queries];
  const encode = await callAll(texts, CALLERS, async (text) => {
    return denseOf(await one("encode", { item: { text }, outputTypes: ["dense"] }));
  }, counted("encode", texts.length));
  screen.step("encode", `${texts.length} texts into 256 numbers each: ${seconds(encode.timing.totalMs)}`);

  const vectors = encode.answers.slice(0, sentences.length);
  const nearest = queries.map((query, at) => {
    const vector = encode.answers[sentences.length + at] ?? new Float64Array(0);
    return { query, candidates: nearestOf(vector, sentences, vectors, CANDIDATES) };
  });
  const score = await callAll(nearest, CALLERS, async ({ query, candidates }) => {
    const scoreItems = candidates.map(({ sentence }, at) => ({ id: `${at}`, text: sentence.text }));
    return scoresOf(await one("score", { queryItem: { text: query }, scoreItems }));
  }, counted("score", nearest.length));
  screen.step(
    "score",
    `${queries.length} queries against ${CANDIDATES} sentences each: ${seconds(score.timing.totalMs)}`,
  );

  const extract = await callAll(sentences, CALLERS, async ({ text }) => {
    return entitiesOf(await one("extract", { item: { text } }));
  }, counted("extract", sentences.length));
  screen.step("extract", `entities of ${sentences.length} sentences: ${seconds(extract.timing.totalMs)}`);

  const matches = nearest.map(({ query, candidates }, at): [string, Match[]] => {
    const scores = new Map(score.answers[at]?.map(({ id, score }) => [id, score]));
    const scored = candidates.map((candidate, index) => ({ ...candidate, score: scores.get(`${index}`) ?? NaN }));
    return [query, scored.sort((a, b) => b.score - a.score)];
  });
  return {
    timings: new Map([["encode", encode.timing], ["score", score.timing], ["extract", extract.timing]]),
    matches: new Map(matches),
    entities: extract.answers.flat(),
  };
}

function nearestOf(
  vector: Float64Array,
  sentences: readonly Sentence[],
  vectors: readonly Float64Array[],
  count: number,
): Omit<Match, "score">[] {
  const all = sentences.map((sentence, at) => ({
    sentence,
    similarity: cosine(vector, vectors[at] ?? new Float64Array(0)),
  }));
  return all.sort((a, b) => b.similarity - a.similarity).slice(0, count);
}

/** Cosine of the angle between two vectors of the same length; 0 when one of them is all zero. */
export function cosine(a: Float64Array, b: Float64Array): number {
  let dot = 0, left = 0, right = 0;
  for (const [at, value] of a.entries()) {
    const other = b[at] ?? NaN;
    dot += value * other;
    left += value * value;
    right += other * other;
  }
  return left === 0 || right === 0 ? 0 : dot / Math.sqrt(left * right);
}

/** `0.12 s` */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(2)} s`;
}
