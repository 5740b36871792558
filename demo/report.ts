/** The findings as tables. */
import { percentile, spread } from "./measure.ts";
import { cut, type Screen, table } from "./screen.ts";
import { CALLERS, CANDIDATES, type Findings } from "./work.ts";

const QUERIES_SHOWN = 4;
const MATCHES_SHOWN = 3;
const EXAMPLES_SHOWN = 12;
/** Columns in front of a sentence in the table of matches, and of examples in that of entities. */
const BEFORE_SENTENCE = 34;
const BEFORE_EXAMPLES = 18;

/** What is nearest to some of the queries. */
export function showMatches(screen: Screen, findings: Findings): void {
  screen.title(`Nearest sentences: of the ${CANDIDATES} most similar ones, those with the highest score`);
  for (const [query, matches] of [...findings.matches].slice(0, QUERIES_SHOWN)) {
    screen.line();
    screen.line(`  ${query}`);
    const rows = matches.slice(0, MATCHES_SHOWN).map(({ sentence, similarity, score }) => [
      similarity.toFixed(2),
      score.toFixed(1),
      sentence.topic,
      cut(sentence.text, screen.width - BEFORE_SENTENCE),
    ]);
    for (const line of table([["similarity", "score", "topic", "sentence"], ...rows])) screen.line(`  ${line}`);
  }
  screen.line();
  screen.line(
    "  Similarity: cosine of both embeddings. Score: BM25 of the words in common.",
  );
}

/** How many entities of each kind there are, with examples. */
export function showEntities(screen: Screen, findings: Findings): void {
  screen.title("Entities found in the sentences");
  const byLabel = Map.groupBy(findings.entities, ({ label }) => label);
  const rows = [...byLabel].sort(([a], [b]) => a < b ? -1 : 1).map(([label, entities]) => {
    const examples = [...new Set(entities.map(({ text }) => text))].slice(0, EXAMPLES_SHOWN).join(", ");
    return [label, `${entities.length}`, cut(examples, screen.width - BEFORE_EXAMPLES)];
  });
  for (const line of table([["kind", "found", "for example"], ...rows])) screen.line(line);
}

/** Batches, latencies and throughput of each operation. */
export function showFigures(screen: Screen, findings: Findings, batches: ReadonlyMap<string, readonly number[]>): void {
  screen.title(`Batches and speed: ${CALLERS} callers at once, one item a call`);
  const head = ["", "items", "batches", "smallest", "median", "largest", "p50 ms", "p99 ms", "items/s"];
  const rows = [...findings.timings].map(([operation, { latenciesMs, totalMs }]) => {
    const sizes = spread(batches.get(operation) ?? []);
    return [
      operation,
      `${latenciesMs.length}`,
      `${sizes.count}`,
      `${sizes.min}`,
      `${sizes.median}`,
      `${sizes.max}`,
      percentile(latenciesMs, 50).toFixed(1),
      percentile(latenciesMs, 99).toFixed(1),
      Math.round(latenciesMs.length / totalMs * 1000).toLocaleString("en-GB"),
    ];
  });
  for (const line of table([head, ...rows])) screen.line(line);
  screen.line("  Batch sizes in items; p50 and p99 of the time from a call to its result.");
}
