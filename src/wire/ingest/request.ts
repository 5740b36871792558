/** The request envelope of local ingest (spec/local-ingest.md 4): reading, bounded, and writing. */
import { MsgpackError } from "../msgpack/errors.ts";
import { KeyTable, textOf } from "../msgpack/keys.ts";
import { isValidUtf8 } from "../msgpack/content.ts";
import { MOST_ENTRIES, MsgpackReader } from "../msgpack/reader.ts";
import type { MsgpackWriter } from "../msgpack/writer.ts";
import { IngestLimits } from "./limits.ts";

/** Number of an operation within its connection: an unsigned integer of 64 bits. */
export type OperationId = bigint;

/** Body of a request; absent fields are empty. Bytes are views of the frame they came in. */
export interface IngestBody {
  /** Opaque name of the route; part of the digest and of one error text. */
  readonly lane: string;
  /** `encode`, `score`, `extract` or `generate`. */
  readonly endpoint: string;
  readonly model: string;
  readonly engine: string;
  readonly admissionPool: string;
  readonly bundleConfigHash: string;
  readonly requestId: string;
  /** Opaque; only its digest counts. */
  readonly params: Uint8Array;
  /** MessagePack array of WorkItems. */
  readonly items: Uint8Array;
  /** The caller's own; must not be empty. */
  readonly dispatchContext: Uint8Array;
  readonly payloadDigest: Uint8Array;
  /** Signed 64 bits, milliseconds; 0 is the default limit, or none for generation. */
  readonly timeoutMs: bigint;
  /** Undefined when absent or malformed: tracing never makes a request fail. */
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
}

/** One request. */
export interface IngestRequest {
  readonly id: OperationId;
  readonly op: string;
  readonly body: IngestBody;
}

const NO_BYTES = new Uint8Array(0);

/** The body of a request that carries none. */
export const EMPTY_BODY: IngestBody = {
  lane: "",
  endpoint: "",
  model: "",
  engine: "",
  admissionPool: "",
  bundleConfigHash: "",
  requestId: "",
  params: NO_BYTES,
  items: NO_BYTES,
  dispatchContext: NO_BYTES,
  payloadDigest: NO_BYTES,
  timeoutMs: 0n,
  traceparent: undefined,
  tracestate: undefined,
};

/** Longest text of an envelope. */
const NAME_BYTES = 65_536;
const I64_MIN = -(2n ** 63n), I64_MAX = 2n ** 63n - 1n;

const ID = 0, OP = 1;
const envelopeKeys = new KeyTable(["id", "op", "body"]);

const bodyKeys = new KeyTable([
  "lane",
  "endpoint",
  "model",
  "engine",
  "admission_pool",
  "bundle_config_hash",
  "request_id",
  "params",
  "items",
  "dispatch_context",
  "payload_digest",
  "timeout_ms",
  "traceparent",
  "tracestate",
]);

/** Members of {@link IngestBody} in the order of {@link bodyKeys}. */
const MEMBERS = [
  "lane",
  "endpoint",
  "model",
  "engine",
  "admissionPool",
  "bundleConfigHash",
  "requestId",
  "params",
  "items",
  "dispatchContext",
  "payloadDigest",
  "timeoutMs",
  "traceparent",
  "tracestate",
] as const satisfies readonly (keyof IngestBody)[];

/**
 * Reads a request from a frame's body. Unknown keys are ignored, as are bytes after the value.
 *
 * @throws MsgpackError for everything after which the connection is closed: no map, `id` or `op` missing, a known key twice or of
 * another type
 */
export function decodeRequest(frame: Uint8Array): IngestRequest {
  const reader = new MsgpackReader(frame);
  reader.limitEntries(MOST_ENTRIES);
  let id: OperationId | undefined, op: string | undefined, body: IngestBody | undefined;
  visitFields(reader, envelopeKeys, (field) => {
    if (field === ID) {
      id = reader.bigInteger();
      if (id < 0n) throw new MsgpackError("range", `field 'id': ${id} is not an unsigned number`);
    } else if (field === OP) op = readName(reader);
    else body = readBody(reader);
  });
  if (id === undefined) throw envelopeKeys.missing(ID);
  if (op === undefined) throw envelopeKeys.missing(OP);
  return { id, op, body: body ?? EMPTY_BODY };
}

type MutableBody = { -readonly [Member in keyof IngestBody]: IngestBody[Member] };

function readBody(reader: MsgpackReader): IngestBody {
  const body: MutableBody = { ...EMPTY_BODY };
  visitFields(reader, bodyKeys, (field) => {
    const member = MEMBERS[field];
    switch (member) {
      case undefined:
        return;
      case "params":
      case "items":
      case "dispatchContext":
      case "payloadDigest":
        body[member] = readBytes(reader);
        return;
      case "timeoutMs":
        body.timeoutMs = readTimeout(reader);
        return;
      case "traceparent":
      case "tracestate":
        body[member] = readTraceText(reader);
        return;
      default:
        body[member] = readName(reader);
    }
  });
  return body;
}

/** Calls `read` for each known field of a map. */
function visitFields(reader: MsgpackReader, keys: KeyTable, read: (field: number) => void): void {
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) {
      reader.skip();
      continue;
    }
    if ((seen & (1 << field)) !== 0) throw keys.duplicate(field);
    seen |= 1 << field;
    read(field);
  }
}

/** A text that is compared and shown: of bounded length, so that making a string of it takes no time that counts. */
function readName(reader: MsgpackReader): string {
  reader.textSpan();
  const { bytes, spanAt, spanLength } = reader;
  if (spanLength <= NAME_BYTES) return textOf(bytes, spanAt, spanLength);
  throw new MsgpackError("range", `a text of ${spanLength} bytes is longer than the ${NAME_BYTES} bytes of a name`);
}

/** A bin, a str taken as its bytes, or an array of byte-sized integers. */
function readBytes(reader: MsgpackReader): Uint8Array {
  const kind = reader.kind();
  if (kind === "array") {
    const bytes = new Uint8Array(reader.arrayHeader());
    for (let i = 0; i < bytes.length; i++) bytes[i] = reader.unsigned(255);
    return bytes;
  }
  if (kind === "bin") reader.binSpan();
  else if (!(kind === "str" && reader.keySpan())) throw new MsgpackError("type", `expected bin, got ${kind}`);
  return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
}

function readTimeout(reader: MsgpackReader): bigint {
  const value = reader.bigInteger();
  if (value > I64_MAX) throw new MsgpackError("range", `field 'timeout_ms': ${value} does not fit 64 signed bits`);
  return value;
}

/** A trace field: whatever is no text of a usable length counts as absent. */
function readTraceText(reader: MsgpackReader): string | undefined {
  if (reader.kind() !== "str") {
    reader.skip();
    return undefined;
  }
  reader.keySpan();
  const { bytes, spanAt, spanLength } = reader;
  if (spanLength > IngestLimits.traceStringDecodeBytes || !isValidUtf8(bytes, spanAt, spanLength)) return undefined;
  return textOf(bytes, spanAt, spanLength);
}

/** Writes a request: what a client sends as a frame's body. Trace fields are left out when absent, and `body` when undefined. */
export function writeRequest(writer: MsgpackWriter, id: OperationId, op: string, body?: IngestBody): void {
  writer.mapHeader(body === undefined ? 2 : 3);
  writer.text("id");
  writer.bigInteger(id);
  writer.text("op");
  writer.text(op);
  if (body === undefined) return;
  writer.text("body");
  writeBody(writer, body);
}

function writeBody(writer: MsgpackWriter, body: IngestBody): void {
  if (body.timeoutMs < I64_MIN || body.timeoutMs > I64_MAX) {
    throw new MsgpackError("range", `timeout_ms ${body.timeoutMs} does not fit 64 signed bits`);
  }
  const present = MEMBERS.filter((member) => body[member] !== undefined);
  writer.mapHeader(present.length);
  for (const [field, member] of MEMBERS.entries()) {
    const value = body[member];
    if (value === undefined) continue;
    writer.text(bodyKeys.names[field] ?? "");
    if (typeof value === "bigint") writer.bigInteger(value);
    else if (typeof value === "string") writer.text(value);
    else writer.bin(value);
  }
}

/** Writes the request of a `cancel`: nothing but the id of what is to end. */
export function writeCancelRequest(writer: MsgpackWriter, id: OperationId, requestId: string): void {
  writer.mapHeader(3);
  writer.text("id");
  writer.bigInteger(id);
  writer.text("op");
  writer.text("cancel");
  writer.text("body");
  writer.mapHeader(1);
  writer.text("request_id");
  writer.text(requestId);
}
