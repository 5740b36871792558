import assert from "node:assert/strict";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { readFloat32Array } from "../../src/wire/msgpack/float_array.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { SeededRandom } from "../sim/seeded_random.ts";

type Element = readonly ["float64" | "float32" | "integer", number];

function written(elements: readonly Element[]): Uint8Array {
  const writer = new MsgpackWriter();
  writer.arrayHeader(elements.length);
  for (const [form, value] of elements) writer[form](value);
  return writer.take();
}

Deno.test("floats of either size and integers, in any mixture, and nothing behind them", () => {
  const random = new SeededRandom(1);
  const kept: [Float32Array, Float32Array][] = [];
  for (let round = 0; round < 300; round++) {
    const forms = random.pick([["float64"], ["float32"], ["integer"], ["float64", "float32", "integer"]] as const);
    const elements = Array.from({ length: random.integer(0, round < 10 ? 3000 : 40) }, (): Element => {
      const form = random.pick<Element[0]>(forms);
      return [form, form === "integer" ? random.integer(-70_000, 70_000) : random.next() * 1e6 - 5e5];
    });
    const bytes = written(elements);
    const reader = new MsgpackReader(Uint8Array.of(0xc0, ...bytes, 0xcb, 0xca), 1);
    const values = readFloat32Array(reader);
    assert.equal(reader.pos, 1 + bytes.length);
    kept.push([values, Float32Array.from(elements, ([, value]) => value)]);
  }
  // Compared at the end: arrays that share memory must not have been written over.
  for (const [values, expected] of kept) assert.deepEqual([...values], [...expected]);
});

Deno.test("an array that ends early or holds something else is refused", () => {
  const bytes = written([["float64", 1.5], ["float32", 2.5], ["integer", 3]]);
  for (let length = 0; length < bytes.length; length++) {
    assert.throws(() => readFloat32Array(new MsgpackReader(bytes.subarray(0, length))), MsgpackError);
  }
  assert.throws(() => readFloat32Array(new MsgpackReader(Uint8Array.of(0x92, 0x01, 0xc0))), MsgpackError);
  assert.throws(() => readFloat32Array(new MsgpackReader(Uint8Array.of(0xdd, 0xff, 0xff, 0xff, 0xff))), MsgpackError);
});
