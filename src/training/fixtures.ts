/** The pairs with known scores that the stability gate uses (online-training.md, section 6.3). */
import * as v from "valibot";
import { errorText } from "../runtime/errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { readFileBounded } from "./atomic_file.ts";
import { TrainingError } from "./errors.ts";
import type { TrainingLog } from "./log.ts";
import { sha256Hex } from "./sha256.ts";

/** Fixtures, ready to be scored. */
export interface Fixtures {
  readonly count: number;
  /** Row-major [count, N]. */
  readonly features: Float32Array;
  readonly scores: Float32Array;
  /** Digest of the file, so that a verdict tells which fixtures it rests on. */
  readonly sha256: string;
}

const MAX_FILE_BYTES = 16 * 1024 * 1024;
const FEWEST = 2, USUAL = { from: 10, to: 20 } as const;

const schema = v.object({
  version: v.literal(1),
  n_features: v.number(),
  pairs: v.array(v.object({
    id: v.string(),
    features: v.array(v.number()),
    score: v.number(),
  })),
});

/**
 * Reads a fixtures file.
 *
 * @throws TrainingError `invalid_fixtures` when the file is missing, malformed, of another width, or has fewer than 2 pairs.
 */
export async function loadFixtures(
  path: string,
  nFeatures: number,
  clock: Clock,
  log: TrainingLog,
): Promise<Fixtures> {
  const bytes = await readFixtureFile(path);
  const parsed = v.safeParse(schema, parseJson(bytes));
  if (!parsed.success) {
    const [issue] = parsed.issues;
    throw invalid(`${v.getDotPath(issue) ?? "the file"}: ${issue.message}`);
  }
  const { pairs, n_features: width } = parsed.output;
  if (width !== nFeatures) throw invalid(`n_features is ${width} where the trainer has ${nFeatures}`);
  if (pairs.length < FEWEST) throw invalid(`there must be at least ${FEWEST} pairs, got ${pairs.length}`);
  const features = new Float32Array(pairs.length * nFeatures), scores = new Float32Array(pairs.length);
  pairs.forEach((pair, i) => {
    if (pair.features.length !== nFeatures) {
      throw invalid(`pair ${i} has ${pair.features.length} features where the trainer has ${nFeatures}`);
    }
    features.set(pair.features, i * nFeatures);
    scores[i] = pair.score;
  });
  if (!features.every(Number.isFinite) || !scores.every(Number.isFinite)) {
    throw invalid("a feature or a score is not a finite float32");
  }
  if (pairs.length < USUAL.from || pairs.length > USUAL.to) {
    log.warn(`gate fixtures ${path}: ${pairs.length} pairs, ${USUAL.from} to ${USUAL.to} are usual`);
  }
  return { count: pairs.length, features, scores, sha256: await sha256Hex(bytes, clock) };
}

async function readFixtureFile(path: string): Promise<Uint8Array> {
  try {
    const bytes = await readFileBounded(path, MAX_FILE_BYTES);
    if (bytes !== undefined) return bytes;
  } catch (thrown) {
    throw invalid(errorText(thrown));
  }
  throw invalid(`${path} does not exist`);
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (thrown) {
    throw invalid(`not JSON: ${errorText(thrown)}`);
  }
}

function invalid(reason: string): TrainingError {
  return new TrainingError("invalid_fixtures", `gate fixtures: ${reason}`);
}
