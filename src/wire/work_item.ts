/**
 * The WorkItem (spec/queue.md 2): the message of one unit of work, read by skimming. What decides something is decoded; what is
 * only passed on (`item`, `query_item`, `score_items`, `options`, …) stays a span of the bytes it came in.
 */
import { MsgpackError } from "./msgpack/errors.ts";
import { KeyTable, TextCache, textOf } from "./msgpack/keys.ts";
import { BAD_KEY, HAS_BIN_OR_EXT, MOST_ENTRIES, MsgpackReader, UNSAFE } from "./msgpack/reader.ts";
import {
  ANY,
  ANY_LIST,
  BOOL,
  FIELD_NAMES,
  FIELD_TYPES,
  FLOAT,
  JSON_VALUE,
  LENIENT_FLOAT,
  TEXT,
  TEXT_LIST,
  TEXT_OPTIONAL,
  U32,
} from "./work_item_fields.ts";

const keys = new KeyTable(FIELD_NAMES);

/** Index of each field in the span table of a {@link WorkItem}. */
export const WorkItemField = {
  workItemId: 0,
  requestId: 1,
  itemIndex: 2,
  totalItems: 3,
  operation: 4,
  modelId: 5,
  profileId: 6,
  engine: 7,
  poolName: 8,
  admissionPool: 9,
  machineProfile: 10,
  item: 11,
  payloadRef: 12,
  outputTypes: 13,
  instruction: 14,
  isQuery: 15,
  options: 16,
  queryItem: 17,
  queryPayloadRef: 18,
  scoreItems: 19,
  labels: 20,
  outputSchema: 21,
  generate: 22,
  routingKey: 23,
  promptCacheKey: 24,
  bundleConfigHash: 25,
  routerId: 26,
  acceptsResultChunks: 27,
  replySubject: 28,
  traceparent: 29,
  tracestate: 30,
  timestamp: 31,
  deadline: 32,
  fallbackReason: 33,
  numericalAdmissionSha256: 34,
} as const;

/** One of the indexes of {@link WorkItemField}. */
export type WorkItemFieldIndex = (typeof WorkItemField)[keyof typeof WorkItemField];

const REQUIRED: readonly number[] = [0, 1, 2, 3, 4, 5, 8, 10, 28];
const NO_SPANS: readonly number[] = new Array(2 * FIELD_NAMES.length).fill(0);
const U32_MAX = 0xffffffff;

const operations = new TextCache();
const models = new TextCache();
const profiles = new TextCache();
const pools = new TextCache();
const hashes = new TextCache();
const routers = new TextCache();

/** A decoded WorkItem: a view on `bytes`, which must not change while it is in use. */
export class WorkItem {
  /** The message the spans point into. */
  readonly bytes: Uint8Array;
  /** Start and end of each present field (text: its content; otherwise the whole value); 0 and 0 when absent or nil. */
  readonly spans: number[];
  itemIndex = 0;
  totalItems = 0;
  operation = "";
  /** The model; the subject's model replaces it where they differ (spec/queue.md 1.3). */
  modelId = "";
  profileId = "";
  admissionPool = "";
  bundleConfigHash = "";
  routerId = "";
  replySubject = "";
  isQuery = false;
  acceptsResultChunks = false;
  /** Publication time, Unix seconds; 0 or less is unknown. */
  timestamp = 0;
  /** Unix seconds, or undefined when absent or not a number. */
  deadline: number | undefined = undefined;
  /**
   * Bit per field ({@link fieldBit}) whose value is well-formed but would make the backend close the connection (flags
   * {@link UNSAFE} of the msgpack reader): this item alone must be refused (spec/ipc.md 7.2).
   */
  unsafeFields = 0;
  /**
   * Bit per field that the backend takes only as a map with str keys (of `score_items`: an array of those) and that is something
   * else. The backend would refuse the whole request, so this item alone must be refused.
   */
  misshapenFields = 0;
  /** Whether `output_types` or `labels` hold bin elements, which the backend refuses: they are written anew as str. */
  listsNeedText = false;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.spans = NO_SPANS.slice();
  }

  /** Whether a field is there and not nil. */
  has(field: WorkItemFieldIndex): boolean {
    return this.spans[2 * field + 1] !== 0;
  }

  /** Start offset of a present field. */
  at(field: WorkItemFieldIndex): number {
    return this.spans[2 * field] as number;
  }

  /** Length in bytes of a field's span, 0 when absent. */
  size(field: WorkItemFieldIndex): number {
    return (this.spans[2 * field + 1] as number) - (this.spans[2 * field] as number);
  }

  /** Text of a text field, undefined when absent. */
  text(field: WorkItemFieldIndex): string | undefined {
    return this.has(field) ? textOf(this.bytes, this.at(field), this.size(field)) : undefined;
  }

  /** A reader over one present non-text field's value. */
  reader(field: WorkItemFieldIndex): MsgpackReader {
    return new MsgpackReader(this.bytes, this.at(field), this.at(field) + this.size(field));
  }

  /** `{request_id}.{item_index}` as it came. */
  get workItemId(): string {
    return textOf(this.bytes, this.at(WorkItemField.workItemId), this.size(WorkItemField.workItemId));
  }

  get requestId(): string {
    return textOf(this.bytes, this.at(WorkItemField.requestId), this.size(WorkItemField.requestId));
  }
}

/**
 * Reads one WorkItem: a map with str or bin keys, or the positional form. Unknown keys are ignored, as are bytes after the value.
 *
 * @throws MsgpackError for everything that spec/queue.md 2 calls a decode error
 */
export function decodeWorkItem(bytes: Uint8Array): WorkItem {
  return readWorkItem(new MsgpackReader(bytes));
}

/** As {@link decodeWorkItem}, for a WorkItem at the reader's position (local ingest carries an array of them). */
export function readWorkItem(reader: MsgpackReader): WorkItem {
  const start = reader.pos;
  reader.limitEntries(MOST_ENTRIES);
  const work = new WorkItem(reader.bytes);
  const kind = reader.kind();
  let seenLow = 0, seenHigh = 0;
  if (kind === "map") {
    const count = reader.mapHeader();
    for (let i = 0; i < count; i++) {
      const field = reader.keySpan() ? keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
      if (field < 0) {
        reader.skip();
        continue;
      }
      const bit = 1 << (field & 31);
      if (field < 32 ? (seenLow & bit) !== 0 : (seenHigh & bit) !== 0) throw keys.duplicate(field);
      if (field < 32) seenLow |= bit;
      else seenHigh |= bit;
      readField(work, field, reader);
    }
  } else if (kind === "array") {
    const count = reader.arrayHeader();
    for (let field = 0; field < count; field++) {
      if (field >= FIELD_NAMES.length) {
        reader.skip();
        continue;
      }
      readField(work, field, reader);
      if (field < 32) seenLow |= 1 << field;
    }
  } else {
    throw new MsgpackError("type", `a work item is a map, got ${kind}`);
  }
  for (const field of REQUIRED) {
    if ((seenLow & (1 << field)) === 0) throw keys.missing(field);
  }
  if (reader.pos - start > NAME_BYTES) checkNames(work);
  decodeDeciding(work);
  return work;
}

function readField(work: WorkItem, field: number, reader: MsgpackReader): void {
  try {
    readFieldValue(work, field, reader);
  } catch (thrown) {
    if (!(thrown instanceof MsgpackError)) throw thrown;
    throw new MsgpackError(thrown.fault, `field '${FIELD_NAMES[field]}': ${thrown.message}`, { cause: thrown });
  }
}

function readFieldValue(work: WorkItem, field: number, reader: MsgpackReader): void {
  const start = reader.pos;
  switch (FIELD_TYPES[field]) {
    case TEXT:
    case TEXT_OPTIONAL:
      if (FIELD_TYPES[field] === TEXT_OPTIONAL && reader.nil()) return;
      reader.textSpan();
      setSpan(work, field, reader.spanAt, reader.spanAt + reader.spanLength);
      return;
    case U32: {
      const value = reader.unsigned(U32_MAX);
      if (field === WorkItemField.itemIndex) work.itemIndex = value;
      else work.totalItems = value;
      break;
    }
    case BOOL: {
      const value = reader.bool();
      if (field === WorkItemField.isQuery) work.isQuery = value;
      else work.acceptsResultChunks = value;
      break;
    }
    case FLOAT:
      work.timestamp = reader.float();
      break;
    case LENIENT_FLOAT: {
      const kind = reader.kind();
      if (kind !== "int" && kind !== "float") {
        reader.skip();
        return;
      }
      work.deadline = reader.float();
      break;
    }
    case ANY:
      if (reader.nil()) return;
      noteHazards(work, field, skipTextMap(reader));
      break;
    case JSON_VALUE: {
      if (reader.nil()) return;
      const flags = skipTextMap(reader);
      if ((flags & HAS_BIN_OR_EXT) !== 0) throw new MsgpackError("type", "bin and ext cannot occur in a JSON value");
      noteHazards(work, field, flags);
      break;
    }
    case TEXT_LIST:
      if (reader.nil()) return;
      for (let left = reader.arrayHeader(); left > 0; left--) {
        if (reader.kind() === "bin") work.listsNeedText = true;
        reader.textSpan();
      }
      break;
    case ANY_LIST: {
      if (reader.nil()) return;
      for (let left = reader.arrayHeader(); left > 0; left--) noteHazards(work, field, skipTextMap(reader));
      break;
    }
  }
  setSpan(work, field, start, reader.pos);
}

/** Flag beside those of the msgpack reader: the value is not a map with str keys. */
const NOT_A_TEXT_MAP = 1 << 16;

/** Walks over a value as {@link MsgpackReader.skip} does, and also tells whether it is a map with str keys. */
function skipTextMap(reader: MsgpackReader): number {
  if (reader.kind() !== "map") return reader.skip() | NOT_A_TEXT_MAP;
  let flags = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const kind = reader.kind();
    const keyFlags = reader.skip();
    if (kind !== "str") flags |= kind === "bin" ? NOT_A_TEXT_MAP | HAS_BIN_OR_EXT : NOT_A_TEXT_MAP | BAD_KEY;
    flags |= keyFlags | reader.skip();
  }
  return flags;
}

/** The bit of a field in {@link WorkItem.unsafeFields} and {@link WorkItem.misshapenFields}; fields below 32 only. */
export function fieldBit(field: WorkItemFieldIndex): number {
  return 1 << field;
}

function noteHazards(work: WorkItem, field: number, flags: number): void {
  if ((flags & UNSAFE) !== 0) work.unsafeFields |= 1 << field;
  if ((flags & NOT_A_TEXT_MAP) !== 0) work.misshapenFields |= 1 << field;
}

function setSpan(work: WorkItem, field: number, at: number, end: number): void {
  work.spans[2 * field] = at;
  work.spans[2 * field + 1] = end;
}

/** Longer texts are no names: making strings of them, to compare and to show them, would take long. */
const NAME_BYTES = 65_536;
const NAMES = [
  WorkItemField.workItemId,
  WorkItemField.requestId,
  WorkItemField.operation,
  WorkItemField.modelId,
  WorkItemField.profileId,
  WorkItemField.engine,
  WorkItemField.admissionPool,
  WorkItemField.bundleConfigHash,
  WorkItemField.routerId,
  WorkItemField.replySubject,
] as const;

function checkNames(work: WorkItem): void {
  for (const field of NAMES) {
    if (work.size(field) <= NAME_BYTES) continue;
    const found = `field '${FIELD_NAMES[field]}': a text of ${work.size(field)} bytes`;
    throw new MsgpackError("range", `${found} is longer than the ${NAME_BYTES} bytes that a name may have`);
  }
}

/** Strings that rules look at; those that repeat between messages come from a cache. */
function decodeDeciding(work: WorkItem): void {
  const F = WorkItemField;
  const bytes = work.bytes;
  work.operation = operations.get(bytes, work.at(F.operation), work.size(F.operation));
  work.modelId = models.get(bytes, work.at(F.modelId), work.size(F.modelId));
  work.profileId = profiles.get(bytes, work.at(F.profileId), work.size(F.profileId));
  work.admissionPool = pools.get(bytes, work.at(F.admissionPool), work.size(F.admissionPool));
  work.bundleConfigHash = hashes.get(bytes, work.at(F.bundleConfigHash), work.size(F.bundleConfigHash));
  work.routerId = routers.get(bytes, work.at(F.routerId), work.size(F.routerId));
  work.replySubject = work.text(F.replySubject) ?? "";
}
