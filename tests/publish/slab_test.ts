/** Messages in slabs: none is ever written over, whatever their sizes. */
import assert from "node:assert/strict";
import { MessageSlab, SLAB_BYTES } from "../../src/publish/slab.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below } from "../wire/random_values.ts";

Deno.test("no message changes after it was finished", () => {
  const random = new SeededRandom(71);
  const slab = new MessageSlab();
  const kept: { readonly message: Uint8Array; readonly fill: number; readonly length: number }[] = [];
  for (let i = 0; i < 2000; i++) {
    const length = random.pick([0, 1, 100, 2000, 31_000, 40_000]) + below(random, 50);
    // Now and then more is written than was announced.
    const bound = random.chance(0.1) ? length >> 1 : length + below(random, 100);
    const writer = slab.begin(bound);
    for (let written = 0; written < length;) {
      const part = new Uint8Array(Math.min(1 + below(random, 4000), length - written)).fill(i % 251);
      writer.raw(part);
      written += part.length;
    }
    kept.push({ message: slab.finish(), fill: i % 251, length });
  }
  for (const { message, fill, length } of kept) {
    assert.equal(message.length, length);
    assert.ok(message.every((byte) => byte === fill));
  }
  assert.ok(new Set(kept.map(({ message }) => message.buffer)).size > 2);
});

Deno.test("small messages share a slab, large ones have memory of their own size", () => {
  const slab = new MessageSlab();
  const message = (length: number) => {
    slab.begin(length).raw(new Uint8Array(length));
    return slab.finish();
  };
  const first = message(100), second = message(100), large = message(200_000);
  assert.equal(first.buffer, second.buffer);
  assert.equal(second.byteOffset, 100);
  assert.notEqual(large.buffer, first.buffer);
  assert.ok(large.buffer.byteLength < 200_100);
  const rest = message(SLAB_BYTES >> 4);
  assert.equal(rest.buffer, first.buffer);
});
