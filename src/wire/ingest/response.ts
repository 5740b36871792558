/**
 * The response envelope of local ingest (spec/local-ingest.md 4). Answers are made as whole frames in pieces, so that results and
 * chunks are never copied into an envelope.
 */
import { MsgpackError } from "../msgpack/errors.ts";
import { KeyTable } from "../msgpack/keys.ts";
import { MsgpackReader } from "../msgpack/reader.ts";
import { encoded, encodedText, MsgpackWriter } from "../msgpack/writer.ts";
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

const SUCCEEDED = encoded((writer) => {
  writer.text("ok");
  writer.bool(true);
  writer.text("error");
  writer.nil();
  writer.text("body");
});
const FAILED = encoded((writer) => {
  writer.text("ok");
  writer.bool(false);
  writer.text("error");
});
const NO_BODY = encoded((writer) => {
  writer.text("body");
  writer.mapHeader(0);
});

/** An answer without content: to `ping` and `cancel`. */
export function emptyFrame(id: OperationId): OutgoingFrame {
  const writer = begin(id, 0);
  writer.raw(SUCCEEDED);
  writer.mapHeader(0);
  return end(writer, []);
}

/** An error answer; its body is empty. A text that does not fit a frame is replaced. */
export function errorFrame(id: OperationId, error: string): OutgoingFrame {
  const writer = begin(id, error.length);
  writer.raw(FAILED);
  writer.text(error);
  writer.raw(NO_BODY);
  const frame = end(writer, []);
  return exceeds(frame) ? errorFrame(id, RESPONSE_TOO_LARGE) : frame;
}

/**
 * The answer to `publish_work`.
 *
 * @param results one WorkResult map per item, in the order of the items
 */
export function resultsFrame(id: OperationId, results: readonly Uint8Array[]): OutgoingFrame {
  const content = results.reduce((sum, result) => sum + result.length, 0);
  const array = encoded((writer) => writer.arrayHeader(results.length));
  const writer = begin(id, 0);
  writer.raw(SUCCEEDED);
  writer.mapHeader(1);
  writer.raw(RESULTS);
  writer.binHeader(array.length + content);
  writer.raw(array);
  const frame = end(writer, results);
  return exceeds(frame) ? errorFrame(id, RESPONSE_TOO_LARGE) : frame;
}

/** Payloads from this size on are not copied into their frame. */
const SEPARATE_PAYLOAD_BYTES = 16_384;

/** Makes the chunks of one stream into frames, into one buffer: a frame is good until the next one is made. */
export class ChunkFrames {
  readonly #prefix: Uint8Array;
  readonly #writer = new MsgpackWriter(512);
  readonly #tail = new MsgpackWriter(16);

  constructor(id: OperationId) {
    const writer = begin(id, 0);
    writer.raw(SUCCEEDED);
    writer.mapHeader(2);
    writer.raw(CHUNK);
    this.#prefix = writer.take();
  }

  /** The frame of one chunk, or undefined when it would be too large. */
  frame(chunk: Uint8Array, seq: number): OutgoingFrame | undefined {
    const writer = this.#writer;
    writer.clear();
    writer.raw(this.#prefix);
    writer.binHeader(chunk.length);
    if (chunk.length < SEPARATE_PAYLOAD_BYTES) {
      writer.raw(chunk);
      writeSeq(writer, seq);
      return finished([writer.view()], writer.length);
    }
    this.#tail.clear();
    writeSeq(this.#tail, seq);
    const length = writer.length + chunk.length + this.#tail.length;
    if (length - IngestLimits.frameHeaderBytes > IngestLimits.frameBytes) return undefined;
    return finished([writer.view(), chunk, this.#tail.view()], length);
  }
}

function writeSeq(writer: MsgpackWriter, seq: number): void {
  writer.raw(SEQ);
  writer.integer(seq);
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
  return end(writer, []);
}

function begin(id: OperationId, extra: number): MsgpackWriter {
  const writer = new MsgpackWriter(96 + extra);
  writer.room(IngestLimits.frameHeaderBytes);
  writer.mapHeader(4);
  writer.raw(ID);
  writer.bigInteger(id);
  return writer;
}

/** Puts the pieces together. */
function end(writer: MsgpackWriter, content: readonly Uint8Array[]): OutgoingFrame {
  const head = writer.take();
  return finished([head, ...content], content.reduce((sum, piece) => sum + piece.length, head.length));
}

/** Puts the length in front, little-endian. */
function finished(pieces: readonly [Uint8Array, ...Uint8Array[]], length: number): OutgoingFrame {
  const [head] = pieces;
  const bodyLength = length - IngestLimits.frameHeaderBytes;
  for (let i = 0; i < IngestLimits.frameHeaderBytes; i++) head[i] = (bodyLength >>> (8 * i)) & 0xff;
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
