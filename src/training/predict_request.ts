/** The body of `POST /predict` (online-training.md, section 6.2): `{"features":[[…],…]}`. */
import { errorText } from "../runtime/errors.ts";

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
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch (thrown) {
    return invalid(`invalid JSON: ${errorText(thrown)}`);
  }
  const rows = typeof value === "object" && value !== null ? (value as { features?: unknown }).features : undefined;
  if (!Array.isArray(rows) || rows.length === 0) return invalid("features must be a non-empty array of rows");
  // Before memory is taken: empty rows cost the caller three bytes each.
  const short = rows.findIndex((row) => !Array.isArray(row) || row.length !== nFeatures);
  if (short >= 0) return invalid(`features[${short}] must be an array of ${nFeatures} numbers`);
  const features = new Float32Array(rows.length * nFeatures);
  for (const [at, row] of (rows as unknown[][]).entries()) {
    for (let i = 0; i < nFeatures; i++) {
      const number: unknown = row[i];
      if (typeof number !== "number" || !Number.isFinite(Math.fround(number))) {
        return invalid(`features[${at}][${i}] is not a finite number`);
      }
      features[at * nFeatures + i] = number;
    }
  }
  return { kind: "rows", count: rows.length, features };
}

function invalid(error: string): PredictRequest {
  return { kind: "invalid", error };
}
