/**
 * Scores of the two-layer network, for models that serve (training has its own loops, `kernels.ts`). Storage is float32;
 * sums run in double (online-training.md, section 2.1).
 */
import { HIDDEN, type Params } from "./params.ts";

/** Dot product of `count` numbers of `a` from `aOffset` and of `b` from `bOffset`. */
function dot(a: Float32Array, aOffset: number, b: Float32Array, bOffset: number, count: number): number {
  // Four independent sums: the additions of one do not wait for those of the others.
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  const whole = count - (count & 3);
  let i = 0;
  for (; i < whole; i += 4) {
    const x = aOffset + i, y = bOffset + i;
    s0 += (a[x] as number) * (b[y] as number);
    s1 += (a[x + 1] as number) * (b[y + 1] as number);
    s2 += (a[x + 2] as number) * (b[y + 2] as number);
    s3 += (a[x + 3] as number) * (b[y + 3] as number);
  }
  for (; i < count; i++) s0 += (a[aOffset + i] as number) * (b[bOffset + i] as number);
  return (s0 + s1) + (s2 + s3);
}

/**
 * Predictions of the rows `from` ≤ row < `to`. A large batch can be cut into row ranges, so that it does not hold the event
 * loop for long.
 *
 * @param features row-major [rows, N].
 * @param predictions receives one score a row, in the unit of the targets.
 */
export function forwardRows(
  params: Params,
  features: Float32Array,
  from: number,
  to: number,
  predictions: Float32Array,
): void {
  const { nFeatures: n, w0, b0, w1 } = params;
  const outputBias = params.b1[0] as number;
  for (let row = from; row < to; row++) {
    const x = row * n;
    let sum = outputBias;
    for (let unit = 0; unit < HIDDEN; unit++) {
      const z = dot(w0, unit * n, features, x, n) + (b0[unit] as number);
      // A comparison alone would turn NaN into 0.
      if (z > 0 || z !== z) sum += z * (w1[unit] as number);
    }
    predictions[row] = sum;
  }
}
