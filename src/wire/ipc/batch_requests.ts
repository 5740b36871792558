/** Bodies of the four batch methods: RunBatch and the three Process…Batch forms (spec/ipc.md 3.3 to 3.5, 3.9). */
import type { MsgpackWriter } from "../msgpack/writer.ts";
import {
  type BatchEntry,
  type BatchOperation,
  inputBytes,
  type TraceContext,
  writeBatchItem,
  writeRunBatchItem,
} from "./batch_items.ts";
import { ProcessEncodeBatchRequest, ProcessScoreBatchRequest, RunBatchRequest } from "./schema.ts";

/** A batch of one operation for one model. */
export interface RunBatchBody {
  readonly modelId: string;
  readonly operation: BatchOperation;
  /** Counts up from 0 over all models of the process; for logs. */
  readonly batchId: number;
  /** LoRA adapter; "" is the base model. */
  readonly loraKey: string;
  /** Sum of the scheduler costs; informational. */
  readonly totalCost: number;
  readonly entries: readonly BatchEntry[];
  readonly trace?: TraceContext;
}

const R = RunBatchRequest.key;
const P = ProcessEncodeBatchRequest.key;

/** Room for the keys, ids and numbers of one item; more is allowed. */
const ITEM_BYTES = 1024;

/** Makes room for a batch in one go: a writer that grows on the way copies what it has again and again. */
function reserveFor(writer: MsgpackWriter, entries: readonly BatchEntry[]): void {
  let bytes = 0;
  for (const entry of entries) bytes += ITEM_BYTES + inputBytes(entry);
  writer.reserve(bytes);
}

/** Writes the body of `RunBatch`. */
export function writeRunBatchBody(writer: MsgpackWriter, body: RunBatchBody): void {
  reserveFor(writer, body.entries);
  writer.mapHeader(RunBatchRequest.names.length);
  writer.raw(R.model_id);
  writer.text(body.modelId);
  writer.raw(R.batch_id);
  writer.integer(body.batchId);
  writer.raw(R.lora_key);
  writer.text(body.loraKey);
  writer.raw(R.total_cost);
  writer.integer(body.totalCost);
  writer.raw(R.items);
  writer.arrayHeader(body.entries.length);
  for (const entry of body.entries) writeRunBatchItem(writer, body.operation, entry, body.trace);
  writer.raw(R.accepts_batched_f16_multivectors);
  writer.bool(true);
}

/** Writes the body of `ProcessEncodeBatch`, `ProcessScoreBatch` or `ProcessExtractBatch`. */
export function writeProcessBatchBody(
  writer: MsgpackWriter,
  operation: BatchOperation,
  modelId: string,
  entries: readonly BatchEntry[],
): void {
  writer.mapHeader((operation === "encode" ? ProcessEncodeBatchRequest : ProcessScoreBatchRequest).names.length);
  writer.raw(P.model_id);
  writer.text(modelId);
  writer.raw(P.items);
  writer.arrayHeader(entries.length);
  for (const entry of entries) writeBatchItem(writer, operation, entry);
  if (operation !== "encode") return;
  writer.raw(P.accepts_batched_f16_multivectors);
  writer.bool(true);
}
