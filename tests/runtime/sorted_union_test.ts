import { Buffer } from "node:buffer";
import assert from "node:assert/strict";
import { sortedUnion } from "../../src/runtime/sorted_union.ts";

Deno.test("lists are united without duplicates, in the order of their UTF-8 bytes", () => {
  assert.deepEqual(sortedUnion([["b", "a"], [], ["c", "a"]]), ["a", "b", "c"]);
  // U+FF5E comes before U+1F600 by code points, and after it by UTF-16 units.
  const texts = ["\u{1F600}", "\uFF5E", "aa", "a", ""];
  const byBytes = [...texts].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  assert.deepEqual(sortedUnion([texts]), byBytes);
});
