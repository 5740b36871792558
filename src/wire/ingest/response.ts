/**
 * The response envelope of local ingest (spec/local-ingest.md 4). Answers are made as whole frames in pieces, so that results and
 * chunks are never copied into an envelope.
 */
import { MsgpackError } from "../msgpack/errors.ts";
import { KeyTable } from "../msgpack/keys.ts";
import { MsgpackReader } from "../msgpack/reader.ts";
import { encodedText, MsgpackWriter } from "../msgpack/writer.ts";
import { IngestLimits } from "./limits.ts";
import type { OperationId } from "./request.ts";

/** A frame to be written, header included. */
export interface OutgoingFrame {
  readonly pieces: readonly Uint8Array[];
  /** Sum of the pieces' lengths in bytes. */
  readonly length: number;
}

/** Text of the error that replaces an answer above the frame limit. */
export const RESPONSE_TOO_LARGE = `ResultTooLarge: response frame exceeds ${IngestLimits.frameBytes} bytes`;

const ID = encodedText("id");
const RESULTS = encodedText("results");
const CHUNK = encodedText("chunk");
const SEQ = encodedText("seq");

function constant(write: (writer: MsgpackWriter) => void): Uint8Array {
  const writer = new MsgpackWriter();
  write(writer);
  return writer.take();
}

const SUCCEEDED = constant((writer) => {
  writer.text("ok");
  writer.bool(true);
  writer.text("error");
  writer.nil();
  writer.text("body");
});
const FAILED = constant((writer) => {
  writer.text("ok");
  writer.bool(false);
  writer.text("error");
});
const NO_BODY = constant((writer) => {
  writer.text("body");
  writer.mapHeader(0);
});

/** An answer without content: to `ping` and `cancel`. */
export function emptyFrame(id: OperationId): OutgoingFrame {
  const writer = begin(id, 0);
  writer.raw(SUCCEEDED);
  writer.mapHeader(0);
  return end(writer, [], undefined);
}

/** An error answer; its body is empty. A text that does not fit a frame is replaced. */
export function errorFrame(id: OperationId, error: string): OutgoingFrame {
  const writer = begin(id, error.length);
  writer.raw(FAILED);
  writer.text(error);
  writer.raw(NO_BODY);
  const frame = end(writer, [], undefined);
  return exceeds(frame) ? errorFrame(id, RESPONSE_TOO_LARGE) : frame;
}

/**
 * The answer to `publish_work`.
 *
 * @param results one WorkResult map per item, in the order of the items
 */
export function resultsFrame(id: OperationId, results: readonly Uint8Array[]): OutgoingFrame {
  const content = results.reduce((sum, result) => sum + result.length, 0);
  const array = constant((writer) => writer.arrayHeader(results.length));
  const writer = begin(id, 0);
  writer.raw(SUCCEEDED);
  writer.mapHeader(1);
  writer.raw(RESULTS);
  writer.binHeader(array.length + content);
  writer.raw(array);
  const frame = end(writer, results, undefined);
  return exceeds(frame) ? errorFrame(id, RESPONSE_TOO_LARGE) : frame;
}

/** One chunk of a stream; undefined when the frame would be too large. */
export function chunkFrame(id: OperationId, chunk: Uint8Array, seq: number): OutgoingFrame | undefined {
  const writer = begin(id, 0);
  writer.raw(SUCCEEDED);
  writer.mapHeader(2);
  writer.raw(CHUNK);
  writer.binHeader(chunk.length);
  const tail = new MsgpackWriter(16);
  tail.raw(SEQ);
  tail.integer(seq);
  const frame = end(writer, [chunk], tail.take());
  return exceeds(frame) ? undefined : frame;
}

/** The end of a stream that went well. */
export function finalFrame(id: OperationId, chunks: number): OutgoingFrame {
  const writer = begin(id, 0);
  writer.raw(SUCCEEDED);
  writer.mapHeader(2);
  writer.text("final");
  writer.bool(true);
  writer.text("outcome");
  writer.mapHeader(2);
  writer.text("status");
  writer.text("complete");
  writer.text("chunks");
  writer.integer(chunks);
  return end(writer, [], undefined);
}

function begin(id: OperationId, extra: number): MsgpackWriter {
  const writer = new MsgpackWriter(96 + extra);
  writer.room(IngestLimits.frameHeaderBytes);
  writer.mapHeader(4);
  writer.raw(ID);
  writer.bigInteger(id);
  return writer;
}

/** Puts the length in front and the pieces together. */
function end(writer: MsgpackWriter, content: readonly Uint8Array[], tail: Uint8Array | undefined): OutgoingFrame {
  const head = writer.take();
  const pieces = [head, ...content];
  if (tail !== undefined) pieces.push(tail);
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  new DataView(head.buffer, head.byteOffset).setUint32(0, length - IngestLimits.frameHeaderBytes, true);
  return { pieces, length };
}

function exceeds(frame: OutgoingFrame): boolean {
  return frame.length - IngestLimits.frameHeaderBytes > IngestLimits.frameBytes;
}

/** What a client finds in the body of an answer. */
export type ResponseBody =
  | { readonly kind: "empty" }
  | { readonly kind: "results"; readonly results: Uint8Array }
  | { readonly kind: "chunk"; readonly chunk: Uint8Array; readonly seq: number }
  | { readonly kind: "final"; readonly chunks: number };

/** One answer, read by a client. */
export type IngestResponse =
  | { readonly id: OperationId; readonly ok: true; readonly body: ResponseBody }
  | { readonly id: OperationId; readonly ok: false; readonly error: string };

const RESPONSE_KEYS = new KeyTable(["id", "ok", "error", "body"]);
const BODY_KEYS = new KeyTable(["results", "chunk", "seq", "final", "outcome"]);
const OUTCOME_KEYS = new KeyTable(["status", "chunks"]);

/**
 * Reads an answer from a frame's body. Unknown keys are ignored; bytes are views of the frame.
 *
 * @throws MsgpackError when it is none, or its fields do not fit together
 */
export function decodeResponse(frame: Uint8Array): IngestResponse {
  const reader = new MsgpackReader(frame);
  let id: OperationId | undefined, ok: boolean | undefined, error: string | undefined, body: ResponseBody | undefined;
  visit(reader, RESPONSE_KEYS, (name) => {
    if (name === "id") id = reader.bigInteger();
    else if (name === "ok") ok = reader.bool();
    else if (name === "error") error = reader.nil() ? undefined : reader.text();
    else body = readResponseBody(reader);
  });
  if (id === undefined) throw new MsgpackError("field", "an answer needs an 'id'");
  if (ok === undefined) throw new MsgpackError("field", "an answer needs 'ok'");
  if (body === undefined) throw new MsgpackError("field", "an answer needs a 'body'");
  return ok ? { id, ok, body } : { id, ok, error: error ?? "the sidecar gave no reason" };
}

function readResponseBody(reader: MsgpackReader): ResponseBody {
  let results: Uint8Array | undefined, chunk: Uint8Array | undefined, seq: number | undefined;
  let final = false, chunks: number | undefined;
  visit(reader, BODY_KEYS, (name) => {
    if (name === "results") results = bytesOf(reader);
    else if (name === "chunk") chunk = bytesOf(reader);
    else if (name === "seq") seq = reader.unsigned(0xffffffff);
    else if (name === "final") final = reader.bool();
    else chunks = readChunkCount(reader);
  });
  if (final) {
    if (chunks === undefined) throw new MsgpackError("field", "a final answer needs 'outcome.chunks'");
    return { kind: "final", chunks };
  }
  if (results !== undefined) return { kind: "results", results };
  if (chunk === undefined) return { kind: "empty" };
  if (seq === undefined) throw new MsgpackError("field", "a chunk needs a 'seq'");
  return { kind: "chunk", chunk, seq };
}

function readChunkCount(reader: MsgpackReader): number | undefined {
  let chunks: number | undefined;
  visit(reader, OUTCOME_KEYS, (name) => {
    if (name === "chunks") chunks = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else reader.skip();
  });
  return chunks;
}

function bytesOf(reader: MsgpackReader): Uint8Array {
  reader.binSpan();
  return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
}

function visit(reader: MsgpackReader, keys: KeyTable, read: (name: string | undefined) => void): void {
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) reader.skip();
    else read(keys.names[field]);
  }
}
