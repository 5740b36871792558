/** Publications of a generation, beyond the vectors: what a stamp keeps, and what a reader makes of odd maps. */
import assert from "node:assert/strict";
import { readPublication, stampExecutedHash } from "../../src/wire/generate_chunk.ts";
import { encodeNotation, readValue, type Value, writeValue } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { randomValue } from "./random_values.ts";

const KEY: Value = { type: "str", hex: toHex(new TextEncoder().encode("executed_bundle_config_hash")) };

Deno.test("a stamp changes nothing but its own key, whatever the publication holds", () => {
  const random = new SeededRandom(31);
  for (let i = 0; i < 400; i++) {
    const value = randomValue(random, { depth: 3, wild: true });
    if (value.type !== "map") continue;
    const forged = random.chance(0.5) ? [...value.pairs, [KEY, { type: "nil" }] as const] : value.pairs;
    const stamped = stampExecutedHash(writeValue({ type: "map", pairs: forged }), "hash-a");
    const expected: Value = { type: "map", pairs: [...value.pairs, [KEY, { type: "str", hex: "686173682d61" }]] };
    assert.deepEqual(readValue(stamped), expected);
  }
});

Deno.test("only a str key is the executed hash; bytes after the map are dropped", () => {
  const bin = { $map: [[{ $bin: KEY.hex }, "kept"], [7, 8]] };
  const stamped = stampExecutedHash(Uint8Array.of(...encodeNotation(bin), 0xc1, 0xc1), "h");
  assert.deepEqual(
    readValue(stamped),
    readValue(encodeNotation({ $map: [[{ $bin: KEY.hex }, "kept"], [7, 8], ["executed_bundle_config_hash", "h"]] })),
  );
});

Deno.test("what is no map, or cut off, cannot be stamped", () => {
  const refused: readonly [string, string][] = [
    ["", "generation chunk is not a msgpack map"],
    ["c0", "generation chunk is not a msgpack map"],
    ["a161", "generation chunk is not a msgpack map"],
  ];
  for (const [hex, message] of refused) assert.throws(() => stampExecutedHash(fromHex(hex), "h"), { message });
  for (const hex of ["81", "81a161", "8101", "81a161c1", "df00ffffff"]) {
    assert.throws(() => stampExecutedHash(fromHex(hex), "h"), { name: "MsgpackError" }, hex);
  }
});

Deno.test("fields of other types count as absent, a repeated one is told", () => {
  const read = (notation: unknown) => readPublication(encodeNotation(notation));
  const nothing = {
    kind: undefined,
    requestId: undefined,
    attemptId: undefined,
    seq: undefined,
    done: undefined,
    reason: undefined,
    repeated: undefined,
  };
  assert.deepEqual(read({}), nothing);
  assert.deepEqual(
    read({
      kind: 1,
      request_id: { $bin: "61" },
      attempt_id: { $raw_str: "ff" },
      seq: { $f64: 0 },
      done: 1,
      reason: null,
    }),
    nothing,
  );
  assert.equal(read({ seq: -1 })?.seq, undefined);
  assert.equal(read({ seq: 4294967295 })?.seq, 4294967295);
  assert.equal(read({ seq: 4294967296 })?.seq, undefined);
  assert.equal(read({ $map: [[{ $bin: "6b696e64" }, "chunk"]] })?.kind, undefined);
  const twice = read({ $map: [["seq", 1], ["done", true], ["seq", 2], ["done", false]] });
  assert.deepEqual([twice?.seq, twice?.done, twice?.repeated], [1, true, "seq"]);
  // Other keys may repeat, be of any type, and hold anything.
  assert.equal(read({ $map: [["x", 1], ["x", 2], [7, [{ kind: "nak" }]], ["kind", "chunk"]] })?.kind, "chunk");
  assert.equal(read([1, 2]), undefined);
  assert.throws(() => readPublication(fromHex("82a46b696e64")), { name: "MsgpackError" });
});
