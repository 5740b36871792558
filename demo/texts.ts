/** The shipped texts: sentences under their topics, and queries. */

/** One sentence of the collection that is searched. */
export interface Sentence {
  readonly topic: string;
  readonly text: string;
}

/** Sentences from `sentences.txt`: one a line, a line `# topic` above those of a topic. */
export function readSentences(content: string): Sentence[] {
  const sentences: Sentence[] = [];
  let topic = "";
  for (const line of lines(content)) {
    if (line.startsWith("#")) topic = line.slice(1).trim();
    else sentences.push({ topic, text: line });
  }
  return sentences;
}

/** Queries from `queries.txt`, one a line. */
export function readQueries(content: string): string[] {
  return lines(content);
}

function lines(content: string): string[] {
  return content.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}
