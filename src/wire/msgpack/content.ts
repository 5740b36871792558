/** What the content of strings and extensions must be for a backend to take it. */
import { isUtf8 } from "node:buffer";

/** Strings up to this length are checked by a plain loop, longer ones by the runtime's vectorised check. */
const SHORT_TEXT_BYTES = 96;

/** Whether `bytes[at .. at + length)` is valid UTF-8. */
export function isValidUtf8(bytes: Uint8Array, at: number, length: number): boolean {
  if (length <= SHORT_TEXT_BYTES) {
    const end = at + length;
    let i = at;
    while (i < end && (bytes[i] as number) < 0x80) i++;
    if (i === end) return true;
  }
  return isUtf8(bytes.subarray(at, at + length));
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
