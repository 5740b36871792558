/** XXH3 at both sides of every length where its way of hashing changes; the values come from the reference implementation, 0.8.4. */
import assert from "node:assert/strict";
import { xxh3 } from "../../src/gateway/xxh3.ts";

const HASHES: readonly (readonly [number, string])[] = [
  [0, "2d06800538d394c2"],
  [1, "929e358d27ae3ee2"],
  [3, "edbd89085055020f"],
  [4, "b88a3316c9cbada6"],
  [8, "ca44c9d295b4aa92"],
  [9, "5a9d22037e87f57b"],
  [16, "2a299e6ae8c4bb1d"],
  [17, "3e19244f2115af82"],
  [32, "afc5589c2b883786"],
  [33, "a33f32e643019c7c"],
  [64, "7a0a3be85f03f063"],
  [65, "76f5b3ff6e4b5eba"],
  [96, "c573cf4bb76930af"],
  [97, "ea7ed52a0fc43bf5"],
  [128, "aea16d0b94c7eca2"],
  [129, "f76c3dd46103cc7c"],
  [144, "4df9e6ff3d6865a2"],
  [240, "8b76f2de9510a219"],
  [241, "9effb61a06edef93"],
  [256, "e1e8c219caad324e"],
  [257, "d9b67789348f52a6"],
  [1024, "e2e766af747b4a67"],
  [1025, "57e613f5e2f8b822"],
  [2048, "3549900af4df8b94"],
  [2049, "464eb240068a6d96"],
  [4097, "e41e6b7d6e112627"],
];

/** The bytes that were hashed, with others around them. */
const around = Uint8Array.from({ length: 5000 }, (_, at) => {
  const i = at - 7;
  return i < 0 ? 99 : (i * i * 7 + i * 13 + 5) % 251;
});

for (const [length, expected] of HASHES) {
  Deno.test(`XXH3 of ${length} bytes, in the middle of others`, () => {
    assert.equal(xxh3(around.subarray(7, 7 + length)).toString(16).padStart(16, "0"), expected);
  });
}
