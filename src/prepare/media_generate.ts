/**
 * Media of a generate request (spec/preparation.md 10.1): checked against the limits, and base64 text replaced by the bytes it
 * stands for. Everything else of the map goes on byte for byte.
 */
import { KeyTable } from "../wire/msgpack/keys.ts";
import { isValidUtf8 } from "../wire/msgpack/content.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";
import { MsgpackWriter } from "../wire/msgpack/writer.ts";
import { Base64Error, decodeBase64, decodedLength } from "./base64.ts";
import { findFields, repeatedField } from "./map_fields.ts";
import {
  checkMediaBytes,
  checkMediaCount,
  checkMediaFormat,
  MediaBudget,
  mediaFields,
  MediaRefused,
} from "./media_limits.ts";
import { trimmedSpan } from "./white_space.ts";

/** What became of the media of a generate request. */
export type GenerateMedia =
  | { readonly kind: "unchanged" } /* nothing to replace: the bytes go on as they came */
  | { readonly kind: "rewritten"; readonly generate: Uint8Array }
  | { readonly kind: "refused"; readonly message: string }; /* code INVALID_INPUT */

/** Bytes that take the place of a value. */
interface Replacement {
  readonly at: number;
  readonly end: number;
  readonly data: Uint8Array;
}

interface Progress {
  readonly reader: MsgpackReader;
  readonly budget: MediaBudget;
  readonly replacements: Replacement[];
  images: number;
  videos: number;
}

const requestKeys = new KeyTable(["messages"]);
const messageKeys = new KeyTable(["images", "videos"]);

/**
 * Checks and rewrites the `generate` value at the reader's position, whose bytes must be well-formed; moves past it.
 *
 * Decodes at most 16 MiB: a text is refused by its length before it is decoded.
 */
export function normalizeGenerateMedia(reader: MsgpackReader): GenerateMedia {
  const start = reader.pos;
  const progress: Progress = { reader, budget: new MediaBudget(), replacements: [], images: 0, videos: 0 };
  try {
    const end = checkRequest(progress);
    reader.pos = end;
    return progress.replacements.length === 0
      ? { kind: "unchanged" }
      : { kind: "rewritten", generate: spliced(reader.bytes, start, end, progress.replacements) };
  } catch (thrown) {
    if (thrown instanceof MediaRefused) return { kind: "refused", message: thrown.message };
    throw thrown;
  }
}

/** Checks the whole request; returns the offset behind it. */
function checkRequest(progress: Progress): number {
  const { reader } = progress;
  if (reader.kind() !== "map") throw new MediaRefused("generate must be a map");
  const fields = findFields(reader, requestKeys);
  const end = reader.pos;
  const repeated = repeatedField(fields, requestKeys);
  if (repeated !== undefined) throw new MediaRefused(`generate contains duplicate '${repeated}' fields`);
  const [messagesAt = -1] = fields.at;
  if (messagesAt < 0) return end;
  reader.pos = messagesAt;
  if (reader.kind() !== "array") throw new MediaRefused("generate.messages must be an array");
  const count = reader.arrayHeader();
  for (let i = 0; i < count; i++) checkMessage(progress, `generate.messages[${i}]`);
  return end;
}

function checkMessage(progress: Progress, path: string): void {
  const { reader } = progress;
  if (reader.kind() !== "map") throw new MediaRefused(`${path} must be a map`);
  const fields = findFields(reader, messageKeys);
  const end = reader.pos;
  const repeated = repeatedField(fields, messageKeys);
  if (repeated !== undefined) throw new MediaRefused(`${path} contains duplicate '${repeated}' fields`);
  const [imagesAt = -1, videosAt = -1] = fields.at;
  // The contract's text names the message itself where its images are no array.
  if (imagesAt >= 0) checkMedia(progress, imagesAt, "images", path, path);
  if (videosAt >= 0) checkMedia(progress, videosAt, "videos", path, `${path}.videos`);
  reader.pos = end;
}

function checkMedia(
  progress: Progress,
  at: number,
  kind: "images" | "videos",
  messagePath: string,
  arrayPath: string,
): void {
  const { reader } = progress;
  reader.pos = at;
  if (reader.nil()) return;
  if (reader.kind() !== "array") throw new MediaRefused(`${arrayPath} must be an array or null`);
  const count = reader.arrayHeader();
  progress[kind] += count;
  checkMediaCount(kind, progress[kind]);
  for (let i = 0; i < count; i++) checkMedium(progress, `${messagePath}.${kind}[${i}]`);
}

/** Checks one media map, decodes its base64 if it has some, and moves past it. */
function checkMedium(progress: Progress, path: string): void {
  const { reader } = progress;
  if (reader.kind() !== "map") throw new MediaRefused(`${path} must be a map`);
  const { dataAt, formatAt } = mediaFields(reader, path);
  const end = reader.pos;
  checkMediaFormat(reader, formatAt, path);
  const size = dataAt < 0 ? 0 : checkData(progress, dataAt, path);
  if (size === 0) throw new MediaRefused(`${path}.data must be non-empty bytes or a non-empty base64 string`);
  reader.pos = end;
}

/** Checks the `data` value at `at` and notes what replaces it. Returns its length as it came, 0 for anything unusable. */
function checkData(progress: Progress, at: number, path: string): number {
  const { reader, budget } = progress;
  reader.pos = at;
  const kind = reader.kind();
  if (kind !== "bin" && kind !== "str") return 0;
  // Content of a str or bin, not checked as text yet.
  reader.keySpan();
  const { bytes, spanAt, spanLength } = reader;
  if (kind === "bin") {
    budget.add(spanLength);
    return spanLength;
  }
  if (!isValidUtf8(bytes, spanAt, spanLength)) return 0;
  const { start, end } = trimmedSpan(bytes, spanAt, spanAt + spanLength);
  const length = end - start;
  if (length === 0) return 0;
  checkMediaBytes(Math.floor((length * 3) / 4));
  budget.add(decodedLength(bytes, start, length));
  progress.replacements.push({ at, end: spanAt + spanLength, data: decoded(bytes, start, length, path) });
  return length;
}

function decoded(bytes: Uint8Array, at: number, length: number, path: string): Uint8Array {
  try {
    return decodeBase64(bytes, at, length);
  } catch (thrown) {
    if (thrown instanceof Base64Error) throw new MediaRefused(`${path}.data is invalid base64: ${thrown.message}`);
    throw thrown;
  }
}

/** `bytes[start .. end)` with values replaced by bins. Maps and arrays keep their headers: no entry comes or goes. */
function spliced(bytes: Uint8Array, start: number, end: number, replacements: Replacement[]): Uint8Array {
  // Images are checked before videos, wherever they stand in the message.
  replacements.sort((a, b) => a.at - b.at);
  const writer = new MsgpackWriter(end - start);
  let from = start;
  for (const { at, end: next, data } of replacements) {
    writer.raw(bytes, from, at - from);
    writer.binHeader(data.length);
    writer.raw(data);
    from = next;
  }
  writer.raw(bytes, from, end - from);
  return writer.take();
}
