/** What the content of strings and extensions must be for a backend to take it. */
import { isUtf8 } from "node:buffer";

/** Strings up to this length are checked by a plain loop, longer ones by the runtime's vectorised check, whose call costs more. */
const SHORT_TEXT_BYTES = 96;

/** Whether `bytes[at .. at + length)` is valid UTF-8. */
export function isValidUtf8(bytes: Uint8Array, at: number, length: number): boolean {
  if (length > SHORT_TEXT_BYTES) return isUtf8(bytes.subarray(at, at + length));
  const end = at + length;
  for (let i = at; i < end;) {
    if ((bytes[i] as number) < 0x80) {
      i++;
      continue;
    }
    const size = characterBytes(bytes, i, end);
    if (size === 0) return false;
    i += size;
  }
  return true;
}

/** Length of the character of several bytes at `at`, or 0 when it is none: too long a form, a surrogate, beyond U+10FFFF, cut. */
function characterBytes(bytes: Uint8Array, at: number, end: number): number {
  const first = bytes[at] as number;
  const size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || size > end - at) return 0;
  const second = bytes[at + 1] as number;
  const least = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const most = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most) return 0;
  for (let i = 2; i < size; i++) if (((bytes[at + i] as number) & 0xc0) !== 0x80) return 0;
  return size;
}

const MOST_NANOSECONDS = 999_999_999;

/** Judges the extension whose content is `bytes[at .. at + length)`; its type is the last byte of the header before that. */
export function isBadExtension(bytes: Uint8Array, at: number, length: number): boolean {
  const type = bytes[at - 1] as number;
  if (type !== 0xff) return type >= 0x80;
  // Seconds alone, 30 bits of nanoseconds and 34 of seconds, or 32 and 64.
  if (length !== 8 && length !== 12) return length !== 4;
  let first = 0;
  for (let i = 0; i < 4; i++) first = first * 256 + (bytes[at + i] as number);
  return (length === 8 ? first >>> 2 : first) > MOST_NANOSECONDS;
}
