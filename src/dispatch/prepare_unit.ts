/** Preparing one item for the scheduler: the steps of spec/preparation.md 1, in their order. */
import { getLogger } from "@logtape/logtape";
import { validateExtractMedia } from "../prepare/media_extract.ts";
import { isEmptyQuery } from "../prepare/score_query.ts";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { extractCost, scoreCost } from "../scheduler/cost.ts";
import type { BatchKey, Operation } from "../scheduler/schedulable.ts";
import type { PreparedInput } from "../wire/ipc/batch_items.ts";
import { KeyTable } from "../wire/msgpack/keys.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { WorkItemField } from "../wire/work_item.ts";
import { fetchedShapeRefusal, shapeRefusal } from "./input_shape.ts";
import {
  invalidAudio,
  invalidInput,
  LOCAL_GENERATE_UNSUPPORTED,
  PAYLOAD_OVER_LIMIT,
  PAYLOAD_UNRESOLVED,
  type Refusal,
  UNKNOWN_OPERATION,
} from "./refusals.ts";
import { PayloadTooLargeError } from "./payload_error.ts";
import type { Settler } from "./settle.ts";
import type { FinalSituation } from "./settle_by.ts";
import { MOST_BATCH_BYTES, requestBytes } from "./split_batch.ts";
import { type AudioPreparer, dropSituation, type DropView, type PayloadResolver, type TokenPreparer } from "./views.ts";
import type { WorkUnit } from "./work_unit.ts";

const logger = getLogger(["worker-sidecar", "prepare"]);

const F = WorkItemField;

/** What came of preparing: ready for the scheduler, already settled by a checkpoint, or to be answered with an error. */
export type Preparation = "ready" | "dropped" | RefusedUnit;

/** The row of the settlement table that a refused item falls under, and the error that its caller gets. */
export interface RefusedUnit {
  readonly situation: FinalSituation;
  readonly refusal: Refusal;
}

/** What preparing needs; the three preparers are absent while their features are not built or not configured. */
export interface UnitPreparerParts {
  readonly drops: DropView;
  readonly settler: Settler;
  readonly clock: Clock;
  readonly payloads: PayloadResolver | undefined;
  readonly tokens: TokenPreparer | undefined;
  readonly audio: AudioPreparer | undefined;
}

const optionKeys = new KeyTable(["lora"]);

/** The batch key of a unit (spec/scheduler.md 2). */
export function batchKeyOf(unit: WorkUnit): BatchKey {
  const operation = unit.work.operation as Operation;
  if (operation === "score" || !unit.work.has(F.options)) return BASE_KEYS[operation];
  const lora = loraOf(unit.work.reader(F.options));
  return lora === "" ? BASE_KEYS[operation] : { operation, lora };
}

const BASE_KEYS: Record<Operation, BatchKey> = {
  encode: { operation: "encode", lora: "" },
  score: { operation: "score", lora: "" },
  extract: { operation: "extract", lora: "" },
};

/** `options.lora` when it is a non-empty string, else "" for the base model. Of a repeated key the last counts, as there. */
function loraOf(reader: MsgpackReader): string {
  let lora = "";
  if (reader.kind() !== "map") return lora;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const isLora = reader.keySpan() && optionKeys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) === 0;
    if (isLora && reader.kind() === "str") lora = reader.text();
    else {
      if (isLora) lora = "";
      reader.skip();
    }
  }
  return lora;
}

const UNRESOLVED: RefusedUnit = { situation: "payload_failed", refusal: PAYLOAD_UNRESOLVED };

/** Prepares units. */
export class UnitPreparer {
  readonly #parts: UnitPreparerParts;

  constructor(parts: UnitPreparerParts) {
    this.#parts = parts;
  }

  /** Prepares one unit: at once when all it needs is there, through a promise when something has to be fetched or decoded. */
  prepare(unit: WorkUnit, modelId: string): Preparation | Promise<Preparation> {
    const { work } = unit;
    switch (work.operation) {
      case "encode":
        return work.has(F.item) && this.#parts.tokens === undefined
          ? this.#inline(unit, "encode")
          : this.#slow(unit, "encode", modelId);
      case "score":
        return work.has(F.queryItem) && work.has(F.scoreItems)
          ? this.#inline(unit, "score")
          : this.#slow(unit, "score", modelId);
      case "extract": {
        const invalid = work.has(F.item)
          ? extractMediaRefusal(work.bytes, work.at(F.item), work.size(F.item))
          : undefined;
        if (invalid !== undefined) return { situation: "invalid_media", refusal: invalid };
        return work.has(F.item) && this.#parts.audio === undefined
          ? this.#inline(unit, "extract")
          : this.#slow(unit, "extract", modelId);
      }
      case "generate":
        return { situation: "unknown_operation", refusal: LOCAL_GENERATE_UNSUPPORTED };
      default:
        return { situation: "unknown_operation", refusal: UNKNOWN_OPERATION };
    }
  }

  /** The common case: the input is in the message and stays as it came. */
  #inline(unit: WorkUnit, operation: Operation): Preparation {
    // Both checkpoints around a fetch fall together: nothing is fetched.
    if (this.#dropped(unit, "before_payload_fetch")) return "dropped";
    const refusal = shapeRefusal(operation, unit.work) ?? queryRefusal(unit, operation) ?? sizeRefusal(unit);
    if (refusal !== undefined) return { situation: "unsendable_input", refusal };
    if (operation === "score") {
      unit.cost = scoreCost(unit.work.reader(F.queryItem), unit.work.reader(F.scoreItems));
    }
    return "ready";
  }

  async #slow(unit: WorkUnit, operation: Operation, modelId: string): Promise<Preparation> {
    if (this.#dropped(unit, "before_payload_fetch")) return "dropped";
    const fetched = await this.#fetch(unit, operation);
    if ("situation" in fetched) return fetched;
    unit.input = fetched;
    if (this.#dropped(unit, "after_payload_fetch")) return "dropped";
    const refusal = this.#fetchedRefusal(unit, operation) ?? await this.#prepareAudio(unit, operation);
    if (refusal !== undefined) return refusal;
    await this.#prepareTokens(unit, operation, modelId);
    if (operation === "score") {
      const query = unit.input.queryItem;
      const documents = unit.input.scoreItems;
      unit.cost = query === undefined || documents === undefined
        ? scoreCost(unit.work.reader(F.queryItem), unit.work.reader(F.scoreItems))
        : scoreCost(new MsgpackReader(query), new MsgpackReader(documents));
    }
    const refused = queryRefusal(unit, operation) ?? sizeRefusal(unit);
    return refused === undefined ? "ready" : { situation: "unsendable_input", refusal: refused };
  }

  /** The payload of an item that carries a reference in place of its input. */
  async #fetch(unit: WorkUnit, operation: Operation): Promise<PreparedInput | RefusedUnit> {
    const { work } = unit;
    const inline = operation === "score" ? work.has(F.queryItem) && work.has(F.scoreItems) : work.has(F.item);
    if (inline) return unit.input;
    const reference = work.text(operation === "score" ? F.queryPayloadRef : F.payloadRef);
    const { payloads, clock } = this.#parts;
    if (reference === undefined || payloads === undefined) return UNRESOLVED;
    const startedAt = clock.now();
    try {
      const payload = await payloads.fetch(reference);
      const payloadFetchMs = clock.now() - startedAt;
      const reader = new MsgpackReader(payload);
      if (operation === "score") return { ...scoreBlob(reader), payloadFetchMs };
      reader.skip();
      return { item: payload.subarray(0, reader.pos), payloadFetchMs };
    } catch (thrown) {
      if (thrown instanceof PayloadTooLargeError) {
        return { situation: "payload_too_large", refusal: PAYLOAD_OVER_LIMIT };
      }
      logger.warn("the payload of {item} cannot be had: {error}", { item: work.workItemId, error: errorText(thrown) });
      return UNRESOLVED;
    }
  }

  #fetchedRefusal(unit: WorkUnit, operation: Operation): RefusedUnit | undefined {
    const { item, queryItem, scoreItems } = unit.input;
    const media = operation === "extract" && item !== undefined ? extractMediaRefusal(item, 0, item.length) : undefined;
    if (media !== undefined) return { situation: "invalid_media", refusal: media };
    const refusal = shapeRefusal(operation, unit.work) ??
      (queryItem === undefined ? undefined : fetchedShapeRefusal("query_item", queryItem)) ??
      documentsRefusal(scoreItems) ??
      (item === undefined ? undefined : fetchedShapeRefusal("item", item));
    return refusal === undefined ? undefined : { situation: "unsendable_input", refusal };
  }

  async #prepareAudio(unit: WorkUnit, operation: Operation): Promise<RefusedUnit | undefined> {
    const { audio } = this.#parts;
    if (operation !== "extract" || audio === undefined) return undefined;
    const prepared = await audio.prepare(itemBytes(unit));
    if (prepared === undefined) return undefined;
    if ("refusal" in prepared) return { situation: "invalid_media", refusal: invalidAudio(prepared.refusal) };
    unit.input = { ...unit.input, item: prepared.item, preparedAudio: prepared.encoded };
    Object.assign(unit, extractCost(prepared));
    return undefined;
  }

  /** Tokens are a convenience: whatever goes wrong, the backend tokenises itself (spec/preparation.md 2.2). */
  async #prepareTokens(unit: WorkUnit, operation: Operation, modelId: string): Promise<void> {
    const { tokens } = this.#parts;
    if (operation !== "encode" || tokens === undefined) return;
    try {
      const prepared = await tokens.prepare(modelId, unit.work, itemBytes(unit));
      if (prepared === undefined) return;
      unit.input = { ...unit.input, preparedTokens: prepared.encoded };
      unit.cost = Math.max(1, prepared.ids);
    } catch (thrown) {
      logger.debug("{item} goes without tokens: {error}", { item: unit.work.workItemId, error: errorText(thrown) });
    }
  }

  #dropped(unit: WorkUnit, checkpoint: "before_payload_fetch" | "after_payload_fetch"): boolean {
    const reason = this.#parts.drops.dropReason(unit.work, unit.delivery, checkpoint);
    if (reason !== undefined) this.#parts.settler.settle(unit, dropSituation(reason));
    return reason !== undefined;
  }
}

function itemBytes(unit: WorkUnit): Uint8Array {
  const { work, input } = unit;
  return input.item ?? work.bytes.subarray(work.at(F.item), work.at(F.item) + work.size(F.item));
}

function extractMediaRefusal(bytes: Uint8Array, at: number, length: number): Refusal | undefined {
  const text = validateExtractMedia(new MsgpackReader(bytes, at, at + length));
  return text === undefined ? undefined : invalidInput(text);
}

function queryRefusal(unit: WorkUnit, operation: Operation): Refusal | undefined {
  if (operation !== "score") return undefined;
  const fetched = unit.input.queryItem;
  const query = fetched === undefined ? unit.work.reader(F.queryItem) : new MsgpackReader(fetched);
  return isEmptyQuery(query) ? invalidInput("query_item must hold text or media") : undefined;
}

/** An item that does not fit one request of the backend's socket could never run; the reference retries it until max_deliver. */
function sizeRefusal(unit: WorkUnit): Refusal | undefined {
  const size = requestBytes(unit);
  if (size <= MOST_BATCH_BYTES) return undefined;
  return invalidInput(
    `input is too large for the backend (${size} bytes); maximum is ${MOST_BATCH_BYTES} bytes per item`,
  );
}

const blobKeys = new KeyTable(["query", "items"]);

/** The two fields of an offloaded score payload (spec/preparation.md 1.1). */
function scoreBlob(reader: MsgpackReader): { queryItem: Uint8Array; scoreItems: Uint8Array } {
  const spans: (Uint8Array | undefined)[] = [undefined, undefined];
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? blobKeys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    const start = reader.pos;
    if (field === 1 && reader.kind() !== "array") throw new TypeError("items of a score payload must be an array");
    reader.skip();
    if (field >= 0) spans[field] = reader.bytes.subarray(start, reader.pos);
  }
  const [queryItem, scoreItems] = spans;
  if (queryItem === undefined || scoreItems === undefined) throw new TypeError("a score payload needs query and items");
  return { queryItem, scoreItems };
}

function documentsRefusal(scoreItems: Uint8Array | undefined): Refusal | undefined {
  if (scoreItems === undefined) return undefined;
  const reader = new MsgpackReader(scoreItems);
  for (let left = reader.arrayHeader(); left > 0; left--) {
    const start = reader.pos;
    reader.skip();
    const refusal = fetchedShapeRefusal("each of score_items", scoreItems.subarray(start, reader.pos));
    if (refusal !== undefined) return refusal;
  }
  return undefined;
}
