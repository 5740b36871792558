/** The envelopes of the IPC (spec/ipc.md 2): requests written, answers read. */
import { MsgpackReader } from "../msgpack/reader.ts";
import { KeyTable, textOf } from "../msgpack/keys.ts";
import { encoded, type MsgpackWriter } from "../msgpack/writer.ts";
import type { IpcMethod } from "./methods.ts";
import { CHUNK_KIND, IPC_VERSION, IpcResponseChunkV1, RequestEnvelope, ResponseEnvelope } from "./schema.ts";
import { readStruct } from "./struct.ts";

const key = RequestEnvelope.key;

const BEFORE_METHOD = encoded((writer) => {
  writer.mapHeader(RequestEnvelope.names.length);
  writer.raw(key.version);
  writer.integer(IPC_VERSION);
  writer.raw(key.method);
});
const BEFORE_BODY = [false, true].map((accepts) =>
  encoded((writer) => {
    writer.raw(key.accepts_ipc_response_chunks_v1);
    writer.bool(accepts);
    writer.raw(key.body);
  })
);

/** Writes a whole request. */
export function writeRequest<Request>(
  writer: MsgpackWriter,
  method: IpcMethod<Request, unknown>,
  requestId: string,
  request: Request,
): void {
  writer.raw(BEFORE_METHOD);
  writer.raw(method.encodedName);
  writer.raw(key.request_id);
  writer.text(requestId);
  writer.raw(BEFORE_BODY[method.acceptsChunks ? 1 : 0] as Uint8Array);
  method.writeBody(writer, request);
}

/** A decoded answer, unchecked: version, id and `ok` are the caller's to judge. */
export interface Response<Body> {
  readonly version: number;
  readonly requestId: string;
  readonly ok: boolean;
  /** Undefined when nil or missing. */
  readonly body: Body | undefined;
  /** "" when nil or missing. */
  readonly error: string;
  /** Whether the answer claims to be a chunk. */
  readonly chunkKind: boolean;
}

const F = ResponseEnvelope.index;
const U32_MAX = 0xffffffff;
const chunkKind = new KeyTable([CHUNK_KIND]);

/**
 * Reads an answer with its body. Bytes after the map are ignored, as are unknown keys.
 *
 * @throws MsgpackError when it is no answer of this method
 */
export function readResponse<Body>(bytes: Uint8Array, method: IpcMethod<never, Body>): Response<Body> {
  const reader = new MsgpackReader(bytes);
  let version = 0, requestId = "", ok = false, error = "", isChunk = false;
  let body: Body | undefined;
  readStruct(reader, ResponseEnvelope, (field) => {
    switch (field) {
      case F.version:
        version = reader.unsigned(U32_MAX);
        return;
      case F.request_id:
        requestId = reader.text();
        return;
      case F.ok:
        ok = reader.bool();
        return;
      case F.body:
        body = reader.nil() ? undefined : method.readBody(reader);
        return;
      case F.error:
        error = reader.nil() ? "" : reader.text();
        return;
      case F.kind:
        isChunk = readIsChunk(reader);
    }
  });
  return { version, requestId, ok, body, error, chunkKind: isChunk };
}

/** What a frame says about itself, whatever kind of answer it is. */
export interface ResponseHead {
  /** Undefined when missing or not text. */
  readonly requestId: string | undefined;
  readonly isChunk: boolean;
}

/** Index of the first key after `request_id` decides: an ordinary answer of the usual order has `ok` there. */
const HEAD_KEYS = new KeyTable(["version", "request_id", "ok", "kind"]);
const VERSION = 0, REQUEST_ID = 1, OK = 2, KIND = 3;

/**
 * Looks for `request_id` and `kind` without decoding the rest. An answer whose first three keys are `version`, `request_id` and
 * `ok` is taken for an ordinary one at once (6.3): its body is not walked over.
 *
 * @throws MsgpackError when the frame is no map, or so broken that `kind` cannot be looked for
 */
export function readResponseHead(bytes: Uint8Array, trustUsualOrder: boolean): ResponseHead {
  const reader = new MsgpackReader(bytes);
  let requestId: string | undefined;
  let isChunk = false;
  const count = reader.mapHeader();
  let usual = trustUsualOrder && count <= 15;
  for (let at = 0; at < count; at++) {
    const field = reader.keySpan() ? HEAD_KEYS.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (at <= OK && field !== at) usual = false;
    if (at === OK && usual && requestId !== undefined) return { requestId, isChunk: false };
    if (field === VERSION && usual && bytes[reader.pos] !== IPC_VERSION) usual = false;
    if (field === REQUEST_ID && isText(reader)) {
      reader.textSpan();
      requestId = textOf(bytes, reader.spanAt, reader.spanLength);
    } else if (field === KIND) isChunk = readIsChunk(reader);
    else reader.skip();
  }
  return { requestId, isChunk };
}

function isText(reader: MsgpackReader): boolean {
  const kind = reader.kind();
  return kind === "str" || kind === "bin";
}

/** A `kind` that is no text, or another text, means nothing. */
function readIsChunk(reader: MsgpackReader): boolean {
  if (!isText(reader)) {
    reader.skip();
    return false;
  }
  reader.textSpan();
  return chunkKind.indexOf(reader.bytes, reader.spanAt, reader.spanLength) === 0;
}

/** One chunk of a large answer (6.2), its bounds unchecked. Digest and payload are views of the frame. */
export interface ResponseChunk {
  readonly version: number;
  readonly requestId: string;
  readonly transferDigest: Uint8Array;
  readonly chunkIndex: number;
  readonly chunkCount: number;
  readonly totalBytes: number;
  readonly payload: Uint8Array;
}

const K = IpcResponseChunkV1.index;

/** Reads a chunk. All eight fields must be there and fit their types. */
export function readResponseChunk(bytes: Uint8Array): ResponseChunk {
  const reader = new MsgpackReader(bytes);
  const numbers: number[] = [];
  let requestId = "";
  let transferDigest = bytes, payload = bytes;
  readStruct(reader, IpcResponseChunkV1, (field) => {
    if (field === K.request_id) requestId = reader.text();
    else if (field === K.transfer_digest) transferDigest = readBin(reader);
    else if (field === K.payload) payload = readBin(reader);
    else if (field === K.kind) reader.textSpan();
    else if (field === K.total_bytes) numbers[field] = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else numbers[field] = reader.unsigned(U32_MAX);
  });
  return {
    version: numbers[K.version] ?? 0,
    requestId,
    transferDigest,
    chunkIndex: numbers[K.chunk_index] ?? 0,
    chunkCount: numbers[K.chunk_count] ?? 0,
    totalBytes: numbers[K.total_bytes] ?? 0,
    payload,
  };
}

function readBin(reader: MsgpackReader): Uint8Array {
  reader.binSpan();
  return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
}
