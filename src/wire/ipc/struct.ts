/**
 * How the messages of the IPC are described: one table of fields a message, from which the real readers take their keys and the
 * real writers their encoded names. `deno task parity` compares the same tables with the peer's own types, so neither can drift.
 */
import { MsgpackError } from "../msgpack/errors.ts";
import { KeyTable } from "../msgpack/keys.ts";
import type { MsgpackReader } from "../msgpack/reader.ts";
import { encodedText } from "../msgpack/writer.ts";

/** Value of a field whose key is missing; a field without one is required. */
export type FieldDefault = null | boolean | number | string | readonly never[];

/** One field: its type in the words of spec/ipc.md 2 (`str`, `list[str]`, `str|nil`, the name of another message …). */
export interface Field {
  readonly type: string;
  readonly fallback?: FieldDefault;
}

/** A field that must be there. */
export function required(type: string): Field {
  return { type };
}

/** A field that may be nil, and is nil when its key is missing. */
export function optional(type: string): Field {
  return { type: `${type}|nil`, fallback: null };
}

/** A field with a default; nil is not accepted. */
export function defaulted(type: string, fallback: FieldDefault): Field {
  return { type, fallback };
}

/** A message: fields in the order in which they are written. */
export interface Struct<Name extends string = string> {
  readonly name: string;
  readonly fields: Readonly<Record<Name, Field>>;
  readonly names: readonly Name[];
  /** Index of each field, in the order of `names`. */
  readonly index: Readonly<Record<Name, number>>;
  /** Each key as encoded text. */
  readonly key: Readonly<Record<Name, Uint8Array>>;
  readonly keys: KeyTable;
  /** Bit mask of the required fields. */
  readonly requiredMask: number;
}

/** Describes a message of at most 31 fields. */
export function struct<Name extends string>(name: string, fields: Record<Name, Field>): Struct<Name> {
  const names = Object.keys(fields) as Name[];
  if (names.length > 31) throw new RangeError(`${name} has ${names.length} fields: the bit masks hold 31`);
  const index = {} as Record<Name, number>;
  const key = {} as Record<Name, Uint8Array>;
  let requiredMask = 0;
  names.forEach((field, at) => {
    index[field] = at;
    key[field] = encodedText(field);
    if (fields[field].fallback === undefined) requiredMask |= 1 << at;
  });
  return { name, fields, names, index, key, keys: new KeyTable(names), requiredMask };
}

/**
 * Reads a map: calls `read` with the index of each known field. Unknown keys are skipped; a known key twice and a missing required
 * one are errors (spec/ipc.md 7.2). Errors name the message and the field.
 */
export function readStruct(reader: MsgpackReader, of: Struct, read: (field: number) => void): void {
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? of.keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) {
      reader.skip();
      continue;
    }
    if ((seen & (1 << field)) !== 0) throw of.keys.duplicate(field);
    seen |= 1 << field;
    try {
      read(field);
    } catch (thrown) {
      throw inField(of, field, thrown);
    }
  }
  requireSeen(of, seen);
}

/** Fails when a required field is not among those seen. */
export function requireSeen(of: Struct, seen: number): void {
  const missing = of.requiredMask & ~seen;
  if (missing !== 0) throw of.keys.missing(31 - Math.clz32(missing & -missing));
}

function inField(of: Struct, field: number, thrown: unknown): unknown {
  if (!(thrown instanceof MsgpackError)) return thrown;
  return new MsgpackError(thrown.fault, `${of.name}.${of.names[field]}: ${thrown.message}`, { cause: thrown });
}

/** A list of texts. */
export function readTexts(reader: MsgpackReader): string[] {
  const count = reader.arrayHeader();
  const texts: string[] = [];
  for (let i = 0; i < count; i++) texts.push(reader.text());
  return texts;
}
