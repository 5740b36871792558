/**
 * ResultChunkV1 (spec/queue.md 4): a serialized WorkResult that is larger than one message may be, in pieces of at most 768 KiB.
 * Here are the decision how to send a result, and the envelope; `gateway/chunk_receiver.ts` is the other side.
 */
import { MsgpackError } from "./msgpack/errors.ts";
import { KeyTable } from "./msgpack/keys.ts";
import { binLength, strLength, unsignedLength } from "./msgpack/lengths.ts";
import { MsgpackReader } from "./msgpack/reader.ts";
import { encoded, encodedText, type MsgpackWriter } from "./msgpack/writer.ts";

/** Largest result that is transferred in chunks, in bytes. */
export const MAX_TRANSFER_BYTES = 16 * 1024 * 1024;
/** Largest number of chunks of a transfer. */
export const MAX_CHUNKS = 64;
/** Payload bytes that a chunk aims at; the count of chunks starts from here. */
export const TARGET_CHUNK_BYTES = 768 * 1024;
/** Length of `transfer_digest`, a SHA-256. */
export const DIGEST_BYTES = 32;

/** What the envelopes of a transfer have in common. Ids are UTF-8. */
export interface TransferIdentity {
  readonly workItemId: Uint8Array;
  readonly requestId: Uint8Array;
  readonly itemIndex: number;
}

/** How a serialized result of some length is to be sent. */
export type ResultPlan =
  | { readonly mode: "single" }
  | { readonly mode: "chunked"; readonly chunkCount: number }
  /** Neither as one message nor in chunks: an error goes in its place. */
  | { readonly mode: "compact" };

/**
 * Decides how to send `length` bytes under a limit of `maxPayload` bytes a message.
 *
 * @param acceptsChunks whether the receiver has said that it reassembles chunks
 */
export function planResult(
  length: number,
  maxPayload: number,
  acceptsChunks: boolean,
  identity: TransferIdentity,
): ResultPlan {
  if (length <= maxPayload) return { mode: "single" };
  if (!acceptsChunks || length > MAX_TRANSFER_BYTES) return { mode: "compact" };
  const most = Math.min(MAX_CHUNKS, length);
  for (let count = Math.max(1, Math.ceil(length / TARGET_CHUNK_BYTES)); count <= most; count++) {
    // The last index with the largest payload: no envelope of the transfer is larger.
    const largest = resultChunkLength(identity, count - 1, count, length, Math.ceil(length / count));
    if (largest <= maxPayload) return { mode: "chunked", chunkCount: count };
  }
  return { mode: "compact" };
}

/** Offset at which chunk `index` of `count` begins; that of `count` is the end. */
export function chunkStart(length: number, index: number, count: number): number {
  return Math.floor((length * index) / count);
}

const HEAD = encoded((writer) => {
  writer.mapHeader(9);
  writer.text("kind");
  writer.text("result_chunk_v1");
  writer.text("work_item_id");
});
const REQUEST_ID = encodedText("request_id");
const ITEM_INDEX = encodedText("item_index");
const TRANSFER_DIGEST = encodedText("transfer_digest");
const CHUNK_INDEX = encodedText("chunk_index");
const CHUNK_COUNT = encodedText("chunk_count");
const TOTAL_BYTES = encodedText("total_bytes");
const PAYLOAD = encodedText("payload");

const CONSTANT_BYTES = [HEAD, REQUEST_ID, ITEM_INDEX, TRANSFER_DIGEST, CHUNK_INDEX, CHUNK_COUNT, TOTAL_BYTES, PAYLOAD]
  .reduce((sum, part) => sum + part.length, binLength(DIGEST_BYTES));

/** Exact length in bytes of an envelope with `payloadLength` bytes of payload. */
export function resultChunkLength(
  identity: TransferIdentity,
  index: number,
  count: number,
  totalBytes: number,
  payloadLength: number,
): number {
  return CONSTANT_BYTES + strLength(identity.workItemId.length) + strLength(identity.requestId.length) +
    unsignedLength(identity.itemIndex) + unsignedLength(index) + unsignedLength(count) + unsignedLength(totalBytes) +
    binLength(payloadLength);
}

/** Writes an envelope up to its payload, of which exactly `payloadLength` bytes must follow. */
export function writeResultChunkHead(
  writer: MsgpackWriter,
  identity: TransferIdentity,
  digest: Uint8Array,
  index: number,
  count: number,
  totalBytes: number,
  payloadLength: number,
): void {
  writer.raw(HEAD);
  writer.textSpan(identity.workItemId, 0, identity.workItemId.length);
  writer.raw(REQUEST_ID);
  writer.textSpan(identity.requestId, 0, identity.requestId.length);
  writer.raw(ITEM_INDEX);
  writer.integer(identity.itemIndex);
  writer.raw(TRANSFER_DIGEST);
  writer.bin(digest);
  writer.raw(CHUNK_INDEX);
  writer.integer(index);
  writer.raw(CHUNK_COUNT);
  writer.integer(count);
  writer.raw(TOTAL_BYTES);
  writer.integer(totalBytes);
  writer.raw(PAYLOAD);
  writer.binHeader(payloadLength);
}

/** A received envelope; `transferDigest` and `payload` are views of the bytes read. */
export interface ResultChunk {
  readonly workItemId: string;
  readonly requestId: string;
  readonly itemIndex: number;
  readonly transferDigest: Uint8Array;
  readonly chunkIndex: number;
  readonly chunkCount: number;
  readonly totalBytes: number;
  readonly payload: Uint8Array;
}

const keys = new KeyTable([
  "kind",
  "work_item_id",
  "request_id",
  "item_index",
  "transfer_digest",
  "chunk_index",
  "chunk_count",
  "total_bytes",
  "payload",
]);
const KIND = 0;
const U32_MAX = 0xffffffff;

/**
 * Reads an envelope. Only its form is judged here; ranges and identity are the receiver's.
 *
 * @throws MsgpackError for anything that is not a map with all nine keys of the right types
 */
export function readResultChunk(bytes: Uint8Array): ResultChunk {
  const reader = new MsgpackReader(bytes);
  const texts: string[] = ["", "", ""];
  const numbers: number[] = [0, 0, 0, 0, 0, 0, 0, 0];
  const views: Uint8Array[] = [];
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? keys.indexOf(bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) {
      reader.skip();
      continue;
    }
    if ((seen & (1 << field)) !== 0) throw keys.duplicate(field);
    seen |= 1 << field;
    if (field <= 2) texts[field] = reader.text();
    else if (field === 4 || field === 8) {
      reader.binSpan();
      views[field] = bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
    } else numbers[field] = reader.unsigned(field === 7 ? Number.MAX_SAFE_INTEGER : U32_MAX);
  }
  for (let field = 0; field < 9; field++) if ((seen & (1 << field)) === 0) throw keys.missing(field);
  if (texts[KIND] !== "result_chunk_v1") throw new MsgpackError("field", `'kind' is not 'result_chunk_v1'`);
  const [, workItemId = "", requestId = ""] = texts;
  const [, , , itemIndex = 0, , chunkIndex = 0, chunkCount = 0, totalBytes = 0] = numbers;
  const transferDigest = views[4] ?? bytes.subarray(0, 0), payload = views[8] ?? bytes.subarray(0, 0);
  return { workItemId, requestId, itemIndex, transferDigest, chunkIndex, chunkCount, totalBytes, payload };
}
