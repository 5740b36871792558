/**
 * The numbers of the model: two dense layers, N inputs → 64 hidden units with ReLU → 1 output
 * (online-training.md, section 2.1).
 */
import type { Random } from "./random.ts";

/** Hidden units; fixed by the contract, every reader checks it. */
export const HIDDEN = 64;

/** Names of the tensors in the order of the contract: as in a PyTorch state dict and in the exported graph. */
export const TENSOR_NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"] as const;

/** Name of one tensor. */
export type TensorName = typeof TENSOR_NAMES[number];

/** Shape of each tensor for `nFeatures` inputs. */
export function tensorShapes(nFeatures: number): Readonly<Record<TensorName, readonly number[]>> {
  return { "0.weight": [HIDDEN, nFeatures], "0.bias": [HIDDEN], "2.weight": [1, HIDDEN], "2.bias": [1] };
}

/** Numbers of a model with `nFeatures` inputs. */
export function parameterCount(nFeatures: number): number {
  return HIDDEN * nFeatures + 2 * HIDDEN + 1;
}

/**
 * All parameters of one model in one float32 array, in the order of {@link TENSOR_NAMES}; the tensors are views of it.
 * One flat array lets the optimiser treat 64·N + 129 numbers as one loop.
 */
export class Params {
  readonly nFeatures: number;
  /** Every number, tensor after tensor. */
  readonly flat: Float32Array<ArrayBuffer>;
  /** Weights of the first layer, row-major [64, N]. */
  readonly w0: Float32Array<ArrayBuffer>;
  /** Biases of the first layer, [64]. */
  readonly b0: Float32Array<ArrayBuffer>;
  /** Weights of the second layer, [1, 64]. */
  readonly w1: Float32Array<ArrayBuffer>;
  /** Bias of the second layer, [1]. */
  readonly b1: Float32Array<ArrayBuffer>;

  /** @param flat where the numbers lie, {@link parameterCount} of them; a new array when absent. */
  constructor(nFeatures: number, flat?: Float32Array<ArrayBuffer>) {
    this.nFeatures = nFeatures;
    const first = HIDDEN * nFeatures;
    this.flat = flat ?? new Float32Array(parameterCount(nFeatures));
    this.w0 = this.flat.subarray(0, first);
    this.b0 = this.flat.subarray(first, first + HIDDEN);
    this.w1 = this.flat.subarray(first + HIDDEN, first + 2 * HIDDEN);
    this.b1 = this.flat.subarray(first + 2 * HIDDEN);
  }

  /** The tensor of that name, as a view. */
  tensor(name: TensorName): Float32Array<ArrayBuffer> {
    switch (name) {
      case "0.weight":
        return this.w0;
      case "0.bias":
        return this.b0;
      case "2.weight":
        return this.w1;
      case "2.bias":
        return this.b1;
    }
  }

  /** An independent copy. */
  clone(): Params {
    const copy = new Params(this.nFeatures);
    copy.flat.set(this.flat);
    return copy;
  }

  /** Whether every number is finite. */
  isFinite(): boolean {
    const { flat } = this;
    // x − x is 0 for every finite number and NaN for all others, and a sum keeps a NaN.
    let witness = 0;
    for (let i = 0; i < flat.length; i++) witness += (flat[i] as number) - (flat[i] as number);
    return witness === 0;
  }

  /**
   * A fresh model: every weight and bias uniform in ±1/√(fan-in), where the fan-in is N for the first layer and 64 for
   * the second (section 2.1).
   */
  static random(nFeatures: number, random: Random): Params {
    const params = new Params(nFeatures);
    const bounds = { first: 1 / Math.sqrt(nFeatures), second: 1 / Math.sqrt(HIDDEN) };
    const fill = (tensor: Float32Array, bound: number) => {
      for (let i = 0; i < tensor.length; i++) tensor[i] = (2 * random() - 1) * bound;
    };
    fill(params.w0, bounds.first);
    fill(params.b0, bounds.first);
    fill(params.w1, bounds.second);
    fill(params.b1, bounds.second);
    return params;
  }
}
