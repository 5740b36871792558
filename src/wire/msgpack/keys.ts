/** Finding known map keys by their bytes, without making strings of them. */

import { Buffer } from "node:buffer";
import { MsgpackError } from "./errors.ts";

const SLOTS = 256;

/** A fixed set of key names, each with its index in the list it was made from. */
export class KeyTable {
  readonly names: readonly string[];
  readonly #encoded: Uint8Array[];
  /** First candidate per hash slot, -1 for none; further ones are chained. */
  readonly #first = new Int16Array(SLOTS).fill(-1);
  readonly #next: Int16Array;

  constructor(names: readonly string[]) {
    this.names = names;
    const utf8 = new TextEncoder();
    this.#encoded = names.map((name) => utf8.encode(name));
    this.#next = new Int16Array(names.length).fill(-1);
    this.#encoded.forEach((bytes, index) => {
      const slot = slotOf(bytes, 0, bytes.length);
      this.#next[index] = this.#first[slot] as number;
      this.#first[slot] = index;
    });
  }

  /** Index of the key `bytes[at .. at + length)`, or -1 when it is none of the names. */
  indexOf(bytes: Uint8Array, at: number, length: number): number {
    if (length === 0) return -1;
    let index = this.#first[slotOf(bytes, at, length)] as number;
    while (index >= 0) {
      if (equalSpans(this.#encoded[index] as Uint8Array, 0, bytes, at, length)) return index;
      index = this.#next[index] as number;
    }
    return -1;
  }

  /** The error for a known key that occurs twice. */
  duplicate(index: number): MsgpackError {
    return new MsgpackError("field", `duplicate field '${this.names[index]}'`);
  }

  /** The error for a required key that is missing. */
  missing(index: number): MsgpackError {
    return new MsgpackError("field", `missing field '${this.names[index]}'`);
  }
}

function slotOf(bytes: Uint8Array, at: number, length: number): number {
  const first = bytes[at] as number;
  const middle = bytes[at + (length >> 1)] as number;
  const last = bytes[at + length - 1] as number;
  return (length * 37 + first * 11 + middle * 5 + last * 3) & (SLOTS - 1);
}

/** Whether `known`, from `knownAt` to its end, equals `length` bytes at `at`. */
function equalSpans(known: Uint8Array, knownAt: number, bytes: Uint8Array, at: number, length: number): boolean {
  if (known.length - knownAt !== length) return false;
  for (let i = 0; i < length; i++) {
    if (known[knownAt + i] !== bytes[at + i]) return false;
  }
  return true;
}

/** Whether two spans of equal length hold the same bytes. */
export function sameBytes(a: Uint8Array, aAt: number, b: Uint8Array, bAt: number, length: number): boolean {
  for (let i = 0; i < length; i++) {
    if (a[aAt + i] !== b[bAt + i]) return false;
  }
  return true;
}

const CACHE_SLOTS = 16;
/** Longer texts are not kept: what repeats between messages (models, lanes, hashes) is short. */
const CACHED_TEXT_BYTES = 256;

/**
 * Strings of byte spans that repeat from message to message (model ids, hashes, router ids): each is decoded once and compared
 * thereafter. Bounded: one string per slot.
 */
export class TextCache {
  readonly #bytes: (Uint8Array | undefined)[] = new Array(CACHE_SLOTS).fill(undefined);
  readonly #texts: string[] = new Array(CACHE_SLOTS).fill("");

  /** The text of `bytes[at .. at + length)`, which must be valid UTF-8. */
  get(bytes: Uint8Array, at: number, length: number): string {
    if (length === 0) return "";
    if (length > CACHED_TEXT_BYTES) return textOf(bytes, at, length);
    const slot = slotOf(bytes, at, length) % CACHE_SLOTS;
    const known = this.#bytes[slot];
    if (known !== undefined && equalSpans(known, 0, bytes, at, length)) return this.#texts[slot] as string;
    const copy = bytes.slice(at, at + length);
    const text = textOf(copy, 0, length);
    this.#bytes[slot] = copy;
    this.#texts[slot] = text;
    return text;
  }
}

/** The text of a span that is known to be valid UTF-8. (A TextDecoder takes three times as long for short texts.) */
export function textOf(bytes: Uint8Array, at: number, length: number): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset + at, length).toString();
}
