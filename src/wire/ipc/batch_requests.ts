/** Bodies of the four batch methods: RunBatch and the three Process…Batch forms (spec/ipc.md 3.3 to 3.5, 3.9). */
import { encodedText, type MsgpackWriter } from "../msgpack/writer.ts";
import {
  type BatchEntry,
  type BatchOperation,
  type TraceContext,
  writeBatchItem,
  writeRunBatchItem,
} from "./batch_items.ts";

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

const MODEL_ID = encodedText("model_id");
const BATCH_ID = encodedText("batch_id");
const LORA_KEY = encodedText("lora_key");
const TOTAL_COST = encodedText("total_cost");
const ITEMS = encodedText("items");
const ACCEPTS_F16 = encodedText("accepts_batched_f16_multivectors");

/** Writes the body of `RunBatch`. */
export function writeRunBatchBody(writer: MsgpackWriter, body: RunBatchBody): void {
  writer.mapHeader(6);
  writer.raw(MODEL_ID);
  writer.text(body.modelId);
  writer.raw(BATCH_ID);
  writer.integer(body.batchId);
  writer.raw(LORA_KEY);
  writer.text(body.loraKey);
  writer.raw(TOTAL_COST);
  writer.integer(body.totalCost);
  writer.raw(ITEMS);
  writer.arrayHeader(body.entries.length);
  for (const entry of body.entries) writeRunBatchItem(writer, body.operation, entry, body.trace);
  writer.raw(ACCEPTS_F16);
  writer.bool(true);
}

/** Writes the body of `ProcessEncodeBatch`, `ProcessScoreBatch` or `ProcessExtractBatch`. */
export function writeProcessBatchBody(
  writer: MsgpackWriter,
  operation: BatchOperation,
  modelId: string,
  entries: readonly BatchEntry[],
): void {
  writer.mapHeader(operation === "encode" ? 3 : 2);
  writer.raw(MODEL_ID);
  writer.text(modelId);
  writer.raw(ITEMS);
  writer.arrayHeader(entries.length);
  for (const entry of entries) writeBatchItem(writer, operation, entry);
  if (operation !== "encode") return;
  writer.raw(ACCEPTS_F16);
  writer.bool(true);
}
