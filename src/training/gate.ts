/** The stability gate: does a new version still rank the fixtures as well as the one before it? (section 6.3) */

/** Slack that lets a regression of exactly the limit pass despite rounding. */
const EXACT_LIMIT_SLACK = 1e-12;

/** Vocabulary of the published status. */
export type GateResult = "passed" | "failed" | "skipped";

/**
 * Pearson's correlation between predictions and known scores.
 *
 * @returns r in −1 to 1, or undefined with fewer than two pairs, unequal lengths, a constant side or a non-finite number.
 */
export function pearson(predictions: ArrayLike<number>, truth: ArrayLike<number>): number | undefined {
  const count = predictions.length;
  if (count < 2 || truth.length !== count) return undefined;
  let meanA = 0, meanB = 0;
  for (let i = 0; i < count; i++) {
    meanA += predictions[i] as number;
    meanB += truth[i] as number;
  }
  meanA /= count;
  meanB /= count;
  let ab = 0, aa = 0, bb = 0;
  for (let i = 0; i < count; i++) {
    const a = (predictions[i] as number) - meanA, b = (truth[i] as number) - meanB;
    ab += a * b;
    aa += a * a;
    bb += b * b;
  }
  const scale = Math.sqrt(aa * bb);
  if (scale === 0 || !Number.isFinite(scale)) return undefined;
  return ab / scale;
}

/**
 * The verdict on a version with correlation `candidate`, where the version it is compared with had `previous`.
 *
 * failed: the candidate's is undefined, or lower by more than `maxRegression`. skipped: nothing to compare with.
 */
export function gateVerdict(
  previous: number | undefined,
  candidate: number | undefined,
  maxRegression: number,
): GateResult {
  if (candidate === undefined) return "failed";
  if (previous === undefined) return "skipped";
  return previous - candidate > maxRegression + EXACT_LIMIT_SLACK ? "failed" : "passed";
}
