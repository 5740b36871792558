/**
 * Sizes of binary values within an item (spec/local-ingest.md 6): what lies under an image, document or audio key may have so many
 * bytes, each value by itself; everything else is free.
 */
import { IngestLimits } from "../wire/ingest/limits.ts";
import { KeyTable } from "../wire/msgpack/keys.ts";
import { MAX_DEPTH, type MsgpackReader } from "../wire/msgpack/reader.ts";

type MediaKind = "free" | "visual" | "audio";

const KEYS = new KeyTable(["image", "images", "document", "audio"]);
const AUDIO = 3;
const SMALLEST_LIMIT = Math.min(IngestLimits.imageOrDocumentBytes, IngestLimits.audioBytes);

/**
 * The error text for the first binary value that is too large, or undefined.
 *
 * @param reader stands before one value that is known to be well-formed, and ends with it
 */
export function mediaTooLarge(reader: MsgpackReader): string | undefined {
  // A value that is as a whole below every limit cannot hold a binary above one.
  if (reader.end - reader.pos <= SMALLEST_LIMIT) return undefined;
  return walk(reader, "free", 0);
}

function walk(reader: MsgpackReader, kind: MediaKind, depth: number): string | undefined {
  switch (reader.kind()) {
    case "bin":
      reader.binSpan();
      return sizeFault(kind, reader.spanLength);
    case "array":
      return walkArray(reader, kind, depth);
    case "map":
      return walkMap(reader, kind, depth);
    default:
      reader.skip();
      return undefined;
  }
}

function walkArray(reader: MsgpackReader, kind: MediaKind, depth: number): string | undefined {
  if (depth >= MAX_DEPTH) return reader.skip(), undefined;
  for (let left = reader.arrayHeader(); left > 0; left--) {
    const fault = walk(reader, kind, depth + 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function walkMap(reader: MsgpackReader, kind: MediaKind, depth: number): string | undefined {
  if (depth >= MAX_DEPTH) return reader.skip(), undefined;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const key = reader.keySpan() ? KEYS.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    const fault = walk(reader, key < 0 ? kind : key === AUDIO ? "audio" : "visual", depth + 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function sizeFault(kind: MediaKind, bytes: number): string | undefined {
  const { imageOrDocumentBytes, audioBytes } = IngestLimits;
  if (kind === "visual" && bytes > imageOrDocumentBytes) {
    return `MediaTooLarge: image/document binary is ${bytes} bytes; maximum is ${imageOrDocumentBytes}`;
  }
  if (kind === "audio" && bytes > audioBytes) {
    return `MediaTooLarge: audio binary is ${bytes} bytes; maximum is ${audioBytes}`;
  }
  return undefined;
}
