/** Scores of many rows in slices that leave the event loop free. */
import type { Clock } from "../runtime/clock.ts";
import { forwardRows } from "./network.ts";
import { HIDDEN, type Params } from "./params.ts";
import { breathe } from "./step_runner.ts";

/** Multiplications at a time, as for a training step. */
const SLICE = 8_000_000;

/**
 * Scores `count` rows of `features`, row-major. All rows are scored by `params`, which must not change meanwhile.
 *
 * @returns one score a row; not checked to be finite.
 */
export async function scoreRows(
  params: Params,
  features: Float32Array,
  count: number,
  clock: Clock,
): Promise<Float32Array> {
  const scores = new Float32Array(count);
  const rows = Math.max(1, Math.floor(SLICE / (params.nFeatures * HIDDEN)));
  for (let from = 0; from < count; from += rows) {
    if (from > 0) await breathe(clock);
    forwardRows(params, features, from, Math.min(count, from + rows), scores);
  }
  return scores;
}
