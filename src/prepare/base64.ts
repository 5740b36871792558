/**
 * Strict base64 of bytes: the standard alphabet, padding required, no white space inside, unused bits zero. Works on UTF-8 as it
 * stands in a message.
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

/** Bytes outside ASCII become characters outside the alphabet, whatever they are. */
const ascii = new TextDecoder("utf-8", { ignoreBOM: true });

/**
 * Decodes `bytes[at .. at + length)`. The runtime's decoder does the work, three times as fast as a loop here; it passes over white
 * space, by which the result becomes too short.
 *
 * @throws Base64Error
 */
export function decodeBase64(bytes: Uint8Array, at: number, length: number): Uint8Array<ArrayBuffer> {
  if (length % 4 !== 0) throw faultOf(bytes, at, length);
  const decoded = new Uint8Array(decodedLength(bytes, at, length));
  const text = ascii.decode(bytes.subarray(at, at + length));
  try {
    const { written } = decoded.setFromBase64(text, { lastChunkHandling: "strict" });
    if (written === decoded.length) return decoded;
  } catch (thrown) {
    if (!(thrown instanceof SyntaxError)) throw thrown;
  }
  throw faultOf(bytes, at, length);
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
