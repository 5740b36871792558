import assert from "node:assert/strict";
import { trimmedSpan } from "../../src/prepare/white_space.ts";

const utf8 = new TextEncoder();

function trimmed(text: string): string {
  // Spaces outside the span must not be looked at.
  const bytes = utf8.encode(` ${text} `);
  const { start, end } = trimmedSpan(bytes, 1, bytes.length - 1);
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(start, end));
}

Deno.test("every character with the Unicode property White_Space is trimmed, and no other", () => {
  for (let codePoint = 0; codePoint <= 0x10ffff; codePoint++) {
    if (codePoint >= 0xd800 && codePoint <= 0xdfff) continue;
    const char = String.fromCodePoint(codePoint);
    const isSpace = /\p{White_Space}/u.test(char);
    const { start, end } = trimmedSpan(utf8.encode(char), 0, utf8.encode(char).length);
    assert.equal(start === end, isSpace, `U+${codePoint.toString(16)}`);
  }
});

Deno.test("white space goes from both ends and stays inside", () => {
  assert.equal(trimmed("\u3000\t x \u2003y\u00a0\u0085\u2028"), "x \u2003y");
  assert.equal(trimmed(""), "");
  assert.equal(trimmed(" \u3000\n"), "");
  assert.equal(trimmed("é"), "é");
  assert.equal(trimmed("\ufeffx"), "\ufeffx", "a byte order mark is no white space");
});
