/** Claims on arrays inside results: as they are written, as they are read, and how halves are rounded. */
import assert from "node:assert/strict";
import { halvesOf } from "../../src/publish/half_values.ts";
import { halfFromFloat32Bits } from "../../src/wire/half.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { numpyValues, readNumpy, writeNumpyHead, type WrittenDtype } from "../../src/wire/numpy.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";

const LITTLE_ENDIAN: Record<WrittenDtype, (values: readonly number[]) => Uint8Array> = {
  "<f4": (values) => new Uint8Array(Float32Array.from(values).buffer),
  "<i4": (values) => new Uint8Array(Int32Array.from(values).buffer),
  "<f2": (values) => halvesOf(Float32Array.from(values)),
  "|i1": (values) => new Uint8Array(Int8Array.from(values).buffer),
  "|u1": (values) => Uint8Array.from(values),
};

/** An array as `src/` writes it. */
export function writtenArray(dtype: WrittenDtype, shape: readonly number[], values: readonly number[]): Uint8Array {
  const [rows = 0, columns] = shape;
  const data = LITTLE_ENDIAN[dtype](values);
  const writer = new MsgpackWriter();
  writeNumpyHead(writer, dtype, rows, columns, data.length);
  writer.raw(data);
  return writer.take();
}

function assertReadArray(bytes: Uint8Array, dtype: string, shape: readonly number[], values: readonly number[]): void {
  const reader = new MsgpackReader(bytes);
  const array = readNumpy(reader);
  reader.expectEnd();
  assert.equal(array.dtype, dtype);
  assert.deepEqual(array.shape, shape);
  assert.deepEqual([...numpyValues(array)], dtype === "<f4" ? values.map(Math.fround) : values);
}

interface SentinelCase {
  readonly name: string;
  readonly dtype: WrittenDtype;
  readonly shape: number[];
  readonly values: number[];
  readonly expected_hex: string;
}

const sentinelClaim: VectorClaim = {
  files: ["prep/numpy_sentinel.json"],
  *cases(data) {
    for (const { name, dtype, shape, values, expected_hex: hex } of (data as { cases: SentinelCase[] }).cases) {
      yield {
        name,
        check() {
          assert.equal(toHex(writtenArray(dtype, shape, values)), hex);
          assertReadArray(fromHex(hex), dtype, shape, values);
        },
      } satisfies VectorCase;
    }
  },
};

/** A file of `vectors/ipc` that holds one array. */
export interface NumpyFile {
  readonly name: string;
  readonly hex: string;
  readonly decoded: { readonly $numpy: string; readonly shape: number[]; readonly values: number[] };
}

const ipcNumpyClaim: VectorClaim = {
  files: [
    "ipc/numpy_float16_1d.json",
    "ipc/numpy_float16_2d.json",
    "ipc/numpy_float32_1d.json",
    "ipc/numpy_float32_2d.json",
    "ipc/numpy_float32_big_endian.json",
    "ipc/numpy_float32_empty.json",
    "ipc/numpy_float32_scalar.json",
    "ipc/numpy_int32_1d.json",
    "ipc/numpy_int8_1d.json",
    "ipc/numpy_uint8_1d.json",
  ],
  *cases(data) {
    const { name, hex, decoded: { $numpy: dtype, shape, values } } = data as NumpyFile;
    yield { name: `${name} read`, check: () => assertReadArray(fromHex(hex), dtype, shape, values) };
    // Big-endian arrays and scalars are only ever read.
    if (shape.length > 0 && Object.hasOwn(LITTLE_ENDIAN, dtype)) {
      const check = () => assert.equal(toHex(writtenArray(dtype as WrittenDtype, shape, values)), hex);
      yield { name: `${name} written`, check };
    }
  },
};

const f16Claim: VectorClaim = {
  files: ["prep/f16_rounding.json"],
  *cases(data) {
    const { cases } = data as { cases: { name: string; input_f32_bits: string; expected_f16_bits: string }[] };
    for (const { name, input_f32_bits: input, expected_f16_bits: expected } of cases) {
      yield {
        name,
        check: () => assert.equal(halfFromFloat32Bits(parseInt(input, 16)).toString(16).padStart(4, "0"), expected),
      } satisfies VectorCase;
    }
  },
};

/** Arrays and their elements. */
export const numpyClaims: VectorClaim[] = [f16Claim, sentinelClaim, ipcNumpyClaim];
