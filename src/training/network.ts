/**
 * Forward and backward pass of the two-layer network, without allocation. Storage is float32; sums run in double, which
 * is at least as exact as the float32 sums of the reference (online-training.md, sections 2.1 and 2.3).
 *
 * A pass over a batch can be cut into row ranges, so that a wide model never holds the event loop for long.
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
 * Predictions of the rows `from` ≤ row < `to`.
 *
 * @param features row-major [rows, N].
 * @param hidden receives the activations after ReLU, [rows, 64], when given; otherwise nothing is kept.
 * @param predictions receives one score a row, in the unit of the targets.
 */
export function forwardRows(
  params: Params,
  features: Float32Array,
  from: number,
  to: number,
  predictions: Float32Array,
  hidden?: Float32Array,
): void {
  const { nFeatures: n, w0, b0, w1 } = params;
  const outputBias = params.b1[0] as number;
  for (let row = from; row < to; row++) {
    const x = row * n;
    let sum = outputBias;
    for (let unit = 0; unit < HIDDEN; unit++) {
      // Rounded to float32 before it is used, so that the scorer's answer does not depend on whether `hidden` is kept.
      const z = Math.fround(dot(w0, unit * n, features, x, n) + (b0[unit] as number));
      const activation = z > 0 || z !== z ? z : 0;
      if (hidden !== undefined) hidden[row * HIDDEN + unit] = activation;
      if (activation !== 0) sum += activation * (w1[unit] as number);
    }
    predictions[row] = sum;
  }
}

/**
 * Adds the gradients of the rows `from` ≤ row < `to` to `grads`.
 *
 * The loss is the mean squared error of the whole batch: dL/dy = 2(y − t)/B. The gradient of ReLU at exactly 0 is 0.
 *
 * @param batch B, the rows of the whole batch.
 * @returns the sum of squared errors of these rows (the loss is the sum over all rows divided by B).
 */
export function backwardRows(
  params: Params,
  features: Float32Array,
  targets: Float32Array,
  predictions: Float32Array,
  hidden: Float32Array,
  from: number,
  to: number,
  batch: number,
  grads: Params,
): number {
  const { nFeatures: n, w1 } = params;
  const { w0: gw0, b0: gb0, w1: gw1, b1: gb1 } = grads;
  let squares = 0;
  for (let row = from; row < to; row++) {
    const error = (predictions[row] as number) - (targets[row] as number);
    squares += error * error;
    const dy = 2 * error / batch;
    gb1[0] = (gb1[0] as number) + dy;
    const x = row * n;
    for (let unit = 0; unit < HIDDEN; unit++) {
      const activation = hidden[row * HIDDEN + unit] as number;
      if (activation === 0) continue;
      gw1[unit] = (gw1[unit] as number) + dy * activation;
      const dz = dy * (w1[unit] as number);
      gb0[unit] = (gb0[unit] as number) + dz;
      const base = unit * n;
      for (let i = 0; i < n; i++) gw0[base + i] = (gw0[base + i] as number) + dz * (features[x + i] as number);
    }
  }
  return squares;
}
