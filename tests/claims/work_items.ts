/** Claims on the work items of the queue. */
import assert from "node:assert/strict";
import { generateInput } from "../../src/generate/generate_input.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { decodeWorkItem, type WorkItem, WorkItemField, type WorkItemFieldIndex } from "../../src/wire/work_item.ts";
import { encodeWorkItemForBackend } from "../../src/wire/work_item_writer.ts";
import { readValue, type Value, valueOf, writeValue } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";

type FieldName = keyof typeof WorkItemField;

const FIELD_NAMES = Object.keys(WorkItemField) as FieldName[];
const DEFAULT_TEXTS = new Set<FieldName>(["profileId", "engine", "admissionPool", "bundleConfigHash", "routerId"]);
const TEXT_FIELDS = new Set<FieldName>([
  "workItemId",
  "requestId",
  "operation",
  "modelId",
  "profileId",
  "engine",
  "poolName",
  "admissionPool",
  "machineProfile",
  "payloadRef",
  "instruction",
  "queryPayloadRef",
  "routingKey",
  "promptCacheKey",
  "bundleConfigHash",
  "routerId",
  "replySubject",
  "traceparent",
  "tracestate",
  "fallbackReason",
  "numericalAdmissionSha256",
]);
/** Fields of which the sidecar keeps a decoded form beside the span. */
const DECODED_TEXTS = {
  operation: (work) => work.operation,
  modelId: (work) => work.modelId,
  profileId: (work) => work.profileId,
  admissionPool: (work) => work.admissionPool,
  bundleConfigHash: (work) => work.bundleConfigHash,
  routerId: (work) => work.routerId,
  replySubject: (work) => work.replySubject,
  workItemId: (work) => work.workItemId,
  requestId: (work) => work.requestId,
} satisfies Partial<Record<FieldName, (work: WorkItem) => string>>;

function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The fields of a message by name, whichever of its three forms it has: str keys, bin keys, positional. */
function fieldsOf(value: Value): Map<string, Value> {
  if (value.type === "array") {
    return new Map(value.items.map((item, i) => [snakeCase(FIELD_NAMES[i] ?? `unknown_${i}`), item]));
  }
  assert.ok(value.type === "map");
  return new Map(value.pairs.map(([key, inner]) => {
    assert.ok(key.type === "str" || key.type === "bin");
    return [new TextDecoder().decode(fromHex(key.hex)), inner];
  }));
}

function textOf(value: Value | undefined): string | undefined {
  if (value === undefined || value.type === "nil") return undefined;
  assert.ok(value.type === "str" || value.type === "bin");
  return new TextDecoder().decode(fromHex(value.hex));
}

/** Fails unless `work` says what the message says, every field of it. */
function assertWorkItem(work: WorkItem, message: Value): void {
  const fields = fieldsOf(message);
  for (const name of FIELD_NAMES) {
    const value = fields.get(snakeCase(name));
    if (TEXT_FIELDS.has(name)) {
      assert.equal(work.text(WorkItemField[name]), textOf(value), name);
      const decoded = (DECODED_TEXTS as Partial<Record<FieldName, (work: WorkItem) => string>>)[name];
      const fallback = DEFAULT_TEXTS.has(name) ? "" : undefined;
      if (decoded !== undefined) assert.equal(decoded(work), textOf(value) ?? fallback, name);
    } else assertOtherField(work, name, value);
  }
}

function assertOtherField(work: WorkItem, name: FieldName, value: Value | undefined): void {
  switch (name) {
    case "itemIndex":
      return assert.equal(work.itemIndex, numberOf(value));
    case "totalItems":
      return assert.equal(work.totalItems, numberOf(value));
    case "timestamp":
      return assert.equal(work.timestamp, numberOf(value) ?? 0);
    case "deadline":
      return assert.equal(work.deadline, numberOf(value));
    case "isQuery":
      return assert.equal(work.isQuery, value?.type === "bool" && value.value);
    case "acceptsResultChunks":
      return assert.equal(work.acceptsResultChunks, value?.type === "bool" && value.value);
  }
  const field = WorkItemField[name];
  if (value === undefined || value.type === "nil") return assert.equal(work.has(field), false, name);
  assert.equal(toHex(spanOf(work, field)), toHex(writeValue(value)), name);
}

function spanOf(work: WorkItem, field: WorkItemFieldIndex): Uint8Array {
  return work.bytes.subarray(work.at(field), work.at(field) + work.size(field));
}

function numberOf(value: Value | undefined): number | undefined {
  return value?.type === "int" || value?.type === "f64" || value?.type === "f32" ? Number(value.value) : undefined;
}

interface WorkItemCase {
  readonly name: string;
  readonly hex: string;
  readonly decoded: unknown;
  readonly source?: string;
}

const workItemClaim: VectorClaim = {
  files: ["queue/work_item.json"],
  *cases(data) {
    const all = data as WorkItemCase[];
    for (const one of all) {
      yield {
        name: one.name,
        check() {
          const bytes = fromHex(one.hex);
          assertWorkItem(decodeWorkItem(bytes), valueOf(one.decoded));
          if (one.source === undefined) return;
          const source = all.find(({ name }) => name === one.source);
          assert.ok(source !== undefined);
          assert.equal(toHex(forBackend(fromHex(source.hex))), one.hex);
        },
      } satisfies VectorCase;
    }
  },
};

/** A generation item as it is handed to the backend, its media made binary. */
function forBackend(bytes: Uint8Array): Uint8Array {
  const work = decodeWorkItem(bytes);
  const input = generateInput(work, undefined);
  assert.ok("bytes" in input);
  return encodeWorkItemForBackend(work, input.bytes === undefined ? {} : { generate: input.bytes });
}

interface WorkItemDecodeCase extends WorkItemCase {
  readonly accept: boolean;
  readonly deadline?: number | null;
}

const workItemDecodeClaim: VectorClaim = {
  files: ["queue/work_item_decode.json"],
  *cases(data) {
    for (const one of data as WorkItemDecodeCase[]) {
      yield {
        name: one.name,
        check() {
          const bytes = fromHex(one.hex);
          if (!one.accept) return void assert.throws(() => decodeWorkItem(bytes), MsgpackError);
          const work = decodeWorkItem(bytes);
          if (one.deadline !== undefined) assert.equal(work.deadline, one.deadline ?? undefined);
          // The case with trailing bytes has no decoded form: the message ends two bytes earlier.
          const message = one.decoded === null ? readValue(bytes.subarray(0, -2)) : valueOf(one.decoded);
          assertWorkItem(work, message);
        },
      } satisfies VectorCase;
    }
  },
};

/** What arrives as work, and what a backend gets of it. */
export const workItemClaims: VectorClaim[] = [workItemClaim, workItemDecodeClaim];
