/**
 * Inputs that would make the backend refuse the whole request, or close the connection, and with it every other item of the batch
 * (spec/ipc.md 1.3, 7.2; the backend's own types want maps with str keys). Such an item is refused alone; the reference sends it.
 */
import { BAD_EXTENSION, BAD_KEY, BAD_UTF8, MsgpackReader, SAFE_DEPTH, UNSAFE } from "../wire/msgpack/reader.ts";
import type { BatchOperation } from "../wire/ipc/batch_items.ts";
import { fieldBit, type WorkItem, WorkItemField, type WorkItemFieldIndex } from "../wire/work_item.ts";
import { invalidInput, type Refusal } from "./refusals.ts";

const F = WorkItemField;

const PASSED_ON: Record<BatchOperation, readonly [WorkItemFieldIndex, string][]> = {
  encode: [[F.item, "item"], [F.options, "options"]],
  score: [[F.queryItem, "query_item"], [F.scoreItems, "score_items"], [F.options, "options"]],
  extract: [[F.item, "item"], [F.options, "options"], [F.outputSchema, "output_schema"]],
};

const MASKS: Record<BatchOperation, number> = {
  encode: maskOf("encode"),
  score: maskOf("score"),
  extract: maskOf("extract"),
};

function maskOf(operation: BatchOperation): number {
  return PASSED_ON[operation].reduce((mask, [field]) => mask | fieldBit(field), 0);
}

/** Why the item's own fields cannot be sent for this operation; undefined when they can. */
export function shapeRefusal(operation: BatchOperation, work: WorkItem): Refusal | undefined {
  if (((work.unsafeFields | work.misshapenFields) & MASKS[operation]) === 0) return undefined;
  for (const [field, name] of PASSED_ON[operation]) {
    if ((work.unsafeFields & fieldBit(field)) !== 0) return invalidInput(hazardText(name, work.reader(field)));
    if ((work.misshapenFields & fieldBit(field)) !== 0) {
      const each = field === F.scoreItems ? "each of score_items" : name;
      return invalidInput(`${each} must be a map with string keys`);
    }
  }
  return undefined;
}

/** The same for a fetched payload that takes the place of `name`. */
export function fetchedShapeRefusal(name: string, payload: Uint8Array): Refusal | undefined {
  const flags = new MsgpackReader(payload).skip();
  if ((flags & UNSAFE) !== 0) return invalidInput(hazardText(name, new MsgpackReader(payload)));
  const reader = new MsgpackReader(payload);
  if (reader.kind() !== "map") return invalidInput(`${name} must be a map with string keys`);
  for (let left = reader.mapHeader(); left > 0; left--) {
    if (reader.kind() !== "str") return invalidInput(`${name} must be a map with string keys`);
    reader.skip();
    reader.skip();
  }
  return undefined;
}

/** Why a value is unsafe to pass on; the value must be. */
export function hazardText(name: string, reader: MsgpackReader): string {
  const flags = reader.skip();
  if ((flags & BAD_KEY) !== 0) return `${name} holds a map key that is neither a string nor bytes`;
  if ((flags & BAD_UTF8) !== 0) return `${name} holds text that is not valid UTF-8`;
  if ((flags & BAD_EXTENSION) !== 0) return `${name} holds an extension that the backend cannot read`;
  return `${name} is nested deeper than ${SAFE_DEPTH} levels`;
}
