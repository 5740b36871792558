/** White space at the ends of UTF-8 text: the characters with the Unicode property White_Space. */

/** Offsets of the first byte and behind the last byte that are no white space; equal when there is nothing else. */
export interface TrimmedSpan {
  readonly start: number;
  readonly end: number;
}

/** Trims `bytes[start .. end)`, which must be valid UTF-8. */
export function trimmedSpan(bytes: Uint8Array, start: number, end: number): TrimmedSpan {
  for (let width = spaceWidth(bytes, start, end); width > 0; width = spaceWidth(bytes, start, end)) start += width;
  for (;;) {
    let last = end - 1;
    // Back over continuation bytes to the start of the last character.
    while (last > start && ((bytes[last] as number) & 0xc0) === 0x80) last--;
    const width = last < start ? 0 : spaceWidth(bytes, last, end);
    if (width === 0 || last + width !== end) return { start, end };
    end = last;
  }
}

/** Bytes of the white space character at `at`, 0 when there is none. */
function spaceWidth(bytes: Uint8Array, at: number, end: number): number {
  const first = at < end ? bytes[at] as number : 0;
  if (first === 0x20 || (first >= 0x09 && first <= 0x0d)) return 1;
  if (first < 0x80) return 0;
  const second = at + 1 < end ? bytes[at + 1] as number : 0;
  if (first === 0xc2) return second === 0x85 || second === 0xa0 ? 2 : 0;
  const third = at + 2 < end ? bytes[at + 2] as number : 0;
  const codePoint = ((first & 0x0f) << 12) | ((second & 0x3f) << 6) | (third & 0x3f);
  const isThreeBytes = (first & 0xf0) === 0xe0;
  const isSpace = codePoint === 0x1680 || (codePoint >= 0x2000 && codePoint <= 0x200a) || codePoint === 0x2028 ||
    codePoint === 0x2029 || codePoint === 0x202f || codePoint === 0x205f || codePoint === 0x3000;
  return isThreeBytes && isSpace ? 3 : 0;
}
