/** What the results of the three batch operations hold (spec/queue.md 3.2), as far as the demonstration shows it. */
import { decodeValue, type ReadValue } from "../src/client/values.ts";
import { type NumpyArray, numpyValues } from "../src/wire/numpy.ts";
import type { WorkResult } from "../src/wire/work_result_reader.ts";
import { DemoFailure } from "./failure.ts";

/** One document's place for a query. */
export interface Score {
  readonly id: string;
  readonly score: number;
}

/** A stretch of text that was recognised. */
export interface Entity {
  readonly label: string;
  readonly text: string;
}

/**
 * The numbers of a dense embedding.
 *
 * @throws DemoFailure when the item failed, or its result has another form; so do the others here
 */
export function denseOf(result: WorkResult): Float64Array {
  return numpyValues(numpy(member(member(contentOf(result), "dense"), "values")));
}

/** The scores of a query's documents, best first. */
export function scoresOf(result: WorkResult): Score[] {
  return list(contentOf(result)).map((entry) => {
    const score = member(entry, "score");
    if (typeof score !== "number") throw unexpected("a score that is no number");
    return { id: text(member(entry, "item_id")), score };
  });
}

/** The entities of a text, in its order. */
export function entitiesOf(result: WorkResult): Entity[] {
  return list(member(contentOf(result), "entities")).map((entity) => ({
    label: text(member(entity, "label")),
    text: text(member(entity, "text")),
  }));
}

function contentOf(result: WorkResult): ReadValue {
  if (!result.success) throw new DemoFailure(`${result.workItemId} failed: ${result.errorCode}: ${result.error}`);
  return decodeValue(result.resultMsgpack);
}

function member(value: ReadValue, name: string): ReadValue {
  const isMap = typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
  const found = isMap ? (value as { readonly [key: string]: ReadValue })[name] : undefined;
  if (found === undefined) throw unexpected(`no '${name}'`);
  return found;
}

function list(value: ReadValue): ReadValue[] {
  if (!Array.isArray(value)) throw unexpected("no list where one is due");
  return value;
}

function text(value: ReadValue): string {
  if (typeof value !== "string") throw unexpected("no text where one is due");
  return value;
}

function numpy(value: ReadValue): NumpyArray {
  if (typeof value === "object" && value !== null && "dtype" in value && value.dtype !== undefined) {
    return value as NumpyArray;
  }
  throw unexpected("no array of numbers where one is due");
}

function unexpected(what: string): DemoFailure {
  return new DemoFailure(`a result is not as expected: ${what}`);
}
