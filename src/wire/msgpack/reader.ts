/**
 * A bounded MessagePack reader that skims. It never builds values: callers ask for the fields they need and take byte spans of
 * the rest (design.md, decision 3). Every declared length is checked against what is left before anything depends on it, depth
 * is bounded, and text is checked as UTF-8.
 */
import { MsgpackError } from "./errors.ts";
import { isBadExtension, isValidUtf8 } from "./content.ts";
import { textOf } from "./keys.ts";
import { ARRAY, BIN, EXT, FIXEXT, FORMS, HEADER_BYTES, type Kind, kindOfMarker, MAP, SCALAR, STR } from "./formats.ts";

/**
 * Deepest nesting that is read, in containers. The backend hangs up at about 1,024 levels of its whole request
 * (spec/ipc.md 1.3); the reference's reader gives up at 1,023 (7.2).
 */
export const MAX_DEPTH = 1020;

/**
 * Deepest nesting that may be spliced into a request: leaves room for the envelope around it. Deeper values are reported as
 * {@link TOO_DEEP} by {@link MsgpackReader.skip}.
 */
export const SAFE_DEPTH = 960;

/**
 * Most entries that the containers of one value from outside may declare, keys and values each: walking over so many takes a few
 * tens of milliseconds at the worst, and a request of the size that the backend takes does not come near.
 */
export const MOST_ENTRIES = 2 * 1024 * 1024;

/** Flags of {@link MsgpackReader.skip}: what a well-formed value holds that matters to whoever passes it on. */
export const HAS_BIN_OR_EXT = 1;
/** A map key that is neither str nor bin: the backend would close the connection (spec/ipc.md 1.3). */
export const BAD_KEY = 2;
/** A str that is not valid UTF-8: the backend would close the connection. */
export const BAD_UTF8 = 4;
/**
 * An extension for which the backend would close the connection: of a negative type, of which only -1 is known, the timestamp; or a
 * timestamp of a wrong length or with a billion nanoseconds or more.
 */
export const BAD_EXTENSION = 8;
/** Nested deeper than {@link SAFE_DEPTH}. */
export const TOO_DEEP = 16;
/** Any of the flags for which the backend would hang up. */
export const UNSAFE = BAD_KEY | BAD_UTF8 | BAD_EXTENSION | TOO_DEEP;

// One walk runs at a time and never yields, so the stacks can be shared by all readers.
const stackRemaining = new Float64Array(MAX_DEPTH + 1);
const stackInMap = new Uint8Array(MAX_DEPTH + 1);

const scratchBytes = new Uint8Array(8);
const scratchView = new DataView(scratchBytes.buffer);

/** A cursor over MessagePack bytes. Methods advance `pos`; after a throw the position is undefined. */
export class MsgpackReader {
  readonly bytes: Uint8Array;
  /** Offset of the next byte. */
  pos: number;
  /** Offset after the last readable byte. */
  readonly end: number;
  /** Start of the content (without header) that {@link textSpan} or {@link binSpan} found. */
  spanAt = 0;
  /** Length in bytes of that content. */
  spanLength = 0;
  /** What the walk in progress has found so far. */
  #flags = 0;
  /** Whether the container that the walk entered last is a map. */
  #enteredMap = false;
  #entriesLeft = Infinity;

  constructor(bytes: Uint8Array, pos = 0, end = bytes.length) {
    this.bytes = bytes;
    this.pos = pos;
    this.end = end;
  }

  /** From here on, containers may declare so many entries together; reading one a second time counts a second time. */
  limitEntries(most: number): void {
    this.#entriesLeft = most;
  }

  /** Type of the next value; does not advance. */
  kind(): Kind {
    const marker = this.#marker(this.pos);
    if (marker < 0x80 || marker >= 0xe0) return "int";
    if (marker < 0x90) return "map";
    if (marker < 0xa0) return "array";
    if (marker < 0xc0) return "str";
    return kindOfMarker(marker, this.pos);
  }

  /** Whether the next value is nil; if so it is consumed. */
  nil(): boolean {
    if (this.#marker(this.pos) !== 0xc0) return false;
    this.pos++;
    return true;
  }

  /** A bool; a number is not one. */
  bool(): boolean {
    const marker = this.#marker(this.pos);
    if (marker !== 0xc2 && marker !== 0xc3) throw this.#typeError("bool");
    this.pos++;
    return marker === 0xc3;
  }

  /** Number of pairs of a map; each needs at least two bytes, so the count is at most half of what is left. */
  mapHeader(): number {
    const marker = this.#marker(this.pos);
    let count: number;
    if (marker >= 0x80 && marker < 0x90) count = (this.pos++, marker & 0x0f);
    else if (marker === 0xde) count = (this.pos++, this.#u16());
    else if (marker === 0xdf) count = (this.pos++, this.#u32());
    else throw this.#typeError("map");
    if (count * 2 > this.end - this.pos) throw this.#tooMany("map", count);
    this.#countEntries(2 * count);
    return count;
  }

  /** Number of elements of an array; each needs at least one byte. */
  arrayHeader(): number {
    const marker = this.#marker(this.pos);
    let count: number;
    if (marker >= 0x90 && marker < 0xa0) count = (this.pos++, marker & 0x0f);
    else if (marker === 0xdc) count = (this.pos++, this.#u16());
    else if (marker === 0xdd) count = (this.pos++, this.#u32());
    else throw this.#typeError("array");
    if (count > this.end - this.pos) throw this.#tooMany("array", count);
    this.#countEntries(count);
    return count;
  }

  /**
   * Content of a str, or of a bin that is valid UTF-8 (both are accepted where text is expected, spec/queue.md 2). Sets
   * {@link spanAt} and {@link spanLength}.
   */
  textSpan(): void {
    const start = this.pos;
    const marker = this.#marker(start);
    const length = this.#contentLength(marker, true);
    this.spanAt = this.pos;
    this.spanLength = length;
    this.pos += length;
    if (!isValidUtf8(this.bytes, this.spanAt, length)) {
      throw new MsgpackError("utf8", `text of ${length} bytes at offset ${start} is not valid UTF-8`);
    }
  }

  /** Text as a string; see {@link textSpan}. */
  text(): string {
    this.textSpan();
    return textOf(this.bytes, this.spanAt, this.spanLength);
  }

  /** Content of a bin. Sets {@link spanAt} and {@link spanLength}. */
  binSpan(): void {
    const marker = this.#marker(this.pos);
    if (marker < 0xc4 || marker > 0xc6) throw this.#typeError("bin");
    const length = this.#contentLength(marker, true);
    this.spanAt = this.pos;
    this.spanLength = length;
    this.pos += length;
  }

  /** Content of a map key, str or bin, without checking it as text. Any other key type is skipped and gives false. */
  keySpan(): boolean {
    const marker = this.#marker(this.pos);
    if ((marker >= 0xa0 && marker < 0xc0) || (marker >= 0xd9 && marker <= 0xdb) || (marker >= 0xc4 && marker <= 0xc6)) {
      const length = this.#contentLength(marker, true);
      this.spanAt = this.pos;
      this.spanLength = length;
      this.pos += length;
      return true;
    }
    this.skip();
    this.spanLength = 0;
    return false;
  }

  /** An integer from 0 to `maximum` (at most 2^53 - 1) in any integer format. Floats are refused. */
  unsigned(maximum: number): number {
    const start = this.pos;
    const marker = this.#marker(start);
    if (marker < 0x80 && marker <= maximum) {
      this.pos++;
      return marker;
    }
    const value = this.#integer();
    if (value < 0 || value > maximum) {
      throw new MsgpackError("range", `integer ${value} at offset ${start} is outside 0..=${maximum}`);
    }
    return Number(value);
  }

  /** An integer from -2^63 to 2^64 - 1, exact: a number where it fits 53 bits. */
  exactInteger(): number | bigint {
    return this.#integer();
  }

  /** An integer from -2^63 to 2^64 - 1, exact. */
  bigInteger(): bigint {
    return BigInt(this.#integer());
  }

  /** An integer of at most 53 bits either way, as a number. */
  integer(): number {
    const start = this.pos;
    const value = this.#integer();
    if (value < -Number.MAX_SAFE_INTEGER || value > Number.MAX_SAFE_INTEGER) {
      throw new MsgpackError("range", `integer ${value} at offset ${start} does not fit 53 bits`);
    }
    return Number(value);
  }

  /** A float of either size, or an integer (accepted for float fields, spec/ipc.md 7.1). */
  float(): number {
    const marker = this.#marker(this.pos);
    if (marker === 0xcb) {
      const at = this.#take(8);
      const bytes = this.bytes;
      for (let i = 0; i < 8; i++) scratchBytes[i] = bytes[at + i] as number;
      return scratchView.getFloat64(0);
    }
    if (marker === 0xca) {
      const at = this.#take(4);
      for (let i = 0; i < 4; i++) scratchBytes[i] = this.bytes[at + i] as number;
      return scratchView.getFloat32(0);
    }
    if (this.kind() !== "int") throw this.#typeError("float");
    return Number(this.#integer());
  }

  /**
   * Walks over one value of any type.
   *
   * @returns flags ({@link HAS_BIN_OR_EXT}, {@link BAD_KEY}, {@link BAD_UTF8}, {@link BAD_EXTENSION}, {@link TOO_DEEP})
   * @throws MsgpackError for bytes that are no value: truncated, reserved, nested deeper than {@link MAX_DEPTH}
   */
  skip(): number {
    this.#flags = 0;
    let depth = 0, remaining = 1, inMap = 0;
    for (;;) {
      while (remaining === 0) {
        if (depth === 0) return this.#flags;
        depth--;
        remaining = stackRemaining[depth] as number;
        inMap = stackInMap[depth] as number;
      }
      const isKey = inMap === 1 && remaining % 2 === 0;
      remaining--;
      const children = this.#enter(isKey);
      if (children < 0) continue;
      if (depth >= MAX_DEPTH) {
        throw new MsgpackError("depth", `nested deeper than ${MAX_DEPTH} levels at offset ${this.pos}`);
      }
      stackRemaining[depth] = remaining;
      stackInMap[depth] = inMap;
      depth++;
      if (depth > SAFE_DEPTH) this.#flags |= TOO_DEEP;
      remaining = children;
      inMap = this.#enteredMap ? 1 : 0;
    }
  }

  /** Walks over a scalar, or into a container. @returns the number of values in the container, keys included; -1 for a scalar */
  #enter(isKey: boolean): number {
    const marker = this.#marker(this.pos);
    this.pos++;
    if (marker >= 0xa0 && marker < 0xc0) return this.#pass(STR, marker & 0x1f, isKey);
    if (marker < 0x80 || marker >= 0xe0) return this.#pass(SCALAR, 0, isKey);
    if (marker < 0x90) return this.#open(2 * (marker & 0x0f), true, isKey);
    if (marker < 0xa0) return this.#open(marker & 0x0f, false, isKey);
    const width = HEADER_BYTES[marker - 0xc0] as number;
    if (width < 0) throw new MsgpackError("reserved", `reserved byte 0xc1 at offset ${this.pos - 1}`);
    if (width > this.end - this.pos) throw truncated(this.pos);
    const form = FORMS[marker - 0xc0] as number;
    if (form === SCALAR) return this.#pass(SCALAR, width, isKey);
    const declared = form === FIXEXT ? 1 << (marker - 0xd4) : this.#bigEndian(form === EXT ? width - 1 : width);
    this.pos += width;
    if (form === MAP) return this.#open(2 * declared, true, isKey);
    return form === ARRAY ? this.#open(declared, false, isKey) : this.#pass(form, declared, isKey);
  }

  /** Passes over the content of a scalar, noting what is wrong with it. */
  #pass(form: number, length: number, isKey: boolean): number {
    const at = this.pos;
    if (length > this.end - at) throw truncated(at);
    if (form === STR) {
      if (!isValidUtf8(this.bytes, at, length)) this.#flags |= BAD_UTF8;
    } else if (form === SCALAR) {
      if (isKey) this.#flags |= BAD_KEY;
    } else {
      this.#flags |= HAS_BIN_OR_EXT;
      if (form !== BIN && isKey) this.#flags |= BAD_KEY;
      if (form !== BIN && isBadExtension(this.bytes, at, length)) this.#flags |= BAD_EXTENSION;
    }
    this.pos = at + length;
    return -1;
  }

  #open(count: number, isMap: boolean, isKey: boolean): number {
    if (isKey) this.#flags |= BAD_KEY;
    if (count > this.end - this.pos) throw truncated(this.pos);
    this.#countEntries(count);
    this.#enteredMap = isMap;
    return count;
  }

  #countEntries(count: number): void {
    this.#entriesLeft -= count;
    if (this.#entriesLeft >= 0) return;
    throw new MsgpackError("entries", `a container of ${count} entries at offset ${this.pos}: too many in one value`);
  }

  /** The unsigned integer in the next `width` bytes, which are there; does not advance. */
  #bigEndian(width: number): number {
    let value = 0;
    for (let i = 0; i < width; i++) value = value * 256 + (this.bytes[this.pos + i] as number);
    return value;
  }

  /** Fails unless everything has been read. */
  expectEnd(): void {
    if (this.pos !== this.end) {
      throw new MsgpackError("trailing", `${this.end - this.pos} bytes after the value at offset ${this.pos}`);
    }
  }

  /** Length of the str or bin content at `pos`; advances past the header and checks that the content is all there. */
  #contentLength(marker: number, allowBin: boolean): number {
    let length: number;
    if (marker >= 0xa0 && marker < 0xc0) length = (this.pos++, marker & 0x1f);
    else if (marker === 0xd9 || (allowBin && marker === 0xc4)) length = (this.pos++, this.#u8());
    else if (marker === 0xda || (allowBin && marker === 0xc5)) length = (this.pos++, this.#u16());
    else if (marker === 0xdb || (allowBin && marker === 0xc6)) length = (this.pos++, this.#u32());
    else throw this.#typeError("str");
    if (length > this.end - this.pos) throw truncated(this.pos);
    return length;
  }

  #integer(): number | bigint {
    const marker = this.#marker(this.pos);
    if (marker < 0x80) return (this.pos++, marker);
    if (marker >= 0xe0) return (this.pos++, marker - 0x100);
    switch (marker) {
      case 0xcc:
        return (this.pos++, this.#u8());
      case 0xcd:
        return (this.pos++, this.#u16());
      case 0xce:
        return (this.pos++, this.#u32());
      case 0xcf:
        return this.#int64(false);
      case 0xd0:
        return (this.pos++, (this.#u8() << 24) >> 24);
      case 0xd1:
        return (this.pos++, (this.#u16() << 16) >> 16);
      case 0xd2:
        return (this.pos++, this.#u32() | 0);
      case 0xd3:
        return this.#int64(true);
      default:
        throw this.#typeError("int");
    }
  }

  #int64(signed: boolean): number | bigint {
    const at = this.#take(8);
    for (let i = 0; i < 8; i++) scratchBytes[i] = this.bytes[at + i] as number;
    const value = signed ? scratchView.getBigInt64(0) : scratchView.getBigUint64(0);
    return value >= -9007199254740991n && value <= 9007199254740991n ? Number(value) : value;
  }

  /** Skips the marker and `length` bytes; returns the offset of those bytes. */
  #take(length: number): number {
    const at = this.pos + 1;
    if (length > this.end - at) throw truncated(at);
    this.pos = at + length;
    return at;
  }

  #marker(at: number): number {
    if (at >= this.end) throw truncated(at);
    return this.bytes[at] as number;
  }

  #u8(): number {
    if (this.end - this.pos < 1) throw truncated(this.pos);
    return this.bytes[this.pos++] as number;
  }

  #u16(): number {
    if (this.end - this.pos < 2) throw truncated(this.pos);
    const value = ((this.bytes[this.pos] as number) << 8) | (this.bytes[this.pos + 1] as number);
    this.pos += 2;
    return value;
  }

  #u32(): number {
    if (this.end - this.pos < 4) throw truncated(this.pos);
    const value = (((this.bytes[this.pos] as number) << 24) | ((this.bytes[this.pos + 1] as number) << 16) |
      ((this.bytes[this.pos + 2] as number) << 8) | (this.bytes[this.pos + 3] as number)) >>> 0;
    this.pos += 4;
    return value;
  }

  #typeError(expected: Kind): MsgpackError {
    return new MsgpackError("type", `expected ${expected}, got ${this.kind()} at offset ${this.pos}`);
  }

  #tooMany(what: "map" | "array", count: number): MsgpackError {
    const left = this.end - this.pos;
    return new MsgpackError(
      "truncated",
      `${what} of ${count} entries at offset ${this.pos}, but only ${left} bytes are left`,
    );
  }
}

function truncated(at: number): MsgpackError {
  return new MsgpackError("truncated", `the value ends early at offset ${at}`);
}
