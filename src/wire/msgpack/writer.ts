/**
 * A MessagePack writer into one growing buffer: shortest forms (spec/ipc.md 7.1), raw spans copied as they came, keys encoded
 * once and copied thereafter.
 */

const utf8 = new TextEncoder();

/** Spans up to this length are copied by a plain loop; for them that is cheaper than making a subarray. */
const SHORT_SPAN_BYTES = 48;

/** Content lengths that have a format of their own. */
const FIXED_EXTENSIONS: readonly number[] = [1, 2, 4, 8, 16];

/** A str value encoded once, header included, to be written many times with {@link MsgpackWriter.raw}. */
export function encodedText(text: string): Uint8Array {
  const writer = new MsgpackWriter(text.length * 3 + 5);
  writer.text(text);
  return writer.take();
}

/** Values that are always written together, encoded once. */
export function encoded(write: (writer: MsgpackWriter) => void): Uint8Array {
  const writer = new MsgpackWriter();
  write(writer);
  return writer.take();
}

/** Growing output buffer. Not reusable across an await unless the caller owns it alone. */
export class MsgpackWriter {
  #bytes: Uint8Array;
  #view: DataView;
  /** Number of bytes written. */
  length = 0;

  constructor(capacity = 1024) {
    this.#bytes = new Uint8Array(Math.max(capacity, 16));
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** The written bytes from `start` on, as a view; what is written later can move to another buffer, or over it after a {@link clear}. */
  view(start = 0): Uint8Array {
    return this.#bytes.subarray(start, this.length);
  }

  /** The written bytes, handed over: the writer starts anew with an empty buffer of its own. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.length);
    this.#bytes = new Uint8Array(16);
    this.#view = new DataView(this.#bytes.buffer);
    this.length = 0;
    return taken;
  }

  /** A copy of the written bytes. */
  copy(): Uint8Array {
    return this.#bytes.slice(0, this.length);
  }

  /** Forgets what was written; the buffer stays. */
  clear(): void {
    this.length = 0;
  }

  /** Makes room for `extra` more bytes. */
  reserve(extra: number): void {
    const needed = this.length + extra;
    if (needed <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
    larger.set(this.#bytes.subarray(0, this.length));
    this.#bytes = larger;
    this.#view = new DataView(larger.buffer);
  }

  nil(): void {
    this.#byte(0xc0);
  }

  bool(value: boolean): void {
    this.#byte(value ? 0xc3 : 0xc2);
  }

  mapHeader(count: number): void {
    this.#header(count, 0x80, 0x0f, 0, 0xde, 0xdf);
  }

  arrayHeader(count: number): void {
    this.#header(count, 0x90, 0x0f, 0, 0xdc, 0xdd);
  }

  /** A str of the given text. */
  text(value: string): void {
    // Three bytes a UTF-16 unit is the most that UTF-8 needs; the header is chosen for the real length afterwards.
    const most = value.length * 3;
    this.reserve(most + 5);
    const headerBytes = most < 32 ? 1 : most < 256 ? 2 : most < 65536 ? 3 : 5;
    const at = this.length + headerBytes;
    const { written } = utf8.encodeInto(value, this.#bytes.subarray(at, at + most));
    const realHeader = written < 32 ? 1 : written < 256 ? 2 : written < 65536 ? 3 : 5;
    if (realHeader !== headerBytes) this.#bytes.copyWithin(this.length + realHeader, at, at + written);
    this.#textHeader(written);
    this.length += written;
  }

  /** A str whose content is `source[at .. at + length)`, already known to be UTF-8. */
  textSpan(source: Uint8Array, at: number, length: number): void {
    this.reserve(length + 5);
    this.#textHeader(length);
    this.raw(source, at, length);
  }

  /** A bin whose content is `source[at .. at + length)`. */
  bin(source: Uint8Array, at = 0, length: number = source.length - at): void {
    this.binHeader(length);
    this.raw(source, at, length);
  }

  /** Header of a bin of `length` bytes; the caller writes the content with {@link raw}. */
  binHeader(length: number): void {
    this.#header(length, -1, -1, 0xc4, 0xc5, 0xc6);
  }

  /** Header of an extension of the given type (-128 to 127); exactly `length` bytes must follow. */
  extHeader(type: number, length: number): void {
    this.reserve(6);
    const fixed = FIXED_EXTENSIONS.indexOf(length);
    if (fixed >= 0) this.#byte(0xd4 + fixed);
    else this.#header(length, -1, -1, 0xc7, 0xc8, 0xc9);
    this.#byte(type & 0xff);
  }

  /** Bytes that are MessagePack already. */
  raw(source: Uint8Array, at = 0, length: number = source.length - at): void {
    this.reserve(length);
    const bytes = this.#bytes;
    const start = this.length;
    if (length <= SHORT_SPAN_BYTES) {
      for (let i = 0; i < length; i++) bytes[start + i] = source[at + i] as number;
    } else {
      bytes.set(source.subarray(at, at + length), start);
    }
    this.length = start + length;
  }

  /** An integer of at most 53 bits in its shortest form. */
  integer(value: number): void {
    this.reserve(9);
    if (value >= 0) {
      if (value < 0x80) this.#byte(value);
      else if (value < 0x100) this.#two(0xcc, value);
      else if (value < 0x10000) this.#three(0xcd, value);
      else if (value < 0x100000000) this.#five(0xce, value);
      else this.bigInteger(BigInt(value));
    } else if (value >= -0x20) this.#byte(value & 0xff);
    else if (value >= -0x80) this.#two(0xd0, value & 0xff);
    else if (value >= -0x8000) this.#three(0xd1, value & 0xffff);
    else if (value >= -0x80000000) this.#five(0xd2, value >>> 0);
    else this.bigInteger(BigInt(value));
  }

  /** An integer from -2^63 to 2^64 - 1 in its shortest form. */
  bigInteger(value: bigint): void {
    if (value >= -0x80000000n && value <= 0xffffffffn) return this.integer(Number(value));
    this.reserve(9);
    this.#bytes[this.length] = value < 0n ? 0xd3 : 0xcf;
    if (value < 0n) this.#view.setBigInt64(this.length + 1, value);
    else this.#view.setBigUint64(this.length + 1, value);
    this.length += 9;
  }

  /** A float64, also for integral values. */
  float64(value: number): void {
    this.reserve(9);
    this.#bytes[this.length] = 0xcb;
    this.#view.setFloat64(this.length + 1, value);
    this.length += 9;
  }

  /** A float32. */
  float32(value: number): void {
    this.reserve(5);
    this.#bytes[this.length] = 0xca;
    this.#view.setFloat32(this.length + 1, value);
    this.length += 5;
  }

  /** Room for `length` raw bytes, to be filled by the caller at once through the returned view. */
  room(length: number): Uint8Array {
    this.reserve(length);
    const room = this.#bytes.subarray(this.length, this.length + length);
    this.length += length;
    return room;
  }

  /** Overwrites four bytes at `at` with a big-endian unsigned integer, for a length that is known only afterwards. */
  patchUint32(at: number, value: number): void {
    this.#view.setUint32(at, value);
  }

  #textHeader(length: number): void {
    this.#header(length, 0xa0, 0x1f, 0xd9, 0xda, 0xdb);
  }

  /** A header with a fixed form up to `fixMost` (none when negative) and forms of 1 (0 = none), 2 and 4 length bytes. */
  #header(count: number, fix: number, fixMost: number, one: number, two: number, four: number): void {
    this.reserve(5);
    if (count <= fixMost) this.#byte(fix | count);
    else if (one !== 0 && count < 0x100) this.#two(one, count);
    else if (count < 0x10000) this.#three(two, count);
    else this.#five(four, count);
  }

  #byte(value: number): void {
    if (this.length === this.#bytes.length) this.reserve(1);
    this.#bytes[this.length++] = value;
  }

  #two(marker: number, value: number): void {
    this.#bytes[this.length] = marker;
    this.#bytes[this.length + 1] = value;
    this.length += 2;
  }

  #three(marker: number, value: number): void {
    this.#bytes[this.length] = marker;
    this.#bytes[this.length + 1] = value >>> 8;
    this.#bytes[this.length + 2] = value & 0xff;
    this.length += 3;
  }

  #five(marker: number, value: number): void {
    this.#bytes[this.length] = marker;
    this.#view.setUint32(this.length + 1, value);
    this.length += 5;
  }
}
