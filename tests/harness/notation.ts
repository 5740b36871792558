/**
 * The notation of the vector files between JSON and MessagePack. JSON cannot tell a float from an integer, str from bin, or hold
 * a map with other keys than strings; the files tag such values:
 *
 * - `{"$bin": hex}`, `{"$bin_repeat": [byte, length]}` bin; `{"$raw_str": hex}` str of bytes that may be no UTF-8
 * - `{"$f64": x}`, `{"$f32": x}` floats (`x` may be `"NaN"`, `"inf"`, `"-inf"`); a plain number with a fraction is a float64
 * - `{"$u64": "n"}` an integer beyond 53 bits; a plain whole number is an integer
 * - `{"$map": [[key, value], …]}` a map with keys that are not strings, with repeated keys, or whose order JSON would lose
 * - `{"$ext": [type, hex]}` an extension
 * - `{"$numpy": dtype, "shape": […], "values": […]}` an array as msgpack-numpy writes it; with an empty shape a scalar
 *
 * The code below is independent of `src/wire`: it is what the reader and the writer there are compared with.
 */
import assert from "node:assert/strict";
import { fromHex, toHex } from "./paths.ts";

/** One MessagePack value, without loss: types that JavaScript would mix up are kept apart. */
export type Value =
  | { readonly type: "nil" }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "int"; readonly value: bigint }
  | { readonly type: "f32" | "f64"; readonly value: number }
  | { readonly type: "str" | "bin"; readonly hex: string }
  | { readonly type: "ext"; readonly code: number; readonly hex: string }
  | { readonly type: "array"; readonly items: readonly Value[] }
  | { readonly type: "map"; readonly pairs: readonly (readonly [Value, Value])[] };

/** Fails unless `bytes` are exactly one value, the one that `notation` describes, map order included. */
export function assertNotation(bytes: Uint8Array, notation: unknown): void {
  assert.deepEqual(readValue(bytes), valueOf(notation));
}

/**
 * As {@link assertNotation}, for files that do not tag whole floats (recordings of the real backend): numbers are equal when they
 * have the same value, and the order of map entries does not count.
 */
export function assertNotationLoosely(bytes: Uint8Array, notation: unknown): void {
  assert.deepEqual(loosened(readValue(bytes)), loosened(valueOf(notation)));
}

/** MessagePack of a notation: shortest forms, map order kept. */
export function encodeNotation(notation: unknown): Uint8Array {
  return writeValue(valueOf(notation));
}

/** The notation of MessagePack: every float is tagged, arrays of numpy stay plain maps. */
export function decodeNotation(bytes: Uint8Array): unknown {
  return notationOf(readValue(bytes));
}

/** A notation as a value. */
export function valueOf(notation: unknown): Value {
  if (notation === null) return { type: "nil" };
  if (typeof notation === "boolean") return { type: "bool", value: notation };
  if (typeof notation === "string") return text(notation);
  if (typeof notation === "bigint") return { type: "int", value: notation };
  if (typeof notation === "number") {
    return Number.isInteger(notation) ? { type: "int", value: BigInt(notation) } : { type: "f64", value: notation };
  }
  if (Array.isArray(notation)) return { type: "array", items: notation.map(valueOf) };
  if (typeof notation !== "object") throw new Error(`no notation: ${String(notation)}`);
  const entries = Object.entries(notation);
  const [first] = entries;
  if (first !== undefined && first[0].startsWith("$")) return taggedValue(first[0], first[1], notation);
  return { type: "map", pairs: entries.map(([key, value]) => [text(key), valueOf(value)]) };
}

function text(value: string): Value {
  return { type: "str", hex: toHex(new TextEncoder().encode(value)) };
}

function taggedValue(tag: string, content: unknown, whole: object): Value {
  switch (tag) {
    case "$bin":
      return { type: "bin", hex: toHex(fromHex(String(content))) };
    case "$bin_repeat": {
      const [byte, length] = content as [number, number];
      return { type: "bin", hex: byte.toString(16).padStart(2, "0").repeat(length) };
    }
    case "$raw_str":
      return { type: "str", hex: toHex(fromHex(String(content))) };
    case "$f64":
      return { type: "f64", value: numberOf(content) };
    case "$f32":
      return { type: "f32", value: Math.fround(numberOf(content)) };
    case "$u64":
      return { type: "int", value: BigInt(String(content)) };
    case "$map":
      return {
        type: "map",
        pairs: (content as [unknown, unknown][]).map(([key, value]) => [valueOf(key), valueOf(value)]),
      };
    case "$ext": {
      const [code, hex] = content as [number, string];
      return { type: "ext", code, hex: toHex(fromHex(hex)) };
    }
    case "$numpy":
      return numpyValue(String(content), whole as { shape: number[]; values: unknown[] });
  }
  throw new Error(`unknown tag ${tag}`);
}

function numberOf(content: unknown): number {
  if (typeof content === "number") return content;
  const known: Record<string, number> = { nan: NaN, inf: Infinity, infinity: Infinity };
  const name = String(content).toLowerCase();
  const value = known[name.replace(/^[+-]/, "")];
  if (value === undefined) throw new Error(`no number: ${String(content)}`);
  return name.startsWith("-") ? -value : value;
}

/** Writers of one element by dtype letter and size; the last argument is "little-endian". */
const NUMPY_WRITERS: Record<string, (view: DataView, value: number, little: boolean) => void> = {
  b1: (view, value) => view.setUint8(0, value),
  i1: (view, value) => view.setInt8(0, value),
  u1: (view, value) => view.setUint8(0, value),
  i2: (view, value, little) => view.setInt16(0, value, little),
  u2: (view, value, little) => view.setUint16(0, value, little),
  i4: (view, value, little) => view.setInt32(0, value, little),
  u4: (view, value, little) => view.setUint32(0, value, little),
  i8: (view, value, little) => view.setBigInt64(0, BigInt(value), little),
  u8: (view, value, little) => view.setBigUint64(0, BigInt(value), little),
  f2: (view, value, little) => view.setFloat16(0, value, little),
  f4: (view, value, little) => view.setFloat32(0, value, little),
  f8: (view, value, little) => view.setFloat64(0, value, little),
};

function numpyValue(dtype: string, array: { readonly shape: readonly number[]; readonly values: readonly unknown[] }) {
  const write = NUMPY_WRITERS[dtype.slice(1)];
  if (write === undefined) throw new Error(`unknown dtype ${dtype}`);
  let data = "";
  const size = Number(dtype.slice(2));
  for (const value of array.values) {
    const view = new DataView(new ArrayBuffer(size));
    write(view, numberOf(typeof value === "boolean" ? Number(value) : value), dtype[0] !== ">");
    data += toHex(new Uint8Array(view.buffer));
  }
  const pairs: [Value, Value][] = [[bin("nd"), { type: "bool", value: array.shape.length > 0 }], [
    bin("type"),
    text(dtype),
  ]];
  if (array.shape.length > 0) {
    pairs.push([bin("kind"), bin("")]);
    pairs.push([bin("shape"), { type: "array", items: array.shape.map((n) => ({ type: "int", value: BigInt(n) })) }]);
  }
  pairs.push([bin("data"), { type: "bin", hex: data }]);
  return { type: "map", pairs } satisfies Value;
}

function bin(content: string): Value {
  return { type: "bin", hex: toHex(new TextEncoder().encode(content)) };
}

function notationOf(value: Value): unknown {
  switch (value.type) {
    case "nil":
      return null;
    case "bool":
      return value.value;
    case "int":
      return Number.isSafeInteger(Number(value.value)) ? Number(value.value) : { $u64: String(value.value) };
    case "f32":
    case "f64":
      return { [`$${value.type}`]: Number.isFinite(value.value) ? value.value : String(value.value) };
    case "str":
      return stringOf(value) ?? { $raw_str: value.hex };
    case "bin":
      return { $bin: value.hex };
    case "ext":
      return { $ext: [value.code, value.hex] };
    case "array":
      return value.items.map(notationOf);
    case "map": {
      const keys = value.pairs.map(([key]) => key.type === "str" ? stringOf(key) : undefined);
      // A whole number as a key would change its place, "$…" would read as a tag, and a repeated key would be lost.
      const plain = keys.every((key) => key !== undefined && !/^(\$.*|\d+|__proto__)$/.test(key)) &&
        new Set(keys).size === keys.length;
      if (!plain) return { $map: value.pairs.map(([key, inner]) => [notationOf(key), notationOf(inner)]) };
      return Object.fromEntries(value.pairs.map(([, inner], i) => [keys[i], notationOf(inner)]));
    }
  }
}

function stringOf(value: { readonly hex: string }): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(fromHex(value.hex));
  } catch {
    return undefined;
  }
}

function loosened(value: Value): unknown {
  switch (value.type) {
    case "int":
    case "f32":
    case "f64":
      return Number(value.value);
    case "array":
      return value.items.map(loosened);
    case "map":
      return new Map(value.pairs.map(([key, inner]) => [JSON.stringify(notationOf(key)), loosened(inner)]));
    default:
      return value;
  }
}

/** Reads exactly one value; anything after it is an error. */
export function readValue(bytes: Uint8Array): Value {
  const cursor = { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.length), pos: 0 };
  const value = read(cursor);
  if (cursor.pos !== bytes.length) throw new Error(`${bytes.length - cursor.pos} bytes after the value`);
  return value;
}

interface Cursor {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  pos: number;
}

function read(cursor: Cursor): Value {
  const marker = unsigned(cursor, 1);
  if (marker < 0x80) return { type: "int", value: BigInt(marker) };
  if (marker < 0x90) return readMap(cursor, marker & 0x0f);
  if (marker < 0xa0) return readArray(cursor, marker & 0x0f);
  if (marker < 0xc0) return { type: "str", hex: content(cursor, marker & 0x1f) };
  if (marker >= 0xe0) return { type: "int", value: BigInt(marker - 0x100) };
  const at = cursor.pos;
  switch (marker) {
    case 0xc0:
      return { type: "nil" };
    case 0xc2:
    case 0xc3:
      return { type: "bool", value: marker === 0xc3 };
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return { type: "bin", hex: content(cursor, unsigned(cursor, 1 << (marker - 0xc4))) };
    case 0xc7:
    case 0xc8:
    case 0xc9:
      return extension(cursor, unsigned(cursor, 1 << (marker - 0xc7)));
    case 0xca:
      cursor.pos += 4;
      return { type: "f32", value: cursor.view.getFloat32(at) };
    case 0xcb:
      cursor.pos += 8;
      return { type: "f64", value: cursor.view.getFloat64(at) };
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3: {
      const bits = 8 << ((marker - 0xcc) & 3);
      const raw = BigInt(`0x${content(cursor, bits / 8)}`);
      return { type: "int", value: marker >= 0xd0 ? BigInt.asIntN(bits, raw) : raw };
    }
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return extension(cursor, 1 << (marker - 0xd4));
    case 0xd9:
    case 0xda:
    case 0xdb:
      return { type: "str", hex: content(cursor, unsigned(cursor, 1 << (marker - 0xd9))) };
    case 0xdc:
    case 0xdd:
      return readArray(cursor, unsigned(cursor, 2 << (marker - 0xdc)));
    case 0xde:
    case 0xdf:
      return readMap(cursor, unsigned(cursor, 2 << (marker - 0xde)));
  }
  throw new Error(`the byte 0xc1 at ${at - 1}`);
}

function readArray(cursor: Cursor, count: number): Value {
  const items: Value[] = [];
  for (let i = 0; i < count; i++) items.push(read(cursor));
  return { type: "array", items };
}

function readMap(cursor: Cursor, count: number): Value {
  const pairs: [Value, Value][] = [];
  for (let i = 0; i < count; i++) pairs.push([read(cursor), read(cursor)]);
  return { type: "map", pairs };
}

function extension(cursor: Cursor, length: number): Value {
  const code = (unsigned(cursor, 1) << 24) >> 24;
  return { type: "ext", code, hex: content(cursor, length) };
}

function content(cursor: Cursor, length: number): string {
  if (length > cursor.bytes.length - cursor.pos) throw new Error(`the value ends early at ${cursor.pos}`);
  const bytes = cursor.bytes.subarray(cursor.pos, cursor.pos + length);
  cursor.pos += length;
  return toHex(bytes);
}

function unsigned(cursor: Cursor, width: number): number {
  return parseInt(content(cursor, width), 16);
}

/** MessagePack of a value in its shortest form. */
export function writeValue(value: Value): Uint8Array {
  return fromHex(write(value));
}

function write(value: Value): string {
  switch (value.type) {
    case "nil":
      return "c0";
    case "bool":
      return value.value ? "c3" : "c2";
    case "int":
      return writeInteger(value.value);
    case "f32":
    case "f64": {
      const view = new DataView(new ArrayBuffer(value.type === "f32" ? 4 : 8));
      if (value.type === "f32") view.setFloat32(0, value.value);
      else view.setFloat64(0, value.value);
      return (value.type === "f32" ? "ca" : "cb") + toHex(new Uint8Array(view.buffer));
    }
    case "str": {
      const length = value.hex.length / 2;
      return (length < 32 ? byte(0xa0 | length) : sized(length, 0xd9, 0xda, 0xdb)) + value.hex;
    }
    case "bin":
      return sized(value.hex.length / 2, 0xc4, 0xc5, 0xc6) + value.hex;
    case "ext": {
      const length = value.hex.length / 2;
      const fixed = [1, 2, 4, 8, 16].indexOf(length);
      return (fixed >= 0 ? byte(0xd4 + fixed) : sized(length, 0xc7, 0xc8, 0xc9)) + byte(value.code & 0xff) + value.hex;
    }
    case "array":
      return counted(value.items.length, 0x90, 0xdc, 0xdd) + value.items.map(write).join("");
    case "map":
      return counted(value.pairs.length, 0x80, 0xde, 0xdf) +
        value.pairs.map(([key, inner]) => write(key) + write(inner)).join("");
  }
}

function writeInteger(value: bigint): string {
  if (value >= -32n && value < 128n) return byte(Number(value) & 0xff);
  for (const bits of [8, 16, 32, 64]) {
    const step = Math.log2(bits / 8);
    if (value >= 0n && value < 1n << BigInt(bits)) {
      return byte(0xcc + step) + value.toString(16).padStart(bits / 4, "0");
    }
    if (value < 0n && value >= -(1n << BigInt(bits - 1))) {
      return byte(0xd0 + step) + BigInt.asUintN(bits, value).toString(16).padStart(bits / 4, "0");
    }
  }
  throw new Error(`${value} does not fit 64 bits`);
}

function byte(value: number): string {
  return value.toString(16).padStart(2, "0");
}

function counted(count: number, fix: number, two: number, four: number): string {
  if (count < 16) return byte(fix | count);
  return count < 65536
    ? byte(two) + count.toString(16).padStart(4, "0")
    : byte(four) + count.toString(16).padStart(8, "0");
}

function sized(length: number, one: number, two: number, four: number): string {
  if (length < 256) return byte(one) + byte(length);
  return length < 65536
    ? byte(two) + length.toString(16).padStart(4, "0")
    : byte(four) + length.toString(16).padStart(8, "0");
}
