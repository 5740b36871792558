/**
 * Checks MessagePack against a message's table as the backend's validator does, to the wording of its errors (spec/ipc.md 2.3):
 * for the demonstration backend, for strict doubles in tests, and to hold our own encoders to the tables.
 */
import { MsgpackReader } from "../msgpack/reader.ts";
import { textOf } from "../msgpack/keys.ts";
import { ALL_STRUCTS } from "./all_structs.ts";
import type { Struct } from "./struct.ts";

/** A field type, parsed. */
type Shape =
  | { readonly form: "str" | "int" | "float" | "bool" | "bin" | "map" }
  | { readonly form: "enum"; readonly values: readonly string[] }
  | { readonly form: "list"; readonly of: Shape }
  | { readonly form: "optional"; readonly of: Shape }
  | { readonly form: "struct"; readonly of: Struct };

const SCALARS = ["str", "int", "float", "bool", "bin", "map"] as const;
const structs = new Map(ALL_STRUCTS.map((each) => [each.name, each]));
const shapes = new Map<string, Shape>();

function shapeOf(type: string): Shape {
  let shape = shapes.get(type);
  if (shape === undefined) {
    shape = parseShape(type);
    shapes.set(type, shape);
  }
  return shape;
}

function parseShape(type: string): Shape {
  if (type.endsWith("|nil")) return { form: "optional", of: shapeOf(type.slice(0, -4)) };
  const list = /^list\[(.*)\]$/.exec(type);
  if (list?.[1] !== undefined) return { form: "list", of: shapeOf(list[1]) };
  const values = /^enum\((.*)\)$/.exec(type);
  if (values?.[1] !== undefined) return { form: "enum", values: values[1].split(",") };
  const scalar = SCALARS.find((name) => name === type);
  if (scalar !== undefined) return { form: scalar };
  const named = structs.get(type);
  if (named === undefined) throw new RangeError(`unknown field type ${type}`);
  return { form: "struct", of: named };
}

/** What a shape is called in an error. */
function nameOf(shape: Shape): string {
  switch (shape.form) {
    case "optional":
      return `${nameOf(shape.of)} | null`;
    case "bin":
      return "bytes";
    case "list":
      return "array";
    case "map":
    case "struct":
      return "object";
    case "enum":
      return "str";
    default:
      return shape.form;
  }
}

const KIND_NAMES = { nil: "null", bin: "bytes", map: "object" } as const;

class Unfit extends Error {}

function unfit(text: string, path: string): Unfit {
  return new Unfit(path === "$" ? text : `${text} - at \`${path}\``);
}

/** Checks the map at the reader's position. @returns what is wrong with it, or undefined */
export function bodyFault(reader: MsgpackReader, of: Struct): string | undefined {
  try {
    check(reader, { form: "struct", of }, "$");
    return undefined;
  } catch (thrown) {
    if (thrown instanceof Unfit) return thrown.message;
    throw thrown;
  }
}

function check(reader: MsgpackReader, shape: Shape, path: string): void {
  const kind = reader.kind();
  if (shape.form === "optional") {
    if (kind === "nil") return void reader.nil();
    if (!fits(kind, shape.of)) throw mismatch(shape, kind, path);
    return check(reader, shape.of, path);
  }
  if (!fits(kind, shape)) throw mismatch(shape, kind, path);
  switch (shape.form) {
    case "list": {
      const count = reader.arrayHeader();
      for (let i = 0; i < count; i++) check(reader, shape.of, `${path}[${i}]`);
      return;
    }
    case "struct":
      return checkStruct(reader, shape.of, path);
    case "map":
      return checkKeys(reader, path);
    case "enum": {
      const text = reader.text();
      if (!shape.values.includes(text)) throw unfit(`Invalid enum value '${text}'`, path);
      return;
    }
    case "bin":
      // A str is taken for base64.
      if (kind === "str" && !isBase64(reader.text())) throw unfit("Invalid base64 encoded string", path);
      else if (kind === "bin") reader.skip();
      return;
    default:
      reader.skip();
  }
}

function fits(kind: string, shape: Shape): boolean {
  switch (shape.form) {
    case "float":
      return kind === "float" || kind === "int";
    case "bin":
      return kind === "bin" || kind === "str";
    case "list":
      return kind === "array";
    case "struct":
      return kind === "map";
    case "enum":
      return kind === "str";
    default:
      return kind === shape.form;
  }
}

function mismatch(shape: Shape, kind: string, path: string): Unfit {
  const found = kind in KIND_NAMES ? KIND_NAMES[kind as keyof typeof KIND_NAMES] : kind;
  return unfit(`Expected \`${nameOf(shape)}\`, got \`${found}\``, path);
}

function checkStruct(reader: MsgpackReader, of: Struct, path: string): void {
  const found = new Map<number, number>();
  for (let left = reader.mapHeader(); left > 0; left--) {
    // A key that is bin names no field.
    const isText = reader.kind() === "str";
    const field = reader.keySpan() && isText ? of.keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    // Of a key that comes twice, the last value counts, at the place of the first.
    if (field >= 0) found.set(field, reader.pos);
    reader.skip();
  }
  for (const [field, at] of found) {
    const name = of.names[field] ?? "";
    check(new MsgpackReader(reader.bytes, at, reader.end), shapeOf(of.fields[name]?.type ?? ""), `${path}.${name}`);
  }
  const missing = of.names.find((name, field) => of.fields[name]?.fallback === undefined && !found.has(field));
  if (missing !== undefined) throw unfit(`Object missing required field \`${missing}\``, path);
}

function checkKeys(reader: MsgpackReader, path: string): void {
  for (let left = reader.mapHeader(); left > 0; left--) {
    const kind = reader.kind();
    if (kind !== "str") {
      throw new Unfit(`Expected \`str\`, got \`${kind === "bin" ? "bytes" : kind}\` - at \`key\` in \`${path}\``);
    }
    reader.skip();
    reader.skip();
  }
}

function isBase64(text: string): boolean {
  return text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text);
}

/** Text of a value for an error, as the backend prints it. */
export function printed(reader: MsgpackReader): string {
  switch (reader.kind()) {
    case "nil":
      return "None";
    case "bool":
      return reader.bool() ? "True" : "False";
    case "int":
      return String(reader.bigInteger());
    case "float": {
      const value = reader.float();
      return Number.isInteger(value) && Math.abs(value) < 1e16 ? value.toFixed(1) : String(value);
    }
    case "str":
      reader.textSpan();
      return textOf(reader.bytes, reader.spanAt, reader.spanLength);
    default:
      return `a ${reader.kind()}`;
  }
}
