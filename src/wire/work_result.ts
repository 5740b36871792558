/**
 * The WorkResult (spec/queue.md 3): written straight from the spans of a backend's outcome, in the contract's field order. A result
 * is written in two halves, so that whoever frames a typed output writes it in place between them:
 *
 * ```ts
 * beginOutcomeResult(writer, answer.bytes, outcome, true, stamp);
 * writer.bin(answer.bytes, outcome.resultAt, outcome.resultLength);
 * endOutcomeResult(writer, answer.bytes, outcome, undefined, stamp);
 * ```
 *
 * A top-level key `kind` must never be written: it would turn the message into one of another type.
 */
import type { ItemOutcome } from "./ipc/batch_outcome.ts";
import { encoded, encodedText, type MsgpackWriter } from "./msgpack/writer.ts";
import { type WorkItem, WorkItemField } from "./work_item.ts";

/** What the sidecar itself adds to a result. One object can serve many results, its fields set anew for each. */
export interface ResultStamp {
  /** Our id as an encoded str ({@link encodedText}): the same in every result of the process. */
  readonly workerId: Uint8Array;
  /** Milliseconds from publication of the item to now; see {@link queueMilliseconds}. Undefined in errors of our own making. */
  readonly queueMs: number | undefined;
  /** Milliseconds spent on fetching the payload; written only when above 0. */
  readonly payloadFetchMs: number;
  /** Whether the delivery came by a worker-direct subject. */
  readonly workerDirect: boolean;
  /** The item's bundle hash if it was the one held during its run, else "": then the key is left out. */
  readonly executedHash: string;
}

/** An error in place of a result. */
export interface ResultError {
  readonly code: string | undefined;
  readonly message: string | undefined;
}

/** Milliseconds from `timestamp` (Unix seconds; 0 or less is unknown) to `nowMs` (Unix milliseconds), never below 0. */
export function queueMilliseconds(nowMs: number, timestamp: number): number {
  return timestamp > 0 ? Math.max(0, nowMs - timestamp * 1000) : 0;
}

const WORK_ITEM_ID = encodedText("work_item_id");
const REQUEST_ID = encodedText("request_id");
const ITEM_INDEX = encodedText("item_index");
const SUCCEEDED = encoded((writer) => {
  writer.text("success");
  writer.bool(true);
  writer.text("result_msgpack");
});
const FAILED = encoded((writer) => {
  writer.text("success");
  writer.bool(false);
  writer.text("result_msgpack");
});
const NO_ERROR = encoded((writer) => {
  for (const name of ["error", "error_code"]) {
    writer.text(name);
    writer.nil();
  }
});
const ERROR = encodedText("error");
const ERROR_CODE = encodedText("error_code");
const INFERENCE_MS = encodedText("inference_ms");
const QUEUE_MS = encodedText("queue_ms");
const PROCESSED = encoded((writer) => {
  writer.text("processing_ms");
  writer.float64(0);
});
const NOT_QUEUED = encoded((writer) => {
  for (const name of ["queue_ms", "processing_ms"]) {
    writer.text(name);
    writer.nil();
  }
});
const WORKER_ID = encodedText("worker_id");
const TOKENIZATION_MS = encodedText("tokenization_ms");
const POSTPROCESSING_MS = encodedText("postprocessing_ms");
const PAYLOAD_FETCH_MS = encodedText("payload_fetch_ms");
const UNITS = encodedText("units");
const WORKER_DIRECT = encodedText("worker_direct");
const EXECUTED_HASH = encodedText("executed_bundle_config_hash");
const RETRY_AFTER_S = encodedText("retry_after_s");

/** Fields that are always written. */
const FIXED_FIELDS = 15;
/** More than all keys, headers and numbers of a result together: what remains are ids, texts, units and the payload. */
const FRAME_BYTES = 420;

/**
 * Upper bound, in bytes and close, of what {@link beginOutcomeResult}, a bin of `payloadLength` bytes and {@link endOutcomeResult}
 * write.
 */
export function outcomeResultBound(
  outcome: ItemOutcome,
  payloadLength: number,
  error: ResultError | undefined,
  stamp: ResultStamp,
): number {
  return boundOf(
    outcome.workItemIdLength + outcome.requestIdLength + outcome.unitsLength + payloadLength,
    error,
    stamp,
  );
}

/** As {@link outcomeResultBound}, for {@link writeErrorResult}. */
export function errorResultBound(work: WorkItem, error: ResultError, stamp: ResultStamp): number {
  return boundOf(work.size(WorkItemField.workItemId) + work.size(WorkItemField.requestId), error, stamp);
}

/** UTF-8 needs at most three bytes for a UTF-16 unit. */
function boundOf(spans: number, error: ResultError | undefined, stamp: ResultStamp): number {
  const texts = stamp.executedHash.length + (error?.code?.length ?? 0) + (error?.message?.length ?? 0);
  return FRAME_BYTES + spans + stamp.workerId.length + 3 * texts;
}

/**
 * Writes a result up to the key `result_msgpack`; exactly one bin must follow, empty in an error.
 *
 * @param bytes the answer that the outcome's spans point into
 */
export function beginOutcomeResult(
  writer: MsgpackWriter,
  bytes: Uint8Array,
  outcome: ItemOutcome,
  success: boolean,
  stamp: ResultStamp,
): void {
  writer.mapHeader(
    FIXED_FIELDS + (outcome.unitsLength > 0 ? 1 : 0) + (stamp.executedHash !== "" ? 1 : 0) +
      (outcome.retryAfterS !== undefined ? 1 : 0),
  );
  writer.raw(WORK_ITEM_ID);
  writer.textSpan(bytes, outcome.workItemIdAt, outcome.workItemIdLength);
  writer.raw(REQUEST_ID);
  writer.textSpan(bytes, outcome.requestIdAt, outcome.requestIdLength);
  writer.raw(ITEM_INDEX);
  writer.integer(outcome.itemIndex);
  writer.raw(success ? SUCCEEDED : FAILED);
}

/** Writes the rest of a result, after its bin. `error` is undefined in a success. */
export function endOutcomeResult(
  writer: MsgpackWriter,
  bytes: Uint8Array,
  outcome: ItemOutcome,
  error: ResultError | undefined,
  stamp: ResultStamp,
): void {
  writeError(writer, error);
  writer.raw(INFERENCE_MS);
  writeOptionalFloat(writer, outcome.inferenceMs);
  writeQueueTimes(writer, stamp.queueMs);
  writer.raw(WORKER_ID);
  writer.raw(stamp.workerId);
  writer.raw(TOKENIZATION_MS);
  writeOptionalFloat(writer, outcome.tokenizationMs);
  writer.raw(POSTPROCESSING_MS);
  writeOptionalFloat(writer, outcome.postprocessingMs);
  writer.raw(PAYLOAD_FETCH_MS);
  writeOptionalFloat(writer, stamp.payloadFetchMs > 0 ? stamp.payloadFetchMs : undefined);
  if (outcome.unitsLength > 0) {
    writer.raw(UNITS);
    writer.raw(bytes, outcome.unitsAt, outcome.unitsLength);
  }
  writeEnding(writer, stamp, outcome.retryAfterS);
}

/** Writes a whole error result of our own making: no timings, no units. */
export function writeErrorResult(
  writer: MsgpackWriter,
  work: WorkItem,
  error: ResultError,
  retryAfterS: number | undefined,
  stamp: ResultStamp,
): void {
  const F = WorkItemField;
  writer.mapHeader(FIXED_FIELDS + (stamp.executedHash !== "" ? 1 : 0) + (retryAfterS !== undefined ? 1 : 0));
  writer.raw(WORK_ITEM_ID);
  writer.textSpan(work.bytes, work.at(F.workItemId), work.size(F.workItemId));
  writer.raw(REQUEST_ID);
  writer.textSpan(work.bytes, work.at(F.requestId), work.size(F.requestId));
  writer.raw(ITEM_INDEX);
  writer.integer(work.itemIndex);
  writer.raw(FAILED);
  writer.binHeader(0);
  writeError(writer, error);
  writer.raw(INFERENCE_MS);
  writer.nil();
  writeQueueTimes(writer, stamp.queueMs);
  writer.raw(WORKER_ID);
  writer.raw(stamp.workerId);
  writer.raw(TOKENIZATION_MS);
  writer.nil();
  writer.raw(POSTPROCESSING_MS);
  writer.nil();
  writer.raw(PAYLOAD_FETCH_MS);
  writeOptionalFloat(writer, stamp.payloadFetchMs > 0 ? stamp.payloadFetchMs : undefined);
  writeEnding(writer, stamp, retryAfterS);
}

function writeError(writer: MsgpackWriter, error: ResultError | undefined): void {
  if (error === undefined) return writer.raw(NO_ERROR);
  writer.raw(ERROR);
  writeOptionalText(writer, error.message);
  writer.raw(ERROR_CODE);
  writeOptionalText(writer, error.code);
}

/** `processing_ms` is 0.0 whenever there is a queue time (spec/queue.md 3). */
function writeQueueTimes(writer: MsgpackWriter, queueMs: number | undefined): void {
  if (queueMs === undefined) return writer.raw(NOT_QUEUED);
  writer.raw(QUEUE_MS);
  writer.float64(queueMs);
  writer.raw(PROCESSED);
}

function writeEnding(writer: MsgpackWriter, stamp: ResultStamp, retryAfterS: number | undefined): void {
  writer.raw(WORKER_DIRECT);
  writer.bool(stamp.workerDirect);
  if (stamp.executedHash !== "") {
    writer.raw(EXECUTED_HASH);
    writer.text(stamp.executedHash);
  }
  if (retryAfterS !== undefined) {
    writer.raw(RETRY_AFTER_S);
    writer.integer(retryAfterS);
  }
}

function writeOptionalFloat(writer: MsgpackWriter, value: number | undefined): void {
  if (value === undefined) writer.nil();
  else writer.float64(value);
}

function writeOptionalText(writer: MsgpackWriter, value: string | undefined): void {
  if (value === undefined) writer.nil();
  else writer.text(value);
}
