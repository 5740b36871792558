/**
 * BatchOutcome (spec/ipc.md 4.8 to 4.11): the answer of every batch method, read by skimming. Result bytes and `units` stay spans
 * of the answer, which must not be reused while they are needed.
 */
import { MsgpackError } from "../msgpack/errors.ts";
import { KeyTable, textOf } from "../msgpack/keys.ts";
import type { MsgpackReader } from "../msgpack/reader.ts";
import { readBatchedF16, readRawOutput } from "./raw_output.ts";
import { BatchOutcomeStruct, DISPOSITIONS, ItemOutcomeStruct, UnitCounts } from "./schema.ts";
import { readStruct, requireSeen } from "./struct.ts";
import type { BatchedF16Buffer, RawOutput } from "./raw_output.ts";

/** What the sidecar does with an outcome (4.9). */
export type Disposition = (typeof DISPOSITIONS)[number];

const dispositions = new KeyTable(DISPOSITIONS);

const U32_MAX = 0xffffffff;

/** One item's outcome. Spans point into {@link BatchOutcome.bytes}; a length of 0 means absent. */
export class ItemOutcome {
  workItemIdAt = 0;
  workItemIdLength = 0;
  requestIdAt = 0;
  requestIdLength = 0;
  itemIndex = 0;
  disposition: Disposition = "nak_retry";
  /** Delay of a `nak_retry`, milliseconds; undefined is the base delay. */
  nakDelayMs: number | undefined = undefined;
  /** Content of `result_msgpack`. */
  resultAt = 0;
  resultLength = 0;
  error: string | undefined = undefined;
  errorCode: string | undefined = undefined;
  inferenceMs: number | undefined = undefined;
  tokenizationMs: number | undefined = undefined;
  postprocessingMs: number | undefined = undefined;
  rawOutput: RawOutput | undefined = undefined;
  /** The whole `units` map, passed on as it came. */
  unitsAt = 0;
  unitsLength = 0;
  retryAfterS: number | undefined = undefined;
}

/** All outcomes of a batch. */
export interface BatchOutcome {
  /** The answer's bytes. */
  readonly bytes: Uint8Array;
  readonly outcomes: ItemOutcome[];
  readonly batchedF16: readonly BatchedF16Buffer[];
}

const { outcomes: OUTCOMES } = BatchOutcomeStruct.index;

/** Reads the body of a batch answer at the reader's position. Any fault makes the whole answer undecodable (4.9, 4.11). */
export function readBatchOutcome(reader: MsgpackReader): BatchOutcome {
  let outcomes: ItemOutcome[] = [];
  let batchedF16: readonly BatchedF16Buffer[] = [];
  readStruct(reader, BatchOutcomeStruct, (field) => {
    if (field === OUTCOMES) outcomes = readOutcomes(reader);
    else batchedF16 = readBatchedF16(reader);
  });
  return { bytes: reader.bytes, outcomes, batchedF16 };
}

function readOutcomes(reader: MsgpackReader): ItemOutcome[] {
  const count = reader.arrayHeader();
  const outcomes: ItemOutcome[] = [];
  for (let i = 0; i < count; i++) outcomes.push(readItemOutcome(reader));
  return outcomes;
}

const itemKeys = ItemOutcomeStruct.keys;
const {
  work_item_id: WORK_ITEM_ID,
  request_id: REQUEST_ID,
  item_index: ITEM_INDEX,
  disposition: DISPOSITION,
  nak_delay_ms: NAK_DELAY_MS,
  result_msgpack: RESULT_MSGPACK,
  error: ERROR,
  error_code: ERROR_CODE,
  inference_ms: INFERENCE_MS,
  tokenization_ms: TOKENIZATION_MS,
  postprocessing_ms: POSTPROCESSING_MS,
  raw_output: RAW_OUTPUT,
  units: UNITS,
  retry_after_s: RETRY_AFTER_S,
} = ItemOutcomeStruct.index;

/** One loop of its own, without a closure: it runs for every item of every batch. */
function readItemOutcome(reader: MsgpackReader): ItemOutcome {
  const outcome = new ItemOutcome();
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? itemKeys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) {
      reader.skip();
      continue;
    }
    if ((seen & (1 << field)) !== 0) throw itemKeys.duplicate(field);
    seen |= 1 << field;
    readItemField(outcome, field, reader);
  }
  requireSeen(ItemOutcomeStruct, seen);
  return outcome;
}

function readItemField(outcome: ItemOutcome, field: number, reader: MsgpackReader): void {
  switch (field) {
    case WORK_ITEM_ID:
      reader.textSpan();
      outcome.workItemIdAt = reader.spanAt;
      outcome.workItemIdLength = reader.spanLength;
      return;
    case REQUEST_ID:
      reader.textSpan();
      outcome.requestIdAt = reader.spanAt;
      outcome.requestIdLength = reader.spanLength;
      return;
    case ITEM_INDEX:
      outcome.itemIndex = reader.unsigned(U32_MAX);
      return;
    case DISPOSITION:
      outcome.disposition = readDisposition(reader);
      return;
    case RESULT_MSGPACK:
      readResultBytes(outcome, reader);
      return;
    case RAW_OUTPUT:
      outcome.rawOutput = reader.nil() ? undefined : readRawOutput(reader);
      return;
    case UNITS:
      readUnits(outcome, reader);
      return;
  }
  if (reader.nil()) return;
  switch (field) {
    case NAK_DELAY_MS:
      outcome.nakDelayMs = reader.unsigned(Number.MAX_SAFE_INTEGER);
      return;
    case RETRY_AFTER_S:
      outcome.retryAfterS = reader.unsigned(U32_MAX);
      return;
    case ERROR:
      outcome.error = reader.text();
      return;
    case ERROR_CODE:
      outcome.errorCode = reader.text();
      return;
    case INFERENCE_MS:
      outcome.inferenceMs = reader.float();
      return;
    case TOKENIZATION_MS:
      outcome.tokenizationMs = reader.float();
      return;
    case POSTPROCESSING_MS:
      outcome.postprocessingMs = reader.float();
      return;
  }
}

function readDisposition(reader: MsgpackReader): Disposition {
  reader.textSpan();
  const index = dispositions.indexOf(reader.bytes, reader.spanAt, reader.spanLength);
  const found = DISPOSITIONS[index];
  if (found === undefined) {
    const text = textOf(reader.bytes, reader.spanAt, Math.min(reader.spanLength, 40));
    throw new MsgpackError("range", `unknown disposition '${text}'`);
  }
  return found;
}

/** `result_msgpack`: bin, nil, or str taken as its bytes (7.2). */
function readResultBytes(outcome: ItemOutcome, reader: MsgpackReader): void {
  if (reader.nil()) return;
  if (reader.kind() === "bin") reader.binSpan();
  else reader.textSpan();
  outcome.resultAt = reader.spanAt;
  outcome.resultLength = reader.spanLength;
}

const unitKeys = UnitCounts.keys;

/** `units`: passed on unchanged, but every known count is checked to be a non-negative integer or nil. */
function readUnits(outcome: ItemOutcome, reader: MsgpackReader): void {
  if (reader.nil()) return;
  const start = reader.pos;
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? unitKeys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) {
      reader.skip();
      continue;
    }
    // The gateway would drop the whole result.
    if ((seen & (1 << field)) !== 0) throw unitKeys.duplicate(field);
    seen |= 1 << field;
    if (!reader.nil() && reader.exactInteger() < 0) throw new MsgpackError("range", "a count in units is negative");
  }
  outcome.unitsAt = start;
  outcome.unitsLength = reader.pos - start;
}
