/** The batch methods: what becomes of each item (spec/ipc.md 3.9, 3.14, 4.8 to 4.10). */
import type { Clock } from "../../src/runtime/clock.ts";
import { writeNumpyHead } from "../../src/wire/numpy.ts";
import {
  BatchOutcomeStruct,
  DenseOutputStruct,
  ItemOutcomeStruct,
  RawOutputStruct,
  ScoreOutputStruct,
  SparseOutputStruct,
  UnitCounts,
} from "../../src/wire/ipc/schema.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { DENSE_DIMS, embedDense, embedSparse, SPARSE_DIMS, type SparseVector } from "./embed.ts";
import { characters, extractEntities } from "./extract.ts";
import { MODELS, type ModelStore, type Operation, type Tables } from "./models.ts";
import { encodePlain, filled, Float, mapOf, type Plain, type Read } from "./plain.ts";
import { scoreDocuments } from "./score.ts";
import { words } from "./text.ts";

type Item = { [key: string]: Read };
type Fields = { readonly [key: string]: Plain };

/** What batches are run with. */
export interface BatchContext {
  readonly models: ModelStore;
  readonly clock: Clock;
  /** Hash of the configuration; "" refuses all hashed work. */
  readonly configHash: string;
}

/** An item's input is not what its operation needs. */
class InvalidInput extends Error {}

/** Delay of items that must be tried again. */
const RETRY_MS = 5000;
/** Delay of items that name an admission. */
const ADMISSION_RETRY_MS = 1000;

/** Runs `RunBatch`. */
export function runBatch(context: BatchContext, body: Item): Plain {
  const items = (body.items as Item[]).map((outer) => ({
    outer,
    inner: outer[String(outer.op)],
    op: String(outer.op),
  }));
  const operation = items[0]?.op as Operation | undefined;
  if (operation === undefined) return batchOutcome([]);
  if (items.some(({ op }) => op !== operation)) {
    const text = "all items of a batch must have the same op";
    return batchOutcome(items.map(({ outer }) => refused(outer, "run_batch_mixed_op", text)));
  }
  const valid = items.filter(({ inner }) => inner !== undefined && inner !== null);
  const invalid = items.filter(({ inner }) => inner === undefined || inner === null);
  return batchOutcome([
    ...invalid.map(({ outer }) => refused(outer, "run_batch_invalid_item", `the item has no '${operation}' field`)),
    ...runItems(context, operation, String(body.model_id), valid.map(({ outer, inner }) => [mapOf(inner), outer])),
  ]);
}

/** Runs one of the three `Process…Batch` methods. */
export function processBatch(context: BatchContext, operation: Operation, body: Item): Plain {
  const items = (body.items as Item[]).map((item): [Item, Item] => [item, item]);
  return batchOutcome(runItems(context, operation, String(body.model_id), items));
}

/** @param items each with the map that its ids come from when the whole batch is refused */
function runItems(
  context: BatchContext,
  operation: Operation,
  model: string,
  items: readonly (readonly [Item, Item])[],
): Fields[] {
  const hashes = items.map(([item]) => item.bundle_config_hash).filter((hash) =>
    hash !== undefined && hash !== null && hash !== ""
  );
  const known = MODELS.get(model);
  if (hashes.length > 0 && (known === undefined || hashes.some((hash) => hash !== context.configHash))) {
    return items.map(([, outer]) => retried(outer, RETRY_MS));
  }
  const tables = context.models.tablesFor(model);
  return items.map(([item]) => {
    if (typeof item.numerical_admission_sha256 === "string") {
      const error = "this method does not verify numerical admissions";
      return { ...retried(item, ADMISSION_RETRY_MS), error, error_code: "INFERENCE_ERROR" };
    }
    if (known === undefined) return retried(item, RETRY_MS);
    if (!known.includes(operation)) return refused(item, "INVALID_INPUT", `model '${model}' does not ${operation}`);
    if (tables !== undefined) return runOne(context.clock, operation, item, tables);
    return operation === "encode"
      ? refused(item, "inference_error", `Model '${model}' is not loaded`)
      : retried(item, RETRY_MS);
  });
}

function runOne(clock: Clock, operation: Operation, item: Item, tables: Tables): Fields {
  const start = clock.now();
  try {
    const fields = RUNNERS[operation](item, tables);
    return {
      ...identity(item),
      disposition: "publish_and_ack",
      inference_ms: new Float(clock.now() - start),
      ...fields,
    };
  } catch (thrown) {
    if (!(thrown instanceof InvalidInput)) throw thrown;
    return refused(item, "INVALID_INPUT", thrown.message);
  }
}

const RUNNERS: Readonly<Record<Operation, (item: Item, tables: Tables) => Fields>> = {
  encode: encodeItem,
  score: scoreItem,
  extract: extractItem,
  generate: () => {
    throw new InvalidInput("generation has a method of its own");
  },
};

function encodeItem(item: Item, tables: Tables): Fields {
  const text = textOf(item.item);
  const types = item.output_types === undefined || item.output_types === null
    ? ["dense"]
    : item.output_types as string[];
  if (types.length === 0) throw new InvalidInput("output_types is empty");
  const unknown = types.find((type) => type !== "dense" && type !== "sparse");
  if (unknown !== undefined) throw new InvalidInput(`output type '${unknown}' is not one of dense, sparse`);
  const units = filled(UnitCounts, { input_tokens: words(text).length });
  const dense = types.includes("dense") ? embedDense(text, tables.statistics) : undefined;
  const sparse = types.includes("sparse") ? embedSparse(text, tables.statistics) : undefined;
  if (dense !== undefined && sparse !== undefined) return { units, result_msgpack: bothOutputs(item, dense, sparse) };
  if (dense !== undefined) {
    const output = filled(DenseOutputStruct, { values: dense, dim: DENSE_DIMS, normalize: false });
    return { units, raw_output: filled(RawOutputStruct, { dense: output }) };
  }
  const { indices, values } = sparse ?? { indices: [], values: [] };
  const output = filled(SparseOutputStruct, { indices, values: Float32Array.from(values), dims: SPARSE_DIMS });
  return { units, raw_output: filled(RawOutputStruct, { sparse: output }) };
}

/** More than one output comes finished (4.12): the caller's id first, arrays as numpy writes them. */
function bothOutputs(item: Item, dense: Float32Array, sparse: SparseVector): Uint8Array {
  const writer = new MsgpackWriter();
  const id = mapOf(item.item).id;
  writer.mapHeader(typeof id === "string" ? 3 : 2);
  if (typeof id === "string") {
    writer.text("id");
    writer.text(id);
  }
  writer.text("dense");
  writer.mapHeader(3);
  writeHead(writer, DENSE_DIMS);
  writer.text("values");
  writeArray(writer, "<f4", dense);
  writer.text("sparse");
  writer.mapHeader(4);
  writeHead(writer, SPARSE_DIMS);
  writer.text("indices");
  writeArray(writer, "<i4", Int32Array.from(sparse.indices));
  writer.text("values");
  writeArray(writer, "<f4", Float32Array.from(sparse.values));
  return writer.take();
}

function writeHead(writer: MsgpackWriter, dims: number): void {
  writer.text("dims");
  writer.integer(dims);
  writer.text("dtype");
  writer.text("float32");
}

function writeArray(writer: MsgpackWriter, dtype: "<f4" | "<i4", values: Float32Array | Int32Array): void {
  writeNumpyHead(writer, dtype, values.length, undefined, values.byteLength);
  const view = new DataView(new ArrayBuffer(4));
  for (const value of values) {
    if (dtype === "<f4") view.setFloat32(0, value, true);
    else view.setInt32(0, value, true);
    writer.raw(new Uint8Array(view.buffer));
  }
}

function scoreItem(item: Item, tables: Tables): Fields {
  const query = textOf(item.query_item);
  const documents = (item.score_items as Read[]).map(mapOf);
  const texts = documents.map(textOf);
  const scores = Float32Array.from(scoreDocuments(query, texts, tables.statistics));
  const ids = documents.map(({ id }, index) => typeof id === "string" ? id : `item-${index}`);
  const input = [query, ...texts].reduce((sum, text) => sum + words(text).length, 0);
  return {
    units: filled(UnitCounts, { input_tokens: input, pairs: documents.length }),
    raw_output: filled(RawOutputStruct, { score: filled(ScoreOutputStruct, { scores, item_ids: ids }) }),
  };
}

function extractItem(item: Item): Fields {
  const text = textOf(item.item);
  const { id } = mapOf(item.item);
  const labels = item.labels === undefined || item.labels === null ? undefined : item.labels as string[];
  const result = encodePlain({
    entities: extractEntities(text, labels).map((entity) => ({
      ...entity,
      score: new Float(entity.score),
      bbox: null,
    })),
    classifications: [],
    relations: [],
    objects: [],
    data: { characters: characters(text) },
    id: typeof id === "string" ? id : `item-${Number(item.item_index)}`,
  });
  return { units: filled(UnitCounts, { input_tokens: words(text).length }), result_msgpack: result };
}

/** The text of a user's item: `text`, or `content` when there is none (4.7). */
function textOf(value: Read | undefined): string {
  const item = mapOf(value);
  const { id } = item;
  if (id !== undefined && id !== null && typeof id !== "string") throw new InvalidInput("'id' must be a string");
  const text = item.text ?? item.content;
  if (typeof text !== "string") throw new InvalidInput("this backend reads text only: 'text' must be a string");
  return text;
}

function identity(item: Item): Fields {
  return {
    work_item_id: String(item.work_item_id ?? ""),
    request_id: String(item.request_id ?? ""),
    item_index: Number(item.item_index ?? 0),
  };
}

function refused(item: Item, code: string, error: string): Fields {
  return { ...identity(item), disposition: "publish_error_and_ack", error, error_code: code };
}

function retried(item: Item, delayMs: number): Fields {
  return { ...identity(item), disposition: "nak_retry", nak_delay_ms: delayMs };
}

function batchOutcome(outcomes: readonly Fields[]): Plain {
  return filled(BatchOutcomeStruct, {
    outcomes: outcomes.map((outcome) => filled(ItemOutcomeStruct, outcome)),
    batched_f16_multivectors: [],
  });
}
