/**
 * Plain JavaScript values to and from MessagePack, for what callers put into items and find in results. Whole numbers are written as
 * integers, others as floats; integers beyond 53 bits are bigints both ways. Arrays of numpy, which results carry, are read as
 * {@link NumpyArray}; `numpyValues` of `wire/numpy.ts` gives their numbers.
 */
import { MsgpackError } from "../wire/msgpack/errors.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { MsgpackWriter } from "../wire/msgpack/writer.ts";
import { type NumpyArray, readNumpy } from "../wire/numpy.ts";

/** A value that callers may give. Members that are undefined are left out. */
export type PlainValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly PlainValue[]
  | { readonly [key: string]: PlainValue | undefined };

/** A value that was read. */
export type ReadValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | NumpyArray
  | ReadValue[]
  | { [key: string]: ReadValue };

/** Deeper nesting is refused in what is read: nothing that the sidecar sends is. */
const MAX_READ_DEPTH = 64;

/** MessagePack of a plain value. */
export function encodeValue(value: PlainValue): Uint8Array {
  const writer = new MsgpackWriter();
  writeValue(writer, value);
  return writer.take();
}

/** Writes a plain value. */
export function writeValue(writer: MsgpackWriter, value: PlainValue): void {
  if (value === null) writer.nil();
  else if (typeof value === "boolean") writer.bool(value);
  else if (typeof value === "string") writer.text(value);
  else if (typeof value === "bigint") writer.bigInteger(value);
  else if (typeof value === "number") Number.isSafeInteger(value) ? writer.integer(value) : writer.float64(value);
  else if (value instanceof Uint8Array) writer.bin(value);
  else if (isArray(value)) {
    writer.arrayHeader(value.length);
    for (const element of value) writeValue(writer, element);
  } else {
    const members = Object.entries(value).filter((member): member is [string, PlainValue] => member[1] !== undefined);
    writer.mapHeader(members.length);
    for (const [key, member] of members) {
      writer.text(key);
      writeValue(writer, member);
    }
  }
}

function isArray(value: PlainValue): value is readonly PlainValue[] {
  return Array.isArray(value);
}

/**
 * Reads one value.
 *
 * @throws MsgpackError when the bytes are no value, or hold what has no plain form: extensions, map keys that are no text
 */
export function decodeValue(bytes: Uint8Array): ReadValue {
  const reader = new MsgpackReader(bytes);
  const value = readValue(reader, 0);
  reader.expectEnd();
  return value;
}

function readValue(reader: MsgpackReader, depth: number): ReadValue {
  if (depth > MAX_READ_DEPTH) throw new MsgpackError("depth", `nested deeper than ${MAX_READ_DEPTH} levels`);
  const kind = reader.kind();
  switch (kind) {
    case "nil":
      reader.nil();
      return null;
    case "bool":
      return reader.bool();
    case "int": {
      const value = reader.bigInteger();
      return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
    }
    case "float":
      return reader.float();
    case "str":
      return reader.text();
    case "bin":
      reader.binSpan();
      return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
    case "array": {
      const elements: ReadValue[] = [];
      for (let left = reader.arrayHeader(); left > 0; left--) elements.push(readValue(reader, depth + 1));
      return elements;
    }
    case "map":
      return readMap(reader, depth);
    case "ext":
      throw new MsgpackError("type", "an extension has no plain form");
  }
}

function readMap(reader: MsgpackReader, depth: number): ReadValue {
  const start = reader.pos;
  const members: [string, ReadValue][] = [];
  for (let left = reader.mapHeader(); left > 0; left--) {
    if (reader.kind() === "bin") {
      // Only arrays of numpy have such keys.
      reader.pos = start;
      return readNumpy(reader);
    }
    members.push([reader.text(), readValue(reader, depth + 1)]);
  }
  // Own members only, whatever their names: `__proto__` is a name like any other.
  return Object.fromEntries(members);
}
