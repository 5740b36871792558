/** Claims on framed outputs and whole results (vectors/prep and vectors/ipc). */
import assert from "node:assert/strict";
import { sha256 } from "../../src/runtime/digest.ts";
import { encodePreparedTokens } from "../../src/wire/prepared_tokens.ts";
import type { WorkResult } from "../../src/wire/work_result_reader.ts";
import { assertNotation } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { answerOf, finishedItem, type OutcomeNotation, RecordingChannel } from "../publish/rig.ts";
import { publishedResult, resultFieldsClaim } from "./work_results.ts";
import type { NumpyFile } from "./numpy.ts";

interface ExpectedError {
  readonly disposition: string;
  readonly error_code: string;
  readonly error: string;
}

interface OutputCase {
  readonly name: string;
  readonly input: {
    readonly raw_output: Record<string, unknown>;
    readonly caller_item_id?: string | null;
  };
  readonly expected_hex?: string;
  readonly expected_len?: number;
  readonly expected_sha256?: string;
  readonly expected_error?: ExpectedError;
}

/** Publishes one outcome and decodes what a gateway would get. */
export function resultOf(
  outcome: OutcomeNotation,
  callerId?: string | null,
  batchedF16?: unknown,
  workItemId = "req-1.0",
) {
  const item = callerId === undefined || callerId === null ? { text: "x" } : { text: "x", id: callerId };
  const unit = finishedItem(new RecordingChannel(1 << 28), { item, work_item_id: workItemId });
  const answer = answerOf([{ work_item_id: workItemId, ...outcome }], batchedF16);
  return publishedResult(unit, answer);
}

function assertOutcome(result: WorkResult, expected: Pick<OutputCase, "expected_error" | "expected_hex">): void {
  const { expected_error: error, expected_hex: hex } = expected;
  assert.equal(result.success, error === undefined);
  assert.equal(result.error, error?.error);
  assert.equal(result.errorCode, error?.error_code);
  if (error !== undefined) {
    assert.equal(error.disposition, "publish_error_and_ack");
    assert.equal(result.resultMsgpack.length, 0);
  }
  if (hex !== undefined) assert.equal(toHex(result.resultMsgpack), hex);
}

/** A `raw_output` as JSON gives it, as a backend sends it: numbers of float lists as float64, halves as bin. */
function rawOutput(json: Record<string, unknown>): unknown {
  return Object.fromEntries(Object.entries(json).map(([kind, fields]) => [kind, variant(fields)]));
}

function variant(fields: unknown): unknown {
  const made: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(fields as Record<string, unknown>)) {
    if (key === "values_f16_hex") made["values_f16"] = { $bin: value };
    else if (key === "values" || key === "scores") made[key] = floats(value).map((x) => ({ $f64: x }));
    else made[key] = value;
  }
  // The reader requires the list, which a backend that sends halves leaves empty.
  if ("values_f16" in made && !("values" in made)) made["values"] = [];
  return made;
}

function floats(value: unknown): number[] {
  if (Array.isArray(value)) return value as number[];
  const rule = /^float64 i\/(\d+) for i in 0\.\.(\d+)$/.exec(String((value as { $rule?: unknown }).$rule));
  if (rule === null) throw new Error(`unknown rule for values: ${JSON.stringify(value)}`);
  return Array.from({ length: Number(rule[2]) + 1 }, (_, i) => i / Number(rule[1]));
}

function outputClaim(files: readonly string[]): VectorClaim {
  return {
    files,
    *cases(data) {
      for (const one of (data as { cases: OutputCase[] }).cases) {
        yield {
          name: one.name,
          check() {
            const result = resultOf({ raw_output: rawOutput(one.input.raw_output) }, one.input.caller_item_id);
            assertOutcome(result, one);
            if (one.expected_len !== undefined) assert.equal(result.resultMsgpack.length, one.expected_len);
            if (one.expected_sha256 !== undefined) {
              assert.equal(toHex(sha256(result.resultMsgpack)), one.expected_sha256);
            }
            const compared = [one.expected_hex, one.expected_sha256, one.expected_error];
            assert.ok(compared.some((expected) => expected !== undefined), "nothing is compared");
          },
        } satisfies VectorCase;
      }
    },
  };
}

interface SelectionCase {
  readonly name: string;
  readonly input: {
    readonly disposition: string;
    readonly result_msgpack_hex: string;
    readonly raw_output: Record<string, unknown> | null;
  };
  readonly expected?: string;
  readonly expected_hex?: string;
  readonly expected_error?: ExpectedError;
}

const selectionClaim: VectorClaim = {
  files: ["prep/output_selection.json"],
  *cases(data) {
    for (const one of (data as { cases: SelectionCase[] }).cases) {
      const { disposition, result_msgpack_hex: hex, raw_output: raw } = one.input;
      yield {
        name: one.name,
        check() {
          const result = resultOf({
            disposition,
            result_msgpack: { $bin: hex },
            raw_output: raw === null ? null : rawOutput(raw),
          });
          if (one.expected === undefined) return assertOutcome(result, one);
          assert.match(one.expected, /^unchanged/);
          assert.equal(result.success, disposition === "publish_and_ack");
          assert.equal(toHex(result.resultMsgpack), hex);
          assert.equal(result.errorCode, undefined);
        },
      } satisfies VectorCase;
    }
  },
};

interface SliceNotation {
  readonly work_item_id: string;
}

interface BatchedCase {
  readonly name: string;
  readonly input: {
    readonly item?: SliceNotation;
    readonly items?: readonly SliceNotation[];
    readonly caller_item_id?: string;
  };
  readonly expected_hex?: string;
  readonly expected_error?: ExpectedError;
}

const batchedF16Claim: VectorClaim = {
  files: ["prep/output_batched_f16.json"],
  *cases(data) {
    const { cases, values_f16_hex: halves } = data as { cases: BatchedCase[]; values_f16_hex: string };
    for (const { name, input, ...expected } of cases) {
      const items = input.items ?? (input.item === undefined ? [] : [input.item]);
      yield {
        name,
        check() {
          const [first] = items;
          assert.ok(first !== undefined);
          const buffers = [{ values_f16: { $bin: halves }, items }];
          assertOutcome(resultOf({}, input.caller_item_id, buffers, first.work_item_id), expected);
        },
      } satisfies VectorCase;
    }
  },
};

/** Outputs as typed by a backend, from the notation of the framed result. */
function rawOfPayload(decoded: unknown): { raw?: unknown; callerId?: string } {
  if (Array.isArray(decoded)) {
    const shuffled = [...decoded as { item_id: string; score: number }[]].sort((a, b) => a.score - b.score);
    return {
      raw: {
        score: {
          scores: shuffled.map(({ score }) => ({ $f64: score })),
          item_ids: shuffled.map(({ item_id: id }) => id),
        },
      },
    };
  }
  const payload = decoded as {
    id?: string;
    dense?: { dims: number; dtype: string; values: NumpyFile["decoded"] };
    sparse?: { dims: number | null; indices: NumpyFile["decoded"]; values: NumpyFile["decoded"] };
    multivector?: { token_dims: number; num_tokens: number; dtype: string; values: NumpyFile["decoded"] };
  };
  const f64 = (values: readonly number[]) => values.map((x) => ({ $f64: x }));
  const { id, dense, sparse, multivector } = payload;
  const caller = id === undefined ? {} : { callerId: id };
  if (dense?.dtype === "float32") {
    return { ...caller, raw: { dense: { values: f64(dense.values.values), dim: dense.dims, normalize: false } } };
  }
  if (sparse !== undefined) {
    const { dims, indices, values } = sparse;
    return { ...caller, raw: { sparse: { indices: indices.values, values: f64(values.values), dims } } };
  }
  if (multivector !== undefined) {
    const { num_tokens, token_dims, dtype, values } = multivector;
    return { ...caller, raw: { multivector: { values: f64(values.values), num_tokens, token_dims, dtype } } };
  }
  return caller;
}

const payloadClaim: VectorClaim = {
  files: [
    "ipc/payload_dense.json",
    "ipc/payload_dense_binary.json",
    "ipc/payload_dense_int8.json",
    "ipc/payload_dense_with_id.json",
    "ipc/payload_multivector_f16.json",
    "ipc/payload_multivector_f32.json",
    "ipc/payload_score.json",
    "ipc/payload_sparse.json",
    "ipc/payload_sparse_no_dims.json",
  ],
  *cases(data) {
    const { name, hex, decoded } = data as { name: string; hex: string; decoded: unknown };
    yield {
      name: `${name} passed on`,
      check: () => assertNotation(resultOf({ result_msgpack: { $bin: hex } }).resultMsgpack, decoded),
    };
    const { raw, callerId } = rawOfPayload(decoded);
    // Quantised outputs are framed by the backend alone.
    if (raw === undefined) return;
    yield {
      name: `${name} framed`,
      check: () => assert.equal(toHex(resultOf({ raw_output: raw }, callerId).resultMsgpack), hex),
    };
  },
};

interface TokensCase {
  readonly name: string;
  readonly fields_in_order: {
    readonly input_ids: number[][];
    readonly attention_mask: number[][];
    readonly token_type_ids: number[][];
    readonly tokenizer_id: string;
    readonly max_seq_len: number;
  };
  readonly expected_hex: string;
}

const preparedTokensClaim: VectorClaim = {
  files: ["prep/prepared_tokens.json"],
  *cases(data) {
    for (const { name, fields_in_order: fields, expected_hex: hex } of (data as { cases: TokensCase[] }).cases) {
      yield {
        name,
        check() {
          const bytes = encodePreparedTokens({
            inputIds: fields.input_ids,
            attentionMask: fields.attention_mask,
            tokenTypeIds: fields.token_type_ids,
            tokenizerId: fields.tokenizer_id,
            maxSeqLen: fields.max_seq_len,
          });
          assert.equal(toHex(bytes), hex);
        },
      } satisfies VectorCase;
    }
  },
};

/** Everything that ends in the bytes of a result. */
export const prepOutputClaims: VectorClaim[] = [
  outputClaim([
    "prep/output_dense.json",
    "prep/output_sparse.json",
    "prep/output_multivector.json",
    "prep/output_score.json",
  ]),
  selectionClaim,
  batchedF16Claim,
  payloadClaim,
  preparedTokensClaim,
  resultFieldsClaim("prep/work_result.json"),
];
