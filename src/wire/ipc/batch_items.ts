/**
 * The items of a batch request (spec/ipc.md 4.3 to 4.6), written straight from the WorkItems' bytes. Key order and the nil of
 * unset optional fields are the reference's (7.1).
 */
import { encoded, type MsgpackWriter } from "../msgpack/writer.ts";
import { type WorkItem, WorkItemField, type WorkItemFieldIndex } from "../work_item.ts";
import { writeTextList } from "../work_item_writer.ts";
import { EncodeBatchItem, ExtractBatchItem, RunBatchItem, ScoreBatchItem } from "./schema.ts";

/** The operations that run in batches. */
export type BatchOperation = "encode" | "score" | "extract";

/** What preparation made of a WorkItem: MessagePack that takes the place of, or is added to, the item's own fields. */
export interface PreparedInput {
  /** Encode, extract: replaces `item` (fetched from the payload store, or with `audio` taken out). */
  readonly item?: Uint8Array;
  /** Score: replace `query_item` and `score_items`. */
  readonly queryItem?: Uint8Array;
  readonly scoreItems?: Uint8Array;
  /** Milliseconds that fetching the payload took; 0 for inline input. */
  readonly payloadFetchMs: number;
  /** Encode: an encoded PreparedTokens map. */
  readonly preparedTokens?: Uint8Array;
  /** Extract: an encoded prepared_audio map. */
  readonly preparedAudio?: Uint8Array;
}

/** Inline input with nothing added: shared by all such items. */
export const INLINE_INPUT: PreparedInput = { payloadFetchMs: 0 };

/** One item of a batch. */
export interface BatchEntry {
  readonly work: WorkItem;
  readonly input: PreparedInput;
}

/** Bytes of an entry's input as it will be written; what comes beside it is small. */
export function inputBytes({ work, input }: BatchEntry): number {
  const F = WorkItemField;
  return (input.item?.length ?? work.size(F.item)) + (input.queryItem?.length ?? work.size(F.queryItem)) +
    (input.scoreItems?.length ?? work.size(F.scoreItems)) + (input.preparedTokens?.length ?? 0) +
    (input.preparedAudio?.length ?? 0);
}

const E = EncodeBatchItem.key;
const S = ScoreBatchItem.key;
const X = ExtractBatchItem.key;
const R = RunBatchItem.key;
const NIL = Uint8Array.of(0xc0);
/** `payload_fetch_ms` 0.0 and nil `prepared_tokens`: what nearly every item ends with. */
const INLINE_TAIL = encoded((writer) => {
  writer.raw(E.payload_fetch_ms);
  writer.float64(0);
  writer.raw(E.prepared_tokens);
  writer.nil();
});

const RUN_BATCH_HEAD: Record<BatchOperation, Uint8Array> = {
  encode: runBatchHead("encode"),
  score: runBatchHead("score"),
  extract: runBatchHead("extract"),
};

function runBatchHead(operation: BatchOperation): Uint8Array {
  return encoded((writer) => {
    writer.mapHeader(RunBatchItem.names.length);
    writer.raw(R.op);
    writer.text(operation);
  });
}

/** What stands before and after the payload map of a RunBatchItem: the other two operations are nil. */
const BEFORE_PAYLOAD: Record<BatchOperation, Uint8Array> = {
  encode: encoded((writer) => writer.raw(R.encode)),
  score: encoded((writer) => {
    writer.raw(R.encode);
    writer.nil();
    writer.raw(R.score);
  }),
  extract: encoded((writer) => {
    for (const key of [R.encode, R.score]) {
      writer.raw(key);
      writer.nil();
    }
    writer.raw(R.extract);
  }),
};
const AFTER_PAYLOAD: Record<BatchOperation, Uint8Array> = {
  encode: encoded((writer) => {
    for (const key of [R.score, R.extract]) {
      writer.raw(key);
      writer.nil();
    }
  }),
  score: encoded((writer) => {
    writer.raw(R.extract);
    writer.nil();
  }),
  extract: new Uint8Array(0),
};

/** W3C trace context that takes the place of the items' own (a dispatch span of this process). */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

/** Writes one RunBatchItem (4.3). */
export function writeRunBatchItem(
  writer: MsgpackWriter,
  operation: BatchOperation,
  entry: BatchEntry,
  trace?: TraceContext,
): void {
  const work = entry.work;
  writer.raw(RUN_BATCH_HEAD[operation]);
  writeIdentity(writer, work);
  writer.raw(BEFORE_PAYLOAD[operation]);
  writeBatchItem(writer, operation, entry);
  writer.raw(AFTER_PAYLOAD[operation]);
  writer.raw(R.traceparent);
  if (trace !== undefined) writer.text(trace.traceparent);
  else writeOptionalText(writer, work, WorkItemField.traceparent);
  writer.raw(R.tracestate);
  if (trace === undefined) writeOptionalText(writer, work, WorkItemField.tracestate);
  else if (trace.tracestate === undefined) writer.nil();
  else writer.text(trace.tracestate);
}

/** Writes an EncodeBatchItem, ScoreBatchItem or ExtractBatchItem (4.4 to 4.6). */
export function writeBatchItem(writer: MsgpackWriter, operation: BatchOperation, entry: BatchEntry): void {
  switch (operation) {
    case "encode":
      return writeEncodeItem(writer, entry);
    case "score":
      return writeScoreItem(writer, entry);
    case "extract":
      return writeExtractItem(writer, entry);
  }
}

function writeEncodeItem(writer: MsgpackWriter, entry: BatchEntry): void {
  const { work, input } = entry;
  writer.mapHeader(EncodeBatchItem.names.length - (isAdmitted(work) ? 0 : 1));
  writeCommonHead(writer, work);
  writer.raw(E.item);
  writeValue(writer, work, WorkItemField.item, input.item);
  writer.raw(E.output_types);
  writeTextList(writer, work, WorkItemField.outputTypes);
  writer.raw(E.instruction);
  writeOptionalText(writer, work, WorkItemField.instruction);
  writer.raw(E.is_query);
  writer.bool(work.isQuery);
  writeOptionsToHash(writer, work);
  if (isAdmitted(work)) writeAdmission(writer, work);
  if (input.payloadFetchMs === 0 && input.preparedTokens === undefined) return writer.raw(INLINE_TAIL);
  writeFetchTime(writer, input);
  writer.raw(E.prepared_tokens);
  writer.raw(input.preparedTokens ?? NIL);
}

function writeScoreItem(writer: MsgpackWriter, entry: BatchEntry): void {
  const { work, input } = entry;
  writer.mapHeader(ScoreBatchItem.names.length - (isAdmitted(work) ? 0 : 1));
  writeCommonHead(writer, work);
  writer.raw(S.query_item);
  writeValue(writer, work, WorkItemField.queryItem, input.queryItem);
  writer.raw(S.score_items);
  writeValue(writer, work, WorkItemField.scoreItems, input.scoreItems);
  writer.raw(S.instruction);
  writeOptionalText(writer, work, WorkItemField.instruction);
  writeOptionsToHash(writer, work);
  if (isAdmitted(work)) writeAdmission(writer, work);
  writeFetchTime(writer, input);
  // Pairs are built by the backend: tokens are never prepared for score (spec/ipc.md 4.5).
  writer.raw(S.prepared_tokens);
  writer.nil();
}

function writeExtractItem(writer: MsgpackWriter, entry: BatchEntry): void {
  const { work, input } = entry;
  writer.mapHeader(ExtractBatchItem.names.length);
  writeCommonHead(writer, work);
  writer.raw(X.item);
  writeValue(writer, work, WorkItemField.item, input.item);
  writer.raw(X.labels);
  writeTextList(writer, work, WorkItemField.labels);
  writer.raw(X.output_schema);
  writeValue(writer, work, WorkItemField.outputSchema, undefined);
  writer.raw(X.instruction);
  writeOptionalText(writer, work, WorkItemField.instruction);
  writeOptionsToHash(writer, work);
  writeFetchTime(writer, input);
  writer.raw(X.prepared_audio);
  writer.raw(input.preparedAudio ?? NIL);
}

/** `work_item_id`, `request_id`, `item_index`. */
function writeIdentity(writer: MsgpackWriter, work: WorkItem): void {
  writer.raw(R.work_item_id);
  writer.textSpan(work.bytes, work.at(WorkItemField.workItemId), work.size(WorkItemField.workItemId));
  writer.raw(R.request_id);
  writer.textSpan(work.bytes, work.at(WorkItemField.requestId), work.size(WorkItemField.requestId));
  writer.raw(R.item_index);
  writer.integer(work.itemIndex);
}

function writeCommonHead(writer: MsgpackWriter, work: WorkItem): void {
  writeIdentity(writer, work);
  writer.raw(E.total_items);
  writer.integer(work.totalItems);
  writer.raw(E.timestamp);
  writer.float64(work.timestamp);
}

/** `options`, `profile_id`, `bundle_config_hash`; empty texts become nil. */
function writeOptionsToHash(writer: MsgpackWriter, work: WorkItem): void {
  writer.raw(E.options);
  writeValue(writer, work, WorkItemField.options, undefined);
  writer.raw(E.profile_id);
  writeNonEmptyText(writer, work, WorkItemField.profileId);
  writer.raw(E.bundle_config_hash);
  writeNonEmptyText(writer, work, WorkItemField.bundleConfigHash);
}

/** Whether the item names a numerical admission, which is left out of a batch item unless set (7.1). */
function isAdmitted(work: WorkItem): boolean {
  return work.has(WorkItemField.numericalAdmissionSha256);
}

/** The sidecar verifies none; a backend that does not either refuses the item instead of running it (3.14). */
function writeAdmission(writer: MsgpackWriter, work: WorkItem): void {
  writer.raw(E.numerical_admission_sha256);
  writeOptionalText(writer, work, WorkItemField.numericalAdmissionSha256);
}

function writeFetchTime(writer: MsgpackWriter, input: PreparedInput): void {
  writer.raw(E.payload_fetch_ms);
  writer.float64(input.payloadFetchMs);
}

function writeValue(
  writer: MsgpackWriter,
  work: WorkItem,
  field: WorkItemFieldIndex,
  replacement: Uint8Array | undefined,
): void {
  if (replacement !== undefined) writer.raw(replacement);
  else if (work.has(field)) writer.raw(work.bytes, work.at(field), work.size(field));
  else writer.nil();
}

function writeOptionalText(writer: MsgpackWriter, work: WorkItem, field: WorkItemFieldIndex): void {
  if (work.has(field)) writer.textSpan(work.bytes, work.at(field), work.size(field));
  else writer.nil();
}

function writeNonEmptyText(writer: MsgpackWriter, work: WorkItem, field: WorkItemFieldIndex): void {
  if (work.size(field) > 0) writer.textSpan(work.bytes, work.at(field), work.size(field));
  else writer.nil();
}
