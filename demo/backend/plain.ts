/** MessagePack of plain values, for a server that may take its time: answers written, inputs read. */
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import type { Struct } from "../../src/wire/ipc/struct.ts";

/** A number that is written as float64 even when it is whole. */
export class Float {
  readonly value: number;

  constructor(value: number) {
    this.value = value;
  }
}

/** What can be written. A Float32Array is a list of float32. */
export type Plain =
  | null
  | boolean
  | number
  | string
  | Uint8Array
  | Float32Array
  | Float
  | readonly Plain[]
  | { readonly [key: string]: Plain };

/** Writes a value. */
export function writePlain(writer: MsgpackWriter, value: Plain): void {
  if (value === null) writer.nil();
  else if (typeof value === "boolean") writer.bool(value);
  else if (typeof value === "string") writer.text(value);
  else if (typeof value === "number") Number.isInteger(value) ? writer.integer(value) : writer.float64(value);
  else if (value instanceof Float) writer.float64(value.value);
  else if (value instanceof Uint8Array) writer.bin(value);
  else if (value instanceof Float32Array) {
    writer.arrayHeader(value.length);
    for (const element of value) writer.float32(element);
  } else if (isList(value)) {
    writer.arrayHeader(value.length);
    for (const element of value) writePlain(writer, element);
  } else {
    const entries = Object.entries(value);
    writer.mapHeader(entries.length);
    for (const [key, member] of entries) {
      writer.text(key);
      writePlain(writer, member);
    }
  }
}

function isList(value: Plain): value is readonly Plain[] {
  return Array.isArray(value);
}

/** MessagePack of a value. */
export function encodePlain(value: Plain): Uint8Array {
  const writer = new MsgpackWriter();
  writePlain(writer, value);
  return writer.take();
}

/** A message with all its fields in their order, nil where none is given. */
export function filled(of: Struct, fields: { readonly [key: string]: Plain }): { readonly [key: string]: Plain } {
  return Object.fromEntries(of.names.map((name) => [name, fields[name] ?? null]));
}

/** A value as it was read: maps lose keys that are not str. Bytes are views. */
export type Read = null | boolean | number | bigint | string | Uint8Array | Read[] | { [key: string]: Read };

/** Reads a value whose form has been checked. */
export function readPlain(reader: MsgpackReader): Read {
  switch (reader.kind()) {
    case "nil":
      reader.nil();
      return null;
    case "bool":
      return reader.bool();
    case "int": {
      const value = reader.bigInteger();
      return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    }
    case "float":
      return reader.float();
    case "str":
      return reader.text();
    case "bin":
      reader.binSpan();
      return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
    case "array": {
      const list: Read[] = [];
      for (let left = reader.arrayHeader(); left > 0; left--) list.push(readPlain(reader));
      return list;
    }
    case "map":
      return readMap(reader);
    case "ext":
      reader.skip();
      return null;
  }
}

function readMap(reader: MsgpackReader): { [key: string]: Read } {
  // Without a prototype, so that no key of a user's map is special.
  const map = Object.create(null) as { [key: string]: Read };
  for (let left = reader.mapHeader(); left > 0; left--) {
    if (reader.kind() === "str") map[reader.text()] = readPlain(reader);
    else {
      reader.skip();
      reader.skip();
    }
  }
  return map;
}

/** Reads MessagePack whose form has been checked. */
export function decodePlain(bytes: Uint8Array): Read {
  return readPlain(new MsgpackReader(bytes));
}

/** A map, or an empty one. */
export function mapOf(value: Read | undefined): { [key: string]: Read } {
  const isMap = typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
  return isMap ? value : {};
}
