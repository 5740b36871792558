import assert from "node:assert/strict";
import { Sha256, sha256 } from "../../src/runtime/digest.ts";
import { toHex } from "../harness/paths.ts";

Deno.test("SHA-256, whole and in pieces", () => {
  const abc = new TextEncoder().encode("abc");
  const expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  assert.equal(toHex(sha256(abc)), expected);
  assert.equal(
    toHex(sha256(new Uint8Array(0))),
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
  );
  const pieces = new Sha256();
  // A piece may be used again once it was added.
  const piece = new Uint8Array(1);
  for (const byte of abc) {
    piece[0] = byte;
    pieces.update(piece);
  }
  assert.equal(toHex(pieces.digest()), expected);
  assert.throws(() => pieces.update(abc), "nothing may follow the digest");
});
