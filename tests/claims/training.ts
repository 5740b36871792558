/** Claims on the vectors of the online trainer's arithmetic and model files; its rules and its wire are beside. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { VectorCase, VectorClaim, VectorContext } from "../harness/vectors.ts";
import { TrainingError } from "../../src/training/errors.ts";
import { forwardRows } from "../../src/training/network.ts";
import { readOnnx } from "../../src/training/onnx_reader.ts";
import { writeOnnx } from "../../src/training/onnx_writer.ts";
import { Params, TENSOR_NAMES, type TensorName } from "../../src/training/params.ts";
import { SgdEma, warmupRate } from "../../src/training/sgd.ts";
import { readTorchStateDict } from "../../src/training/torch_seed.ts";
import { trainingRuleClaims } from "./training_rules.ts";
import { ingestTraceClaim } from "./training_traces.ts";
import { wireClaim } from "./training_wire.ts";

interface PackedTensor {
  readonly shape: readonly number[];
  readonly f32le_b64: string;
}
type PackedParams = Readonly<Record<TensorName, PackedTensor>>;

function unpack(tensor: PackedTensor): Float32Array<ArrayBuffer> {
  const bytes = Buffer.from(tensor.f32le_b64, "base64");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const values = Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  assert.equal(values.length, tensor.shape.reduce((product, size) => product * size, 1));
  return values;
}

function unpackParams(packed: PackedParams, nFeatures: number): Params {
  const params = new Params(nFeatures);
  for (const name of TENSOR_NAMES) params.tensor(name).set(unpack(packed[name]));
  return params;
}

function assertClose(actual: number, expected: number, relative: number, floor: number, what: string): void {
  const error = Math.abs(actual - expected) / (floor + Math.abs(expected));
  assert.ok(error <= relative, `${what}: ${actual} instead of ${expected} (relative error ${error})`);
}

function assertParams(actual: Params, packed: PackedParams, relative: number, floor: number, what: string): void {
  for (const name of TENSOR_NAMES) {
    const expected = unpack(packed[name]), got = actual.tensor(name);
    assert.equal(got.length, expected.length);
    expected.forEach((value, i) => assertClose(got[i] as number, value, relative, floor, `${what} ${name}[${i}]`));
  }
}

/** The generator that the vectors were made with. */
function lcg(seed: number): (low: number, high: number) => number {
  let state = seed >>> 0;
  return (low, high) => {
    state = (Math.imul(1664525, state) + 1013904223) >>> 0;
    return Math.fround(low + (high - low) * ((state >>> 8) / 16777216));
  };
}

const forwardGradClaim: VectorClaim = {
  files: ["training/forward_grad.json"],
  *cases(data) {
    const file = data as {
      n_features: number;
      params: PackedParams;
      features: number[][];
      targets: number[];
      expect: {
        predictions: number[];
        loss: number;
        grad_norm: number;
        clip_coef_at_max_norm_1: number;
        grads: PackedParams;
      };
      tolerance: { relative: number };
    };
    const { relative } = file.tolerance;
    const rows = file.targets.length;
    const params = unpackParams(file.params, file.n_features);
    const features = Float32Array.from(file.features.flat()), targets = Float32Array.from(file.targets);
    const still = { learningRate: 0, momentum: 0, weightDecay: 0, maxGradNorm: 1, warmupSteps: 0, emaDecay: 0 };
    const step = (slice: number) => {
      const sgd = new SgdEma(params, rows, still);
      sgd.features.set(features);
      sgd.targets.set(targets);
      sgd.begin(rows);
      while (!sgd.advance(slice));
      return sgd;
    };
    yield {
      name: "predictions of a model that serves",
      check() {
        const scores = new Float32Array(rows);
        forwardRows(params, features, 0, rows, scores);
        file.expect.predictions.forEach((y, i) => assertClose(scores[i] as number, y, relative, 1e-3, `row ${i}`));
      },
    };
    for (const [name, slice] of [["in one slice", Infinity], ["row by row", 1]] as const) {
      yield {
        name: `predictions, loss and gradients, ${name}`,
        check() {
          const sgd = step(slice);
          file.expect.predictions.forEach((y, i) =>
            assertClose(sgd.predictions[i] as number, y, relative, 1e-3, `row ${i}`)
          );
          assertClose(sgd.loss, file.expect.loss, relative, 0, "loss");
          assertParams(sgd.grads, file.expect.grads, relative, 1e-3, "gradient");
        },
      };
    }
    yield {
      name: "norm and clip factor of a step",
      check() {
        const sgd = step(Infinity);
        assertClose(sgd.gradNorm, file.expect.grad_norm, relative, 0, "norm");
        assertClose(sgd.clipFactor, file.expect.clip_coef_at_max_norm_1, relative, 0, "clip factor");
        assert.deepEqual(sgd.live.flat, params.flat);
      },
    };
  },
};

interface SgdFile {
  readonly n_features: number;
  readonly seed: number;
  readonly config: {
    lr: number;
    momentum: number;
    weight_decay: number;
    ema_decay: number;
    max_grad_norm: number;
    warmup_steps: number;
  };
  readonly initial: PackedParams;
  readonly steps: readonly {
    readonly step: number;
    readonly batch_size: number;
    readonly features?: number[][];
    readonly targets?: number[];
    readonly loss: number;
    readonly grad_norm: number;
    readonly clip_coef: number;
    readonly lr: number;
    readonly live?: PackedParams;
    readonly ema?: PackedParams;
  }[];
  readonly final: { readonly live: PackedParams; readonly ema: PackedParams };
  readonly tolerance: { loss_relative: number; param_relative: number; param_absolute_floor: number };
  readonly generator?: string;
}

/** One run of the optimiser, a case a step; `slice` multiplications at a time. */
function* sgdCases(file: SgdFile, slice: number): Generator<VectorCase> {
  const { config, tolerance } = file;
  const initial = unpackParams(file.initial, file.n_features);
  const sgd = new SgdEma(initial, Math.max(...file.steps.map((step) => step.batch_size)), {
    learningRate: config.lr,
    momentum: config.momentum,
    weightDecay: config.weight_decay,
    maxGradNorm: config.max_grad_norm,
    warmupSteps: config.warmup_steps,
    emaDecay: config.ema_decay,
  });
  const next = lcg(file.seed);
  if (file.generator !== undefined) { for (let i = 0; i < initial.flat.length; i++) next(0, 1); }
  for (const step of file.steps) {
    yield {
      name: `step ${step.step}, slices of ${slice}`,
      check() {
        const rows = step.batch_size;
        if (step.features !== undefined) sgd.features.set(step.features.flat());
        else for (let i = 0; i < rows * file.n_features; i++) sgd.features[i] = next(0, 1);
        if (step.targets !== undefined) sgd.targets.set(step.targets);
        else for (let i = 0; i < rows; i++) sgd.targets[i] = next(20, 100);
        sgd.begin(rows);
        while (!sgd.advance(slice));
        const relative = tolerance.loss_relative;
        assertClose(sgd.loss, step.loss, relative, 1e-3, "loss");
        assertClose(sgd.gradNorm, step.grad_norm, relative, 1e-3, "norm");
        assertClose(sgd.clipFactor, step.clip_coef, relative, 1e-3, "clip factor");
        assertClose(sgd.rate, step.lr, 1e-12, 0, "learning rate");
        assert.equal(sgd.steps, step.step);
        const { param_relative: tight, param_absolute_floor: floor } = tolerance;
        if (step.live !== undefined) assertParams(sgd.live, step.live, tight, floor, "live");
        if (step.ema !== undefined) assertParams(sgd.ema, step.ema, tight, floor, "EMA");
        if (step !== file.steps.at(-1)) return;
        assertParams(sgd.live, file.final.live, tight, floor, "final live");
        assertParams(sgd.ema, file.final.ema, tight, floor, "final EMA");
      },
    };
  }
}

const sgdClaim: VectorClaim = {
  files: [
    "training/sgd_clip_momentum_decay_warmup.json",
    "training/sgd_defaults_n3.json",
    "training/sgd_defaults_n80.json",
    "training/sgd_plain.json",
    "training/sgd_single_sample.json",
  ],
  *cases(data) {
    yield* sgdCases(data as SgdFile, Number.POSITIVE_INFINITY);
    yield* sgdCases(data as SgdFile, 500);
  },
};

const warmupClaim: VectorClaim = {
  files: ["training/warmup_lr.json"],
  *cases(data) {
    const file = data as { cases: { lr: number; warmup_steps: number; lr_used: Record<string, number> }[] };
    for (const { lr, warmup_steps: steps, lr_used: used } of file.cases) {
      for (const [step, expected] of Object.entries(used)) {
        yield {
          name: `rate ${lr}, warm-up ${steps}, step ${step}`,
          check: () => assert.equal(warmupRate(lr, steps, Number(step)), expected),
        };
      }
    }
  },
};

interface OnnxFile {
  readonly params_n3: PackedParams;
  readonly tolerance: { relative: number; absolute: number };
  readonly files: readonly {
    readonly file: string;
    readonly must_be_rejected?: string;
    readonly external_data?: unknown;
    readonly inputs?: PackedTensor;
    readonly outputs?: PackedTensor;
  }[];
}

function onnxCase(file: OnnxFile, entry: OnnxFile["files"][number], context: VectorContext): VectorCase {
  const bytes = context.readBytes(`training/${entry.file}`);
  const nFeatures = entry.inputs?.shape[1] ?? 3;
  if (entry.must_be_rejected !== undefined || entry.external_data !== undefined) {
    return {
      name: `${entry.file} is refused`,
      check: () =>
        assert.throws(() => readOnnx(bytes, nFeatures), (thrown: unknown) => {
          assert.ok(thrown instanceof TrainingError);
          assert.equal(thrown.code, "invalid_model");
          return true;
        }),
    };
  }
  return {
    name: `${entry.file} gives onnxruntime's scores`,
    check() {
      assert.ok(entry.inputs !== undefined && entry.outputs !== undefined);
      const inputs = unpack(entry.inputs), outputs = unpack(entry.outputs);
      const params = readOnnx(bytes, nFeatures);
      const scores = new Float32Array(outputs.length);
      forwardRows(params, inputs, 0, outputs.length, scores);
      outputs.forEach((expected, i) => {
        const limit = file.tolerance.absolute + file.tolerance.relative * Math.abs(expected);
        assert.ok(Math.abs((scores[i] as number) - expected) <= limit, `row ${i}: ${scores[i]} instead of ${expected}`);
      });
    },
  };
}

const onnxClaim: VectorClaim = {
  files: ["training/onnx.json"],
  *cases(data, context) {
    const file = data as OnnxFile;
    for (const entry of file.files) yield onnxCase(file, entry, context);
    yield {
      name: "the writer gives the bytes of onnx/tiny_mlp_opset17.onnx",
      check() {
        const expected = context.readBytes("training/onnx/tiny_mlp_opset17.onnx");
        assert.deepEqual(writeOnnx(unpackParams(file.params_n3, 3), "0"), expected);
      },
    };
    yield {
      name: "the writer gives the bytes of onnx/ema_n80_opset17.onnx",
      check() {
        const expected = context.readBytes("training/onnx/ema_n80_opset17.onnx");
        assert.deepEqual(writeOnnx(readOnnx(expected, 80), "0"), expected);
      },
    };
  },
};

const seedClaim: VectorClaim = {
  files: ["training/seed.json"],
  *cases(data, context) {
    const file = data as { params: PackedParams; files: { file: string; expect: string }[] };
    for (const { file: name, expect } of file.files) {
      const bytes = context.readBytes(`training/${name}`);
      const loads = expect.startsWith("loads");
      yield {
        name: `${name}: ${expect}`,
        check() {
          if (loads) return assert.deepEqual(readTorchStateDict(bytes, 3).flat, unpackParams(file.params, 3).flat);
          assert.throws(() => readTorchStateDict(bytes, 3), { name: "TrainingError", code: "invalid_seed" });
        },
      };
    }
  },
};

/** All claims on `training/`. */
export const trainingClaims: VectorClaim[] = [
  forwardGradClaim,
  sgdClaim,
  warmupClaim,
  ...trainingRuleClaims,
  onnxClaim,
  seedClaim,
  ingestTraceClaim,
  wireClaim,
];
