/** Claim on outputs that a backend frames itself. */
import assert from "node:assert/strict";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { type WrittenDtype } from "../../src/wire/numpy.ts";
import { toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { writtenArray } from "./numpy.ts";
import { resultOf } from "./prep_output.ts";

/** What the cases of the file hold, as a backend would put it; arrays by their element types. */
const BACKEND_FRAMED: Record<string, Framed> = {
  multi_output: {
    id: "q",
    dense: { dims: 2, dtype: "float32", values: { dtype: "<f4", shape: [2], values: [1, 2] } },
    sparse: {
      dims: null,
      dtype: "float16",
      indices: { dtype: "<i4", shape: [1], values: [4] },
      values: { dtype: "<f2", shape: [1], values: [0.5] },
    },
    multivector: {
      token_dims: 16,
      num_tokens: 1,
      dtype: "binary",
      values: { dtype: "|u1", shape: [1, 2], values: [255, 1] },
    },
  },
  dense_binary: { dense: { dims: 16, dtype: "binary", values: { dtype: "|u1", shape: [2], values: [255, 1] } } },
  dense_int8: { dense: { dims: 2, dtype: "int8", values: { dtype: "|i1", shape: [2], values: [-1, 7] } } },
  dense_uint8: { dense: { dims: 2, dtype: "uint8", values: { dtype: "|u1", shape: [2], values: [1, 7] } } },
  extract: {
    entities: [{ text: "Ada", label: "person", score: 0.5 }],
    classifications: [],
    relations: [],
    objects: [],
    data: {},
    id: "item-0",
  },
  extract_with_error: {
    entities: [],
    classifications: [],
    relations: [],
    objects: [],
    data: {},
    error: { code: "INPUT_TOO_LONG", message: "too long" },
    id: "item-3",
  },
};

interface ArrayOf {
  readonly dtype: WrittenDtype;
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

type Framed = null | string | number | ArrayOf | readonly Framed[] | { readonly [key: string]: Framed };

function isArrayOf(value: object): value is ArrayOf {
  return "shape" in value;
}

/** Writes a payload with the writers of `src/`, as the demo's backend does. */
function writePayload(writer: MsgpackWriter, value: Framed): void {
  if (value === null) writer.nil();
  else if (typeof value === "string") writer.text(value);
  else if (typeof value === "number") Number.isInteger(value) ? writer.integer(value) : writer.float64(value);
  else if (Array.isArray(value)) {
    writer.arrayHeader(value.length);
    for (const element of value) writePayload(writer, element);
  } else if (isArrayOf(value)) writer.raw(writtenArray(value.dtype, value.shape, value.values));
  else {
    const entries = Object.entries(value);
    writer.mapHeader(entries.length);
    for (const [key, member] of entries) {
      writer.text(key);
      writePayload(writer, member);
    }
  }
}

/** What a backend frames itself passes through unchanged. */
export const backendFramedClaim: VectorClaim = {
  files: ["prep/output_backend_framed.json"],
  *cases(data) {
    for (const { name, expected_hex: hex } of (data as { cases: { name: string; expected_hex: string }[] }).cases) {
      yield {
        name,
        check() {
          const writer = new MsgpackWriter();
          writePayload(writer, BACKEND_FRAMED[name] ?? null);
          const payload = toHex(writer.take());
          assert.equal(payload, hex);
          // Published as they come, even with a caller id that a framed output would echo.
          assert.equal(toHex(resultOf({ result_msgpack: { $bin: payload } }, "other-id").resultMsgpack), hex);
        },
      } satisfies VectorCase;
    }
  },
};
