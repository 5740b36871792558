/** Half precision: every half there is, and random floats against the engine's own conversion. */
import assert from "node:assert/strict";
import { halvesOf } from "../../src/publish/half_values.ts";
import { halfFromFloat32Bits, halfFromNumber, halfToNumber } from "../../src/wire/half.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below } from "./random_values.ts";

const view = new DataView(new ArrayBuffer(8));

function float32Bits(value: number): number {
  view.setFloat32(0, value);
  return view.getUint32(0);
}

Deno.test("each of the 65,536 halves is read as the engine reads it, and rounds to itself", () => {
  for (let bits = 0; bits < 0x10000; bits++) {
    view.setUint16(0, bits);
    const value = view.getFloat16(0);
    assert.ok(Object.is(halfToNumber(bits), value), `half ${bits.toString(16)}`);
    if (Number.isNaN(value)) continue;
    if (halfFromNumber(value) !== bits) assert.equal(halfFromNumber(value), bits);
  }
});

Deno.test("floats round as the engine rounds them", () => {
  const random = new SeededRandom(21);
  for (let i = 0; i < 40_000; i++) {
    const bits = (below(random, 0x10000) << 16 | below(random, 0x10000)) >>> 0;
    view.setUint32(0, bits);
    const value = view.getFloat32(0);
    const ours = halfFromFloat32Bits(bits);
    view.setFloat16(4, value);
    if (Number.isNaN(value)) assert.ok(Number.isNaN(halfToNumber(ours)) && ours >>> 15 === bits >>> 31);
    else assert.equal(ours, view.getUint16(4), `float32 ${bits.toString(16)}`);
  }
});

Deno.test("numbers are rounded in two steps: to float32 first", () => {
  // Half-way between two halves after the first step, above it before: one step would round up, two round to even.
  const tie = 1 + 2 ** -11;
  const above = tie + 2 ** -40;
  assert.equal(halfFromNumber(above), 0x3c00);
  view.setFloat16(4, above);
  assert.equal(view.getUint16(4), 0x3c01);
});

Deno.test("a NaN keeps its sign and what fits of its payload, and stays one", () => {
  assert.equal(halfFromFloat32Bits(0x7fc00000), 0x7e00);
  assert.equal(halfFromFloat32Bits(0xffc00000), 0xfe00);
  // A payload below the ten bits that are kept would make an infinity.
  assert.equal(halfFromFloat32Bits(0x7f800001), 0x7c01);
});

Deno.test("arrays are converted wherever they lie in their buffer", () => {
  const shared = Float32Array.of(9, 1, -2, 3.5, 65520, 9);
  const bytes = halvesOf(shared.subarray(1, 5));
  assert.deepEqual([...bytes], [0x00, 0x3c, 0x00, 0xc0, 0x00, 0x43, 0x00, 0x7c]);
  assert.equal(halfFromFloat32Bits(float32Bits(65519)), 0x7bff);
});
