import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { Base64Error, decodeBase64, decodedLength } from "../../src/prepare/base64.ts";
import { SeededRandom } from "../sim/seeded_random.ts";

/** Decodes text that stands in the middle of a message. */
function decode(text: string): Uint8Array {
  const bytes = new TextEncoder().encode(`==${text}==`);
  return decodeBase64(bytes, 2, bytes.length - 4);
}

/** The runtime's decoder is lenient; only the canonical form survives being decoded and encoded again. */
function isCanonical(text: string): boolean {
  try {
    return btoa(atob(text)) === text;
  } catch {
    return false;
  }
}

Deno.test("what was encoded comes back, at every length", () => {
  const random = new SeededRandom(5);
  for (let length = 0; length < 300; length++) {
    const bytes = Uint8Array.from({ length }, () => random.integer(0, 255));
    const text = Buffer.from(bytes).toString("base64");
    assert.deepEqual(decode(text), bytes);
    assert.equal(decodedLength(new TextEncoder().encode(text), 0, text.length), length);
  }
});

Deno.test("text that differs from the one canonical form of its bytes is refused", () => {
  const random = new SeededRandom(6);
  const symbols = [..."AZaz09+/=-_ \n.é"];
  let accepted = 0;
  for (let i = 0; i < 20_000; i++) {
    const text = Array.from({ length: random.integer(0, 9) }, () => random.pick(symbols)).join("");
    if (isCanonical(text)) {
      accepted++;
      assert.deepEqual(decode(text), new Uint8Array(Buffer.from(text, "base64")), text);
    } else {
      assert.throws(() => decode(text), Base64Error, JSON.stringify(text));
    }
  }
  assert.ok(accepted > 300, `only ${accepted} of the texts were canonical`);
});

Deno.test("the message says what is wrong and where", () => {
  const messages: Record<string, string> = {
    "a": "Invalid input length: 1",
    "abcda": "Invalid input length: 5",
    "ab": "Invalid padding",
    "ab=": "Invalid padding",
    "abc": "Invalid padding",
    "ab-=": "Invalid symbol 45, offset 2.",
    "abcd=": "Invalid symbol 61, offset 4.",
    "ab==cd==": "Invalid symbol 61, offset 2.",
    "a===": "Invalid symbol 61, offset 1.",
    "abc=d": "Invalid symbol 61, offset 3.",
    "abcdé": "Invalid symbol 195, offset 4.",
    "ab==": "Invalid last symbol 98, offset 1.",
    "abd=": "Invalid last symbol 100, offset 2.",
  };
  for (const [text, message] of Object.entries(messages)) {
    assert.throws(() => decode(text), { message, code: "base64_invalid" });
  }
});
