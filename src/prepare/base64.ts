/**
 * Strict base64 of bytes: the standard alphabet, padding required, no white space inside, unused bits zero. Works on UTF-8 as it
 * stands in a message, without a string in between.
 */
import { SidecarError } from "../runtime/errors.ts";

/** Why text is no such base64. The message says what is wrong and where, and shows nothing of the text but one byte's number. */
export class Base64Error extends SidecarError {
  constructor(message: string) {
    super("base64_invalid", message);
  }
}

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PAD = 0x3d;

/** Value of each byte, -1 for those outside the alphabet. */
const VALUES = new Int8Array(256).fill(-1);
for (let value = 0; value < ALPHABET.length; value++) VALUES[ALPHABET.charCodeAt(value)] = value;

/** Number of padding bytes at the end, at most 2. */
function paddingOf(bytes: Uint8Array, at: number, length: number): number {
  if (length === 0 || bytes[at + length - 1] !== PAD) return 0;
  return length > 1 && bytes[at + length - 2] === PAD ? 2 : 1;
}

/** Number of bytes that base64 text of this length and padding stands for; text that is no base64 gives some number near it. */
export function decodedLength(bytes: Uint8Array, at: number, length: number): number {
  return Math.max(Math.floor(length / 4) * 3 - paddingOf(bytes, at, length), 0);
}

/**
 * Decodes `bytes[at .. at + length)`.
 *
 * @throws Base64Error
 */
export function decodeBase64(bytes: Uint8Array, at: number, length: number): Uint8Array<ArrayBuffer> {
  const padding = paddingOf(bytes, at, length);
  const symbols = length - padding;
  // Whole groups of four symbols first; what is left is the last, padded group.
  const wholeEnd = at + symbols - symbols % 4;
  const decoded = new Uint8Array(decodedLength(bytes, at, length));
  let to = 0;
  for (let from = at; from < wholeEnd; from += 4) {
    const a = VALUES[bytes[from] as number] as number;
    const b = VALUES[bytes[from + 1] as number] as number;
    const c = VALUES[bytes[from + 2] as number] as number;
    const d = VALUES[bytes[from + 3] as number] as number;
    // Negative when one of them is.
    if ((a | b | c | d) < 0) throw faultOf(bytes, at, length);
    decoded[to] = (a << 2) | (b >> 4);
    decoded[to + 1] = (b << 4) | (c >> 2);
    decoded[to + 2] = (c << 6) | d;
    to += 3;
  }
  const fault = length % 4 !== 0 || symbols % 4 === 1 || (symbols % 4 === 0 && padding > 0);
  if (fault) throw faultOf(bytes, at, length);
  if (padding > 0) decodeLastGroup(bytes, wholeEnd, padding, decoded, to, at, length);
  return decoded;
}

/** Two or three symbols before the padding. */
function decodeLastGroup(
  bytes: Uint8Array,
  from: number,
  padding: number,
  decoded: Uint8Array,
  to: number,
  at: number,
  length: number,
): void {
  const a = VALUES[bytes[from] as number] as number;
  const b = VALUES[bytes[from + 1] as number] as number;
  const c = padding === 1 ? VALUES[bytes[from + 2] as number] as number : 0;
  const unusedBits = padding === 1 ? c & 0x03 : b & 0x0f;
  if ((a | b | c) < 0 || unusedBits !== 0) throw faultOf(bytes, at, length);
  decoded[to] = (a << 2) | (b >> 4);
  if (padding === 1) decoded[to + 1] = (b << 4) | (c >> 2);
}

/** Finds out what is wrong with text that did not decode. */
function faultOf(bytes: Uint8Array, at: number, length: number): Base64Error {
  let symbols = 0;
  while (symbols < length && (VALUES[bytes[at + symbols] as number] as number) >= 0) symbols++;
  const rest = length - symbols;
  const padding = paddingOf(bytes, at, length);
  const isPadded = rest > 0 && rest === padding && symbols % 4 >= 2;
  if (rest > 0 && !isPadded) {
    return new Base64Error(`Invalid symbol ${bytes[at + symbols]}, offset ${symbols}.`);
  }
  if (symbols % 4 === 1) return new Base64Error(`Invalid input length: ${length}`);
  if (length % 4 !== 0) return new Base64Error("Invalid padding");
  return new Base64Error(`Invalid last symbol ${bytes[at + symbols - 1]}, offset ${symbols - 1}.`);
}
