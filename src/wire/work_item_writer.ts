/** Writing a WorkItem, or parts of it, for the backend. */
import { MsgpackWriter } from "./msgpack/writer.ts";
import { type WorkItem, WorkItemField, type WorkItemFieldIndex } from "./work_item.ts";
import { BOOL, FIELD_NAMES, FIELD_TYPES, TEXT, TEXT_LIST, TEXT_OPTIONAL, U32 } from "./work_item_fields.ts";

/** Fields of the re-encoded form that differ from the message as it came. */
export interface WorkItemChanges {
  /** MessagePack of the `generate` map (media normalised, or fetched from the payload store); `payload_ref` becomes nil. */
  readonly generate?: Uint8Array;
  readonly replySubject?: string;
}

/**
 * The form that goes to the backend in `ProcessGenerate.work_item_msgpack`: all fields up to `timestamp` in declaration order, nil
 * where absent; the last three only when present; unknown keys are left out (spec/queue.md 2).
 */
export function encodeWorkItemForBackend(work: WorkItem, changes: WorkItemChanges = {}): Uint8Array {
  const F = WorkItemField;
  const tail = [F.deadline, F.fallbackReason, F.numericalAdmissionSha256].filter((field) => work.has(field));
  const writer = new MsgpackWriter(work.bytes.length + 256 + (changes.generate?.length ?? 0));
  writer.mapHeader(F.deadline + tail.length);
  for (let field = 0; field < F.deadline; field++) {
    writer.text(FIELD_NAMES[field] as string);
    if (field === F.generate && changes.generate !== undefined) writer.raw(changes.generate);
    else if (field === F.payloadRef && changes.generate !== undefined) writer.nil();
    else if (field === F.replySubject) writer.text(changes.replySubject ?? work.replySubject);
    else if (field === F.modelId) writer.text(work.modelId);
    else if (field === F.timestamp) writer.float64(work.timestamp);
    else writeField(writer, work, field as WorkItemFieldIndex);
  }
  for (const field of tail) {
    writer.text(FIELD_NAMES[field] as string);
    if (field === F.deadline) writer.float64(work.deadline ?? 0);
    else writeField(writer, work, field);
  }
  return writer.take();
}

function writeField(writer: MsgpackWriter, work: WorkItem, field: WorkItemFieldIndex): void {
  const type = FIELD_TYPES[field];
  if (type === U32) writer.integer(field === WorkItemField.itemIndex ? work.itemIndex : work.totalItems);
  else if (type === BOOL) writer.bool(field === WorkItemField.isQuery ? work.isQuery : work.acceptsResultChunks);
  else if (type === TEXT || (type === TEXT_OPTIONAL && work.has(field))) {
    writer.textSpan(work.bytes, work.at(field), work.size(field));
  } else if (!work.has(field)) writer.nil();
  else if (type === TEXT_LIST) writeTextList(writer, work, field);
  else writer.raw(work.bytes, work.at(field), work.size(field));
}

/** Writes `output_types` or `labels`, bin elements as str; nil when absent. */
export function writeTextList(writer: MsgpackWriter, work: WorkItem, field: WorkItemFieldIndex): void {
  if (!work.has(field)) return writer.nil();
  if (!work.listsNeedText) return writer.raw(work.bytes, work.at(field), work.size(field));
  const reader = work.reader(field);
  const count = reader.arrayHeader();
  writer.arrayHeader(count);
  for (let i = 0; i < count; i++) {
    reader.textSpan();
    writer.textSpan(work.bytes, reader.spanAt, reader.spanLength);
  }
}
