import { MsgpackError } from "./errors.ts";
import { MAX_DEPTH, type MsgpackReader } from "./reader.ts";
import type { MsgpackWriter } from "./writer.ts";

/**
 * Copies one value, every header and integer in its shortest form. Types, float widths, map order, repeated keys and the bytes of
 * text stay as they are.
 *
 * @throws MsgpackError for bytes that are no value, or nested deeper than {@link MAX_DEPTH}
 */
export function transcode(reader: MsgpackReader, writer: MsgpackWriter): void {
  copyValue(reader, writer, 0);
}

function copyValue(reader: MsgpackReader, writer: MsgpackWriter, depth: number): void {
  const start = reader.pos;
  const kind = reader.kind();
  switch (kind) {
    case "int":
      return copyInteger(reader, writer);
    case "str":
      reader.keySpan();
      return writer.textSpan(reader.bytes, reader.spanAt, reader.spanLength);
    case "bin":
      reader.binSpan();
      return writer.bin(reader.bytes, reader.spanAt, reader.spanLength);
    case "array":
    case "map": {
      if (depth >= MAX_DEPTH) {
        throw new MsgpackError("depth", `nested deeper than ${MAX_DEPTH} levels at offset ${start}`);
      }
      const count = kind === "array" ? reader.arrayHeader() : reader.mapHeader();
      if (kind === "array") writer.arrayHeader(count);
      else writer.mapHeader(count);
      for (let left = kind === "array" ? count : 2 * count; left > 0; left--) copyValue(reader, writer, depth + 1);
      return;
    }
    case "ext":
      return copyExtension(reader, writer);
    case "nil":
    case "bool":
    case "float":
      // One form each: a float32 must not become a float64.
      reader.skip();
      return writer.raw(reader.bytes, start, reader.pos - start);
  }
}

function copyInteger(reader: MsgpackReader, writer: MsgpackWriter): void {
  const value = reader.exactInteger();
  if (typeof value === "number") writer.integer(value);
  else writer.bigInteger(value);
}

function copyExtension(reader: MsgpackReader, writer: MsgpackWriter): void {
  const { bytes, pos: start } = reader;
  reader.skip();
  const marker = bytes[start] as number;
  // The type stands after the length, which the fixed forms do not have.
  const typeAt = start + 1 + (marker >= 0xd4 ? 0 : 1 << (marker - 0xc7));
  const length = reader.pos - typeAt - 1;
  writer.extHeader(bytes[typeAt] as number, length);
  writer.raw(bytes, typeAt + 1, length);
}
