/**
 * The receiving side of results: what a gateway, the demo and tests read from an inbox (spec/queue.md 3, "receiver facts"). The
 * sidecar itself only writes results.
 */
import { MsgpackError } from "./msgpack/errors.ts";
import { KeyTable, textOf } from "./msgpack/keys.ts";
import { MsgpackReader } from "./msgpack/reader.ts";

/** Counts of work that a backend reports with a result. */
export const UNIT_NAMES = [
  "input_tokens",
  "pages",
  "images",
  "audio_ms",
  "pairs",
  "content_input_tokens",
  "output_tokens",
] as const;

/** One of {@link UNIT_NAMES}. */
export type UnitName = (typeof UNIT_NAMES)[number];

/** A received WorkResult. Absent keys have the defaults below; nil is undefined. */
export class WorkResult {
  workItemId = "";
  requestId = "";
  itemIndex = 0;
  success = false;
  /** A view of the bytes read, unless it came as text or as an array of numbers. */
  resultMsgpack: Uint8Array = new Uint8Array(0);
  error: string | undefined = undefined;
  errorCode: string | undefined = undefined;
  inferenceMs: number | undefined = undefined;
  queueMs: number | undefined = undefined;
  processingMs: number | undefined = undefined;
  workerId = "";
  tokenizationMs: number | undefined = undefined;
  postprocessingMs: number | undefined = undefined;
  payloadFetchMs: number | undefined = undefined;
  /** Known counts that are present; undefined when the result has no `units`. */
  units: Partial<Record<UnitName, bigint>> | undefined = undefined;
  workerDirect = false;
  executedBundleConfigHash = "";
  retryAfterS: number | undefined = undefined;
}

const NAMES = [
  "work_item_id",
  "request_id",
  "item_index",
  "success",
  "result_msgpack",
  "error",
  "error_code",
  "inference_ms",
  "queue_ms",
  "processing_ms",
  "worker_id",
  "tokenization_ms",
  "postprocessing_ms",
  "payload_fetch_ms",
  "units",
  "worker_direct",
  "executed_bundle_config_hash",
  "retry_after_s",
] as const;

const keys = new KeyTable(NAMES);
const unitKeys = new KeyTable(UNIT_NAMES);
const U32_MAX = 0xffffffff;
const U64_MAX = (1n << 64n) - 1n;

/**
 * Reads a result: a map, or the positional form.
 *
 * @throws MsgpackError for what makes the gateway drop the whole message
 */
export function decodeWorkResult(bytes: Uint8Array): WorkResult {
  const reader = new MsgpackReader(bytes);
  const result = new WorkResult();
  if (reader.kind() === "array") {
    const count = reader.arrayHeader();
    for (let field = 0; field < count; field++) {
      if (field < NAMES.length) readField(result, field, reader);
      else reader.skip();
    }
    return result;
  }
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? keys.indexOf(bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) {
      reader.skip();
      continue;
    }
    if ((seen & (1 << field)) !== 0) throw keys.duplicate(field);
    seen |= 1 << field;
    readField(result, field, reader);
  }
  return result;
}

function readField(result: WorkResult, field: number, reader: MsgpackReader): void {
  switch (NAMES[field]) {
    case "work_item_id":
      result.workItemId = reader.text();
      return;
    case "request_id":
      result.requestId = reader.text();
      return;
    case "item_index":
      result.itemIndex = reader.unsigned(U32_MAX);
      return;
    case "success":
      result.success = reader.bool();
      return;
    case "result_msgpack":
      result.resultMsgpack = readPayload(reader);
      return;
    case "worker_id":
      result.workerId = reader.text();
      return;
    case "worker_direct":
      result.workerDirect = reader.bool();
      return;
    case "executed_bundle_config_hash":
      result.executedBundleConfigHash = reader.text();
      return;
  }
  if (reader.nil()) return;
  switch (NAMES[field]) {
    case "error":
      result.error = reader.text();
      return;
    case "error_code":
      result.errorCode = reader.text();
      return;
    case "inference_ms":
      result.inferenceMs = reader.float();
      return;
    case "queue_ms":
      result.queueMs = reader.float();
      return;
    case "processing_ms":
      result.processingMs = reader.float();
      return;
    case "tokenization_ms":
      result.tokenizationMs = reader.float();
      return;
    case "postprocessing_ms":
      result.postprocessingMs = reader.float();
      return;
    case "payload_fetch_ms":
      result.payloadFetchMs = reader.float();
      return;
    case "units":
      result.units = readUnits(reader);
      return;
    case "retry_after_s":
      result.retryAfterS = reader.unsigned(U32_MAX);
      return;
  }
}

/** Bin, nil, text taken as its bytes, or an array of byte-sized integers. */
function readPayload(reader: MsgpackReader): Uint8Array {
  if (reader.nil()) return new Uint8Array(0);
  if (reader.kind() === "array") {
    const bytes = new Uint8Array(reader.arrayHeader());
    for (let i = 0; i < bytes.length; i++) bytes[i] = reader.unsigned(255);
    return bytes;
  }
  if (reader.kind() === "bin") reader.binSpan();
  else reader.textSpan();
  return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
}

function readUnits(reader: MsgpackReader): Partial<Record<UnitName, bigint>> {
  const units: Partial<Record<UnitName, bigint>> = {};
  for (let left = reader.mapHeader(); left > 0; left--) {
    const name = UNIT_NAMES[reader.keySpan() ? unitKeys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1];
    if (name === undefined) reader.skip();
    else if (!reader.nil()) {
      const count = reader.bigInteger();
      if (count < 0n || count > U64_MAX) {
        throw new MsgpackError("range", `units.${name} is ${count}, outside 0..=2^64-1`);
      }
      units[name] = count;
    }
  }
  return units;
}

/** What an inbox message is, decided by its top-level string key `kind` alone (spec/queue.md 3). */
export type InboxMessageKind = "result_chunk_v1" | "chunk" | "nak" | "result";

/** Tells what an inbox message is; anything without one of the three known kinds counts as a result. */
export function inboxMessageKind(bytes: Uint8Array): InboxMessageKind {
  const reader = new MsgpackReader(bytes);
  if (reader.kind() !== "map") return "result";
  for (let left = reader.mapHeader(); left > 0; left--) {
    if (reader.kind() !== "str") {
      reader.skip();
      reader.skip();
      continue;
    }
    reader.keySpan();
    if (textIs(reader, "kind") && reader.kind() === "str") {
      reader.keySpan();
      for (const kind of ["result_chunk_v1", "chunk", "nak"] as const) if (textIs(reader, kind)) return kind;
      return "result";
    }
    reader.skip();
  }
  return "result";
}

function textIs(reader: MsgpackReader, text: string): boolean {
  return reader.spanLength === text.length && textOf(reader.bytes, reader.spanAt, reader.spanLength) === text;
}
