/**
 * The items of a batch request (spec/ipc.md 4.3 to 4.6), written straight from the WorkItems' bytes. Key order and the nil of
 * unset optional fields are the reference's (7.1).
 */
import { encodedText, MsgpackWriter } from "../msgpack/writer.ts";
import { type WorkItem, WorkItemField, type WorkItemFieldIndex, writeTextList } from "../work_item.ts";

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

/** Several values that are always written together, encoded once. */
function constant(write: (writer: MsgpackWriter) => void): Uint8Array {
  const writer = new MsgpackWriter();
  write(writer);
  return writer.take();
}

function key(name: string): Uint8Array {
  return encodedText(name);
}

const WORK_ITEM_ID = key("work_item_id");
const REQUEST_ID = key("request_id");
const ITEM_INDEX = key("item_index");
const TOTAL_ITEMS = key("total_items");
const TIMESTAMP = key("timestamp");
const ITEM = key("item");
const OUTPUT_TYPES = key("output_types");
const INSTRUCTION = key("instruction");
const IS_QUERY = key("is_query");
const OPTIONS = key("options");
const PROFILE_ID = key("profile_id");
const BUNDLE_CONFIG_HASH = key("bundle_config_hash");
const PAYLOAD_FETCH_MS = key("payload_fetch_ms");
const PREPARED_TOKENS = key("prepared_tokens");
const PREPARED_AUDIO = key("prepared_audio");
const QUERY_ITEM = key("query_item");
const SCORE_ITEMS = key("score_items");
const LABELS = key("labels");
const OUTPUT_SCHEMA = key("output_schema");
const TRACEPARENT = key("traceparent");
const TRACESTATE = key("tracestate");
const NIL = Uint8Array.of(0xc0);
/** `payload_fetch_ms` 0.0 and nil `prepared_tokens`: what nearly every item ends with. */
const INLINE_TAIL = constant((writer) => {
  writer.text("payload_fetch_ms");
  writer.float64(0);
  writer.text("prepared_tokens");
  writer.nil();
});

const RUN_BATCH_HEAD: Record<BatchOperation, Uint8Array> = {
  encode: runBatchHead("encode"),
  score: runBatchHead("score"),
  extract: runBatchHead("extract"),
};

function runBatchHead(operation: BatchOperation): Uint8Array {
  return constant((writer) => {
    writer.mapHeader(9);
    writer.text("op");
    writer.text(operation);
  });
}

/** What stands before and after the payload map of a RunBatchItem: the other two operations are nil. */
const BEFORE_PAYLOAD: Record<BatchOperation, Uint8Array> = {
  encode: constant((writer) => writer.text("encode")),
  score: constant((writer) => {
    writer.text("encode");
    writer.nil();
    writer.text("score");
  }),
  extract: constant((writer) => {
    for (const name of ["encode", "score"]) {
      writer.text(name);
      writer.nil();
    }
    writer.text("extract");
  }),
};
const AFTER_PAYLOAD: Record<BatchOperation, Uint8Array> = {
  encode: constant((writer) => {
    for (const name of ["score", "extract"]) {
      writer.text(name);
      writer.nil();
    }
  }),
  score: constant((writer) => {
    writer.text("extract");
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
  writer.raw(TRACEPARENT);
  if (trace !== undefined) writer.text(trace.traceparent);
  else writeOptionalText(writer, work, WorkItemField.traceparent);
  writer.raw(TRACESTATE);
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
  writer.mapHeader(14);
  writeCommonHead(writer, work);
  writer.raw(ITEM);
  writeValue(writer, work, WorkItemField.item, input.item);
  writer.raw(OUTPUT_TYPES);
  writeTextList(writer, work, WorkItemField.outputTypes);
  writer.raw(INSTRUCTION);
  writeOptionalText(writer, work, WorkItemField.instruction);
  writer.raw(IS_QUERY);
  writer.bool(work.isQuery);
  writeOptionsToHash(writer, work);
  if (input.payloadFetchMs === 0 && input.preparedTokens === undefined) return writer.raw(INLINE_TAIL);
  writeFetchTime(writer, input);
  writer.raw(PREPARED_TOKENS);
  writer.raw(input.preparedTokens ?? NIL);
}

function writeScoreItem(writer: MsgpackWriter, entry: BatchEntry): void {
  const { work, input } = entry;
  writer.mapHeader(13);
  writeCommonHead(writer, work);
  writer.raw(QUERY_ITEM);
  writeValue(writer, work, WorkItemField.queryItem, input.queryItem);
  writer.raw(SCORE_ITEMS);
  writeValue(writer, work, WorkItemField.scoreItems, input.scoreItems);
  writer.raw(INSTRUCTION);
  writeOptionalText(writer, work, WorkItemField.instruction);
  writeOptionsToHash(writer, work);
  writeFetchTime(writer, input);
  // Pairs are built by the backend: tokens are never prepared for score (spec/ipc.md 4.5).
  writer.raw(PREPARED_TOKENS);
  writer.nil();
}

function writeExtractItem(writer: MsgpackWriter, entry: BatchEntry): void {
  const { work, input } = entry;
  writer.mapHeader(14);
  writeCommonHead(writer, work);
  writer.raw(ITEM);
  writeValue(writer, work, WorkItemField.item, input.item);
  writer.raw(LABELS);
  writeTextList(writer, work, WorkItemField.labels);
  writer.raw(OUTPUT_SCHEMA);
  writeValue(writer, work, WorkItemField.outputSchema, undefined);
  writer.raw(INSTRUCTION);
  writeOptionalText(writer, work, WorkItemField.instruction);
  writeOptionsToHash(writer, work);
  writeFetchTime(writer, input);
  writer.raw(PREPARED_AUDIO);
  writer.raw(input.preparedAudio ?? NIL);
}

/** `work_item_id`, `request_id`, `item_index`. */
function writeIdentity(writer: MsgpackWriter, work: WorkItem): void {
  writer.raw(WORK_ITEM_ID);
  writer.textSpan(work.bytes, work.at(WorkItemField.workItemId), work.size(WorkItemField.workItemId));
  writer.raw(REQUEST_ID);
  writer.textSpan(work.bytes, work.at(WorkItemField.requestId), work.size(WorkItemField.requestId));
  writer.raw(ITEM_INDEX);
  writer.integer(work.itemIndex);
}

function writeCommonHead(writer: MsgpackWriter, work: WorkItem): void {
  writeIdentity(writer, work);
  writer.raw(TOTAL_ITEMS);
  writer.integer(work.totalItems);
  writer.raw(TIMESTAMP);
  writer.float64(work.timestamp);
}

/** `options`, `profile_id`, `bundle_config_hash`; empty texts become nil. */
function writeOptionsToHash(writer: MsgpackWriter, work: WorkItem): void {
  writer.raw(OPTIONS);
  writeValue(writer, work, WorkItemField.options, undefined);
  writer.raw(PROFILE_ID);
  writeNonEmptyText(writer, work, WorkItemField.profileId);
  writer.raw(BUNDLE_CONFIG_HASH);
  writeNonEmptyText(writer, work, WorkItemField.bundleConfigHash);
}

function writeFetchTime(writer: MsgpackWriter, input: PreparedInput): void {
  writer.raw(PAYLOAD_FETCH_MS);
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
