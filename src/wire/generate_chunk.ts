/**
 * Publications of a generation (spec/queue.md 3.3, spec/generation.md 5.1 to 7). The backend makes them; the sidecar stamps them,
 * looks at those of a local stream, and makes one itself where a stream is refused.
 */
import { MsgpackError } from "./msgpack/errors.ts";
import { KeyTable } from "./msgpack/keys.ts";
import { isValidUtf8 } from "./msgpack/content.ts";
import { MsgpackReader } from "./msgpack/reader.ts";
import { transcode } from "./msgpack/transcode.ts";
import { encodedText, MsgpackWriter } from "./msgpack/writer.ts";
import { type WorkItem, WorkItemField } from "./work_item.ts";

/**
 * The terminal chunk that refuses an item before its stream. Its attempt is `{work_item_id}:model-loading`, whatever the reason.
 */
export function terminalErrorChunk(
  work: WorkItem,
  error: { readonly code: string; readonly message: string },
): Uint8Array {
  const F = WorkItemField;
  const writer = new MsgpackWriter(256 + 2 * work.size(F.workItemId) + 3 * (error.code.length + error.message.length));
  writer.mapHeader(8);
  writer.text("kind");
  writer.text("chunk");
  writer.text("request_id");
  writer.textSpan(work.bytes, work.at(F.requestId), work.size(F.requestId));
  writer.text("attempt_id");
  writer.text(`${work.workItemId}:model-loading`);
  writer.text("seq");
  writer.integer(0);
  writer.text("text_delta");
  writer.text("");
  writer.text("done");
  writer.bool(true);
  writer.text("finish_reason");
  writer.text("error");
  writer.text("error");
  writer.mapHeader(2);
  writer.text("code");
  writer.text(error.code);
  writer.text("message");
  writer.text(error.message);
  return writer.take();
}

const executedHashKey = new KeyTable(["executed_bundle_config_hash"]);
const EXECUTED_HASH = encodedText("executed_bundle_config_hash");

/**
 * A publication with the executed hash as its last key; values of that key which the backend put there are removed. The rest keeps
 * its order and types and is written in the shortest form. Bytes after the map are dropped.
 *
 * @param hash not empty: publications of items without a hash are passed on as they are
 * @throws MsgpackError when the publication is not a map
 */
export function stampExecutedHash(payload: Uint8Array, hash: string): Uint8Array {
  const reader = new MsgpackReader(payload);
  if (payload.length === 0 || reader.kind() !== "map") {
    throw new MsgpackError("type", "generation chunk is not a msgpack map");
  }
  const count = reader.mapHeader();
  const start = reader.pos;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    if (!atExecutedHash(reader)) kept++;
    reader.skip();
  }
  const writer = new MsgpackWriter(payload.length + EXECUTED_HASH.length + 3 * hash.length + 16);
  writer.mapHeader(kept + 1);
  reader.pos = start;
  for (let i = 0; i < count; i++) {
    const keyAt = reader.pos;
    if (atExecutedHash(reader)) {
      reader.skip();
      continue;
    }
    reader.pos = keyAt;
    transcode(reader, writer);
    transcode(reader, writer);
  }
  writer.raw(EXECUTED_HASH);
  writer.text(hash);
  return writer.take();
}

/** Consumes a key and tells whether it is the executed hash's; only a str is. */
function atExecutedHash(reader: MsgpackReader): boolean {
  const isText = reader.kind() === "str";
  return reader.keySpan() && isText && executedHashKey.indexOf(reader.bytes, reader.spanAt, reader.spanLength) >= 0;
}

const FIELD_NAMES = ["kind", "request_id", "attempt_id", "seq", "done", "reason"] as const;

/** A field of a publication that the sidecar looks at. */
export type PublicationField = (typeof FIELD_NAMES)[number];

const publicationKeys = new KeyTable(FIELD_NAMES);
const KIND = 0, REQUEST_ID = 1, ATTEMPT_ID = 2, SEQ = 3, DONE = 4, REASON = 5;
const U32_MAX = 0xffffffff;

/** What the rules of a local stream need to know of a publication; undefined is absent or of another type. */
export interface Publication {
  /** Normally `chunk` or `nak`. */
  readonly kind: string | undefined;
  readonly requestId: string | undefined;
  readonly attemptId: string | undefined;
  /** 0 to 2^32 - 1. */
  readonly seq: number | undefined;
  readonly done: boolean | undefined;
  readonly reason: string | undefined;
  /** The first of these fields that occurs a second time: not allowed. Its first value is the one above. */
  readonly repeated: PublicationField | undefined;
}

/**
 * Reads a publication; undefined when it is not a map.
 *
 * @throws MsgpackError when the bytes are no MessagePack
 */
export function readPublication(payload: Uint8Array): Publication | undefined {
  const reader = new MsgpackReader(payload);
  if (reader.kind() !== "map") return undefined;
  const texts: (string | undefined)[] = FIELD_NAMES.map(() => undefined);
  let seq: number | undefined, done: boolean | undefined, repeated: PublicationField | undefined;
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const isText = reader.kind() === "str";
    const field = reader.keySpan() && isText
      ? publicationKeys.indexOf(reader.bytes, reader.spanAt, reader.spanLength)
      : -1;
    if (field < 0 || (seen & (1 << field)) !== 0) {
      if (field >= 0) repeated ??= FIELD_NAMES[field];
      reader.skip();
      continue;
    }
    seen |= 1 << field;
    if (field === SEQ) seq = optionalUint32(reader);
    else if (field === DONE) done = optionalBool(reader);
    else texts[field] = optionalText(reader);
  }
  return {
    kind: texts[KIND],
    requestId: texts[REQUEST_ID],
    attemptId: texts[ATTEMPT_ID],
    seq,
    done,
    reason: texts[REASON],
    repeated,
  };
}

function optionalText(reader: MsgpackReader): string | undefined {
  const start = reader.pos;
  if (reader.kind() === "str") {
    reader.keySpan();
    const valid = isValidUtf8(reader.bytes, reader.spanAt, reader.spanLength);
    reader.pos = start;
    if (valid) return reader.text();
  }
  reader.skip();
  return undefined;
}

function optionalUint32(reader: MsgpackReader): number | undefined {
  if (reader.kind() !== "int") {
    reader.skip();
    return undefined;
  }
  const value = reader.bigInteger();
  return value >= 0n && value <= U32_MAX ? Number(value) : undefined;
}

function optionalBool(reader: MsgpackReader): boolean | undefined {
  if (reader.kind() === "bool") return reader.bool();
  reader.skip();
  return undefined;
}
