/**
 * As much of the protobuf wire format as an ONNX file needs: a writer that gives the same bytes every time, and a reader
 * that checks every length before it looks at the bytes.
 */
import { TrainingError } from "./errors.ts";

const utf8 = new TextEncoder();
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Wire types in use; groups (3, 4) are refused. */
const VARINT = 0, FIXED_64 = 1, BYTES = 2, FIXED_32 = 5;

/** Bytes from which on a value is kept as it is instead of being copied. */
const LARGE = 1024;

/**
 * Builds one message. Fields are written in the order of the calls; write them by ascending number. Large values are copied
 * once, by {@link finish}, however deep they are nested; they must not change before.
 */
export class ProtoWriter {
  /** What is finished, in order; small fields are collected in `#bytes` first. */
  readonly #pieces: Uint8Array[] = [];
  #piecesLength = 0;
  #bytes = new Uint8Array(256);
  #length = 0;

  /** An integer field; `value` is not negative and safe. */
  integer(field: number, value: number): this {
    this.#varint(field * 8 + VARINT);
    this.#varint(value);
    return this;
  }
  /** A float field. */
  float(field: number, value: number): this {
    this.#varint(field * 8 + FIXED_32);
    this.#reserve(4);
    new DataView(this.#bytes.buffer).setFloat32(this.#length, value, true);
    this.#length += 4;
    return this;
  }
  /** A bytes field. */
  bytes(field: number, value: Uint8Array): this {
    this.#varint(field * 8 + BYTES);
    this.#varint(value.length);
    this.#append(value);
    return this;
  }
  /** A string field. */
  string(field: number, value: string): this {
    return this.bytes(field, utf8.encode(value));
  }
  /** A nested message, which must be complete. */
  message(field: number, value: ProtoWriter): this {
    this.#varint(field * 8 + BYTES);
    this.#varint(value.#piecesLength + value.#length);
    for (const piece of value.#pieces) this.#append(piece);
    this.#append(value.#bytes.subarray(0, value.#length));
    return this;
  }
  /** The bytes written so far, as a copy. */
  finish(): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.#piecesLength + this.#length);
    let at = 0;
    for (const piece of [...this.#pieces, this.#bytes.subarray(0, this.#length)]) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }

  #append(value: Uint8Array): void {
    if (value.length < LARGE) {
      this.#reserve(value.length);
      this.#bytes.set(value, this.#length);
      this.#length += value.length;
      return;
    }
    this.#pieces.push(this.#bytes.slice(0, this.#length), value);
    this.#piecesLength += this.#length + value.length;
    this.#length = 0;
  }
  #varint(value: number): void {
    this.#reserve(10);
    while (value >= 0x80) {
      this.#bytes[this.#length++] = (value % 0x80) | 0x80;
      value = Math.floor(value / 0x80);
    }
    this.#bytes[this.#length++] = value;
  }
  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(2 * this.#bytes.length, this.#length + more));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }
}

/** One field of a message. Exactly one of the values is meaningful, by `wire`. */
export interface ProtoField {
  readonly number: number;
  readonly wire: number;
  /** The value of a varint field; integers past 2^53 lose exactness, negative ones read as huge. */
  readonly integer: number;
  /** The content of a length-delimited field, or the 4 or 8 bytes of a fixed one. */
  readonly bytes: Uint8Array;
}

const NO_BYTES = new Uint8Array(0);

/**
 * The fields of one message, one after the other.
 *
 * @throws TrainingError `invalid_model` when the bytes end inside a field or a tag is malformed.
 */
export function* protoFields(message: Uint8Array): Generator<ProtoField> {
  let at = 0;
  const varint = (): number => {
    let value = 0, scale = 1;
    for (let i = 0; i < 10; i++) {
      const byte = message[at++];
      if (byte === undefined) throw malformed("the bytes end inside a number");
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
    throw malformed("a number has more than 10 bytes");
  };
  const take = (length: number): Uint8Array => {
    if (length > message.length - at) {
      throw malformed(`a field declares ${length} bytes where ${message.length - at} are left`);
    }
    at += length;
    return message.subarray(at - length, at);
  };
  while (at < message.length) {
    const tag = varint();
    const number = Math.floor(tag / 8), wire = tag % 8;
    if (number < 1 || number > 0x1fffffff) throw malformed(`field number ${number} is out of range`);
    if (wire === VARINT) yield { number, wire, integer: varint(), bytes: NO_BYTES };
    else if (wire === FIXED_64) yield { number, wire, integer: 0, bytes: take(8) };
    else if (wire === BYTES) yield { number, wire, integer: 0, bytes: take(varint()) };
    else if (wire === FIXED_32) yield { number, wire, integer: 0, bytes: take(4) };
    else throw malformed(`wire type ${wire} is not supported`);
  }
}

/** The content of a string field. */
export function protoString(field: ProtoField): string {
  expectWire(field, BYTES);
  try {
    return strictUtf8.decode(field.bytes);
  } catch {
    throw malformed(`field ${field.number} is not valid UTF-8`);
  }
}

/** The content of a length-delimited field. */
export function protoBytes(field: ProtoField): Uint8Array {
  expectWire(field, BYTES);
  return field.bytes;
}

/** The value of an integer field. */
export function protoInteger(field: ProtoField): number {
  expectWire(field, VARINT);
  return field.integer;
}

/** The value of a float field. */
export function protoFloat(field: ProtoField): number {
  expectWire(field, FIXED_32);
  return new DataView(field.bytes.buffer, field.bytes.byteOffset, 4).getFloat32(0, true);
}

/** The values of one occurrence of a repeated integer field, packed or not; at most `limit` of them. */
export function protoIntegers(field: ProtoField, limit: number): number[] {
  if (field.wire === VARINT) return [field.integer];
  const values: number[] = [];
  // A packed run of varints has the same form as a message body without tags.
  let value = 0, scale = 1, bytes = 0;
  for (const byte of protoBytes(field)) {
    value += (byte & 0x7f) * scale;
    scale *= 0x80;
    if (++bytes > 10) throw malformed("a number has more than 10 bytes");
    if (byte >= 0x80) continue;
    if (values.push(value) > limit) throw malformed(`field ${field.number} has more than ${limit} values`);
    value = 0;
    scale = 1;
    bytes = 0;
  }
  if (bytes > 0) throw malformed("the bytes end inside a number");
  return values;
}

/** The bytes of one occurrence of a repeated float field, packed or not: little-endian float32. */
export function protoFloatBytes(field: ProtoField): Uint8Array {
  if (field.wire !== FIXED_32) expectWire(field, BYTES);
  if (field.bytes.length % 4 !== 0) throw malformed(`field ${field.number} is not a run of 4-byte floats`);
  return field.bytes;
}

function expectWire(field: ProtoField, wire: number): void {
  if (field.wire !== wire) throw malformed(`field ${field.number} has wire type ${field.wire} instead of ${wire}`);
}

function malformed(reason: string): TrainingError {
  return new TrainingError("invalid_model", `malformed protobuf: ${reason}`);
}
