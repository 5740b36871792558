/** The formats of MessagePack by their first byte, from 0xc0 to 0xdf: outside of it the byte itself tells everything. */
import { MsgpackError } from "./errors.ts";

/** Type of a value. */
export type Kind = "nil" | "bool" | "int" | "float" | "str" | "bin" | "array" | "map" | "ext";

/** Shape of a format: a value of fixed length, or what its length counts. */
export const SCALAR = 0,
  STR = 1,
  BIN = 2,
  ARRAY = 3,
  MAP = 4,
  /** Its length is followed by a type. */
  EXT = 5,
  /** A type and a length that the format implies. */
  FIXEXT = 6;

const S = SCALAR;

/** Shape of the format `0xc0 + index`. */
// deno-fmt-ignore
export const FORMS: Uint8Array = Uint8Array.of(
  S, S, S, S,                               // nil, reserved, false, true
  BIN, BIN, BIN, EXT, EXT, EXT,             // lengths of 1, 2 and 4 bytes
  S, S, S, S, S, S, S, S, S, S,             // floats, unsigned and signed integers
  FIXEXT, FIXEXT, FIXEXT, FIXEXT, FIXEXT,   // 1, 2, 4, 8 and 16 bytes
  STR, STR, STR, ARRAY, ARRAY, MAP, MAP,
);

/** Bytes between the format `0xc0 + index` and the content; for scalars those of the value; -1 for the reserved byte. */
// deno-fmt-ignore
export const HEADER_BYTES: Int8Array = Int8Array.of(
  0, -1, 0, 0,
  1, 2, 4, 2, 3, 5,
  4, 8, 1, 2, 4, 8, 1, 2, 4, 8,
  1, 1, 1, 1, 1,
  1, 2, 4, 2, 4, 2, 4,
);

/** Type of the value that begins with `marker`, 0xc0 to 0xdf, at offset `at`. */
export function kindOfMarker(marker: number, at: number): Kind {
  switch (FORMS[marker - 0xc0]) {
    case STR:
      return "str";
    case BIN:
      return "bin";
    case ARRAY:
      return "array";
    case MAP:
      return "map";
    case EXT:
    case FIXEXT:
      return "ext";
  }
  if (marker === 0xc0) return "nil";
  if (marker === 0xc2 || marker === 0xc3) return "bool";
  if (marker === 0xca || marker === 0xcb) return "float";
  if (marker === 0xc1) throw new MsgpackError("reserved", `reserved byte 0xc1 at offset ${at}`);
  return "int";
}
