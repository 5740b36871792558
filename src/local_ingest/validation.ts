/**
 * The checks on a request (spec/local-ingest.md 6 and 7.2), as ordered lists of rules: the first one that does not hold gives the
 * error text. What is checked is the request alone. A request can be as large as a frame, so the checks give way to others as they go.
 */
import { errorText } from "../runtime/errors.ts";
import { Sha256 } from "../runtime/digest.ts";
import { type Pace, SLICE_BYTES } from "../runtime/pace.ts";
import { digestPieces } from "../wire/ingest/digest.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";
import { quoted } from "../wire/ingest/quoted.ts";
import type { IngestBody } from "../wire/ingest/request.ts";
import { sameBytes } from "../wire/msgpack/keys.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { readWorkItem, type WorkItem, WorkItemField } from "../wire/work_item.ts";
import { mediaTooLarge } from "./media_limits.ts";

const F = WorkItemField;
const BINDING = "InvalidTransportBinding: ";

/** A request whose checks went well, or the text of the first one that did not. */
export type Validation<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: string };

/** Whether a request id can be used: 1 to 128 bytes, no white space. */
export function isRequestId(requestId: string): boolean {
  if (requestId === "" || requestId.length > IngestLimits.requestIdBytes || /\p{White_Space}/u.test(requestId)) {
    return false;
  }
  return new TextEncoder().encode(requestId).length <= IngestLimits.requestIdBytes;
}

/** The items of a `publish_work` call. */
export async function validateWork(body: IngestBody, pace: Pace): Promise<Validation<readonly WorkItem[]>> {
  const early = workTimeoutFault(body) ?? await digestFault(body, pace);
  return await validated(body, early, IngestLimits.workItemsPerCall, pace);
}

/** The one item of a `publish_generate_stream` call. The endpoint is checked after the item ({@link isGenerateEndpoint}). */
export async function validateGeneration(body: IngestBody, pace: Pace): Promise<Validation<WorkItem>> {
  const early = body.timeoutMs < 0n
    ? `${BINDING}generation timeout_ms ${body.timeoutMs} must be non-negative`
    : await digestFault(body, pace);
  const items = await validated(body, early, 1, pace);
  if (!items.ok) return items;
  const [item] = items.value;
  return item === undefined ? { ok: false, error: `${BINDING}items must not be empty` } : { ok: true, value: item };
}

/** Whether a stream was asked for what streams are for. */
export function isGenerateEndpoint(body: IngestBody): boolean {
  return body.endpoint === "generate";
}

/** Whether a failed check was about decoding the items: streams have a code of their own for it. */
export function isDecodeFault(error: string): boolean {
  return error.startsWith("DecodeError: ");
}

/** Milliseconds that a `publish_work` call may take. */
export function workTimeoutMs(body: IngestBody): number {
  return body.timeoutMs === 0n ? IngestLimits.publishWorkTimeoutDefaultMs : Number(body.timeoutMs);
}

function workTimeoutFault(body: IngestBody): string | undefined {
  const most = IngestLimits.publishWorkTimeoutMaxMs;
  if (body.timeoutMs >= 0n && body.timeoutMs <= BigInt(most)) return undefined;
  return `${BINDING}timeout_ms ${body.timeoutMs} must be between 0 and ${most}`;
}

async function digestFault(body: IngestBody, pace: Pace): Promise<string | undefined> {
  const { digestBytes } = IngestLimits;
  if (body.dispatchContext.length === 0) return `${BINDING}dispatch_context must not be empty`;
  if (body.payloadDigest.length !== digestBytes) return `${BINDING}payload_digest must be ${digestBytes} bytes`;
  const actual = await pacedDigest(body, pace);
  if (!sameBytes(actual, 0, body.payloadDigest, 0, digestBytes)) return `${BINDING}payload_digest mismatch`;
  return undefined;
}

/** The digest that the body must carry. */
async function pacedDigest(body: IngestBody, pace: Pace): Promise<Uint8Array> {
  const hash = new Sha256();
  for (const piece of digestPieces(body)) {
    for (let at = 0; at < piece.length; at += SLICE_BYTES) {
      const slice = piece.subarray(at, at + SLICE_BYTES);
      hash.update(slice);
      const turn = pace.worked(slice.length);
      if (turn !== undefined) await turn;
    }
  }
  return hash.digest();
}

/** The checks from the items on. */
async function validated(
  body: IngestBody,
  early: string | undefined,
  mostItems: number,
  pace: Pace,
): Promise<Validation<readonly WorkItem[]>> {
  if (early !== undefined) return { ok: false, error: early };
  let count: number, items: readonly WorkItem[];
  try {
    const reader = new MsgpackReader(body.items);
    count = reader.arrayHeader();
    // More items than are allowed are refused by their number; decoding them would cost many times the memory they came in.
    items = count > IngestLimits.workItemsPerCall ? [] : await readItems(reader, count, pace);
  } catch (thrown) {
    return { ok: false, error: `DecodeError: items is not a msgpack WorkItem array: ${errorText(thrown)}` };
  }
  const error = batchFault(body, count, mostItems) ?? await itemsFault(body, items, pace);
  return error === undefined ? { ok: true, value: items } : { ok: false, error };
}

async function readItems(reader: MsgpackReader, count: number, pace: Pace): Promise<WorkItem[]> {
  const items: WorkItem[] = [];
  for (let i = 0; i < count; i++) {
    const start = reader.pos;
    items.push(readWorkItem(reader));
    const turn = pace.worked(reader.pos - start);
    if (turn !== undefined) await turn;
  }
  return items;
}

function batchFault(body: IngestBody, count: number, mostItems: number): string | undefined {
  if (!isRequestId(body.requestId)) return `${BINDING}invalid request_id`;
  if (count === 0) return `${BINDING}items must not be empty`;
  if (count > mostItems) return `${BINDING}${count} work items exceeds maximum ${mostItems}`;
  return undefined;
}

/** One item in its place in the call. */
interface ItemInCall {
  readonly body: IngestBody;
  readonly work: WorkItem;
  /** Number of items in the call. */
  readonly count: number;
  /** Indexes that earlier items have. */
  readonly used: Set<number>;
}

/** Rules on one item, in order. Each gives the error text, or undefined when it holds. */
const ITEM_RULES: readonly ((item: ItemInCall) => string | undefined)[] = [
  ({ body, work }) => {
    const { requestId } = work;
    return requestId === body.requestId ? undefined : `item request_id ${quoted(requestId)} does not match envelope`;
  },
  ({ work, count }) =>
    work.totalItems === count
      ? undefined
      : `item ${work.workItemId} total_items ${work.totalItems} does not match batch ${count}`,
  ({ work, count, used }) => {
    const { itemIndex } = work;
    if (itemIndex >= count || used.has(itemIndex)) return `duplicate or out-of-range item_index ${itemIndex}`;
    used.add(itemIndex);
    return undefined;
  },
  ({ body, work }) => {
    const expected = `${body.requestId}.${work.itemIndex}`;
    const { workItemId } = work;
    return workItemId === expected
      ? undefined
      : `work_item_id ${quoted(workItemId)} does not match ${quoted(expected)}`;
  },
  ({ body, work }) =>
    work.operation === body.endpoint
      ? undefined
      : `operation ${quoted(work.operation)} does not match endpoint ${quoted(body.endpoint)}`,
  ({ work }) => work.operation === "load" ? "load is not supported on the local-ingest lane" : undefined,
  ({ work }) => {
    const isNumerical = work.has(F.numericalAdmissionSha256) ||
      (work.has(F.fallbackReason) && (work.operation === "encode" || work.operation === "score"));
    return isNumerical ? "numerical admission is not supported on the local-ingest lane" : undefined;
  },
  ({ body, work }) =>
    work.modelId === body.model
      ? undefined
      : `model_id ${quoted(work.modelId)} does not match envelope model ${quoted(body.model)}`,
  ({ body, work }) => {
    const engine = work.text(F.engine) ?? "";
    return engine === body.engine
      ? undefined
      : `engine ${quoted(engine)} does not match envelope engine ${quoted(body.engine)}`;
  },
  ({ body, work }) =>
    work.bundleConfigHash === body.bundleConfigHash
      ? undefined
      : `bundle_config_hash ${quoted(work.bundleConfigHash)} does not match envelope`,
  ({ work }) =>
    work.has(F.payloadRef) || work.has(F.queryPayloadRef)
      ? `unresolved payload reference on ${work.workItemId}`
      : undefined,
];

/** Fields whose binary values have limits; `generate` has others, later. */
const WALKED = [F.item, F.queryItem, F.scoreItems] as const;

async function itemsFault(body: IngestBody, items: readonly WorkItem[], pace: Pace): Promise<string | undefined> {
  const used = new Set<number>();
  for (const work of items) {
    const item = { body, work, count: items.length, used };
    for (const rule of ITEM_RULES) {
      const fault = rule(item);
      if (fault !== undefined) return `${BINDING}${fault}`;
    }
    for (const field of WALKED) {
      if (!work.has(field)) continue;
      const fault = mediaTooLarge(work.reader(field));
      if (fault !== undefined) return fault;
      const turn = pace.worked(work.size(field));
      if (turn !== undefined) await turn;
    }
  }
  return undefined;
}
