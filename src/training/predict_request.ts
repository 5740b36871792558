/**
 * The body of `POST /predict` (online-training.md, section 6.2): `{"features":[[…],…]}`. It is walked over, not built: a
 * megabyte of narrow rows as arrays of their own would hold the event loop for a tenth of a second.
 */
import { JsonCursor, JsonSyntaxError } from "./json_cursor.ts";

/** A checked body. */
export type PredictRequest =
  | {
    readonly kind: "rows";
    readonly count: number;
    /** Row-major [count, N], finite. */
    readonly features: Float32Array;
  }
  | { readonly kind: "invalid"; readonly error: string };

/** Checks a body: at least one row, every row exactly N numbers that are finite as float32. */
export function parsePredictRequest(body: Uint8Array, nFeatures: number): PredictRequest {
  const cursor = new JsonCursor();
  let request: PredictRequest | undefined;
  cursor.open(body, 0, body.length);
  try {
    if (cursor.kind() !== "object") cursor.skip();
    else {
      for (let more = cursor.enter("object"); more; more = cursor.next("object")) {
        if (cursor.key() !== "features") cursor.skip(2);
        else if (request !== undefined) return invalid("features occurs twice");
        else request = readRows(cursor, nFeatures);
      }
    }
    cursor.finish();
  } catch (thrown) {
    if (thrown instanceof JsonSyntaxError) return invalid(`invalid JSON: ${thrown.message}`);
    throw thrown;
  }
  return request ?? invalid(NO_ROWS);
}

const NO_ROWS = "features must be a non-empty array of rows";

function readRows(cursor: JsonCursor, nFeatures: number): PredictRequest {
  if (cursor.kind() !== "array") {
    cursor.skip(2);
    return invalid(NO_ROWS);
  }
  let features = new Float32Array(nFeatures), count = 0;
  let fault: string | undefined;
  for (let more = cursor.enter("array"); more; more = cursor.next("array"), count++) {
    if (fault !== undefined || cursor.kind() !== "array") {
      fault ??= wrongRow(count, nFeatures);
      cursor.skip(3);
      continue;
    }
    // Only whole rows came before, so memory grows with what was sent.
    if ((count + 1) * nFeatures > features.length) features = doubled(features);
    fault = readRow(cursor, nFeatures, features, count);
  }
  if (fault !== undefined) return invalid(fault);
  return count === 0 ? invalid(NO_ROWS) : { kind: "rows", count, features: features.subarray(0, count * nFeatures) };
}

/** Reads row number `at` into its place. Returns what is wrong with it. */
function readRow(cursor: JsonCursor, nFeatures: number, features: Float32Array, at: number): string | undefined {
  let length = 0, odd = -1;
  for (let more = cursor.enter("array"); more; more = cursor.next("array"), length++) {
    let value = NaN;
    if (cursor.kind() === "number") value = Math.fround(cursor.number());
    else cursor.skip(4);
    if (odd < 0 && !Number.isFinite(value)) odd = length;
    if (length < nFeatures) features[at * nFeatures + length] = value;
  }
  if (length !== nFeatures) return wrongRow(at, nFeatures);
  return odd < 0 ? undefined : `features[${at}][${odd}] is not a finite number`;
}

function doubled(values: Float32Array): Float32Array<ArrayBuffer> {
  const larger = new Float32Array(2 * values.length);
  larger.set(values);
  return larger;
}

function wrongRow(at: number, nFeatures: number): string {
  return `features[${at}] must be an array of ${nFeatures} numbers`;
}

function invalid(error: string): PredictRequest {
  return { kind: "invalid", error };
}
