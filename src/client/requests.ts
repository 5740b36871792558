/** What callers ask for, and the request bodies made of it (spec/local-ingest.md 4 to 7). */
import { payloadDigest } from "../wire/ingest/digest.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";
import { EMPTY_BODY, type IngestBody } from "../wire/ingest/request.ts";
import { encodeValue, type PlainValue } from "./values.ts";

/** Where work goes: the lane of the sidecar, and what its items must say about it. */
export interface Route {
  /** Pool of the lane (`SIE_POOL`). */
  readonly pool: string;
  /** Machine profile of the lane; informational. */
  readonly machineProfile: string;
  /** Bundle of the lane; part of the opaque route name only. */
  readonly bundle: string;
  /** Informational; empty by default. */
  readonly engine?: string;
  /** The configuration hash that the worker must run under; empty (any) by default. */
  readonly bundleConfigHash?: string;
}

/** One input of a batch call. Which members count depends on the operation. */
export interface WorkInput {
  /** Encode and extract: the item, e.g. `{ text: "…" }`. */
  readonly item?: PlainValue;
  /** Score: the query. */
  readonly queryItem?: PlainValue;
  /** Score: the items to compare with it, e.g. `[{ id: "a", text: "…" }]`. */
  readonly scoreItems?: readonly PlainValue[];
  /** Encode: `dense`, `sparse`, `multivector`. */
  readonly outputTypes?: readonly string[];
  readonly instruction?: string;
  readonly isQuery?: boolean;
  readonly options?: { readonly [key: string]: PlainValue };
  /** Extract: the labels to look for. */
  readonly labels?: readonly string[];
  readonly outputSchema?: { readonly [key: string]: PlainValue };
}

/** Trace context of the caller, as W3C headers have it. */
export interface TraceContext {
  readonly traceparent?: string;
  readonly tracestate?: string;
}

/** A batch call. */
export interface WorkRequest extends TraceContext {
  readonly operation: "encode" | "score" | "extract";
  readonly model: string;
  readonly profile?: string;
  /** 1 to 4096. */
  readonly inputs: readonly WorkInput[];
  /** 1 to 128 bytes without white space; a fresh one by default. */
  readonly requestId?: string;
  /** Limit of the call in milliseconds, at most 300,000, which is the default. */
  readonly timeoutMs?: number;
}

/** A generation. */
export interface GenerateRequest extends TraceContext {
  readonly model: string;
  readonly profile?: string;
  /** `prompt` or `messages`, `max_new_tokens`, and what else the backend takes. */
  readonly parameters: { readonly [key: string]: PlainValue };
  readonly options?: { readonly [key: string]: PlainValue };
  /** 1 to 128 bytes without white space; a fresh one by default. Unique in the sidecar while the generation runs. */
  readonly requestId?: string;
  /** Limit in milliseconds; without one the generation takes as long as it takes. */
  readonly timeoutMs?: number;
}

/** What stands in the `dispatch_context` of a caller that has none of its own. */
const INTERNAL_CONTEXT = encodeValue({ source: "internal" });
/** `params` are opaque to the sidecar; an empty map says nothing. */
const NO_PARAMS = encodeValue({});

type Fields = { readonly [key: string]: PlainValue | undefined };

/** What the parts of a body that all calls share are made of. */
interface Call extends TraceContext {
  readonly model: string;
  readonly profile?: string;
  readonly timeoutMs?: number;
}

/**
 * The body of a batch call.
 *
 * @param timestamp seconds since the Unix epoch, for the items' queue time
 */
export function workBody(route: Route, request: WorkRequest, requestId: string, timestamp: number): IngestBody {
  const items = request.inputs.map((input): Fields => ({
    item: input.item,
    query_item: input.queryItem,
    score_items: input.scoreItems,
    output_types: input.outputTypes,
    instruction: input.instruction,
    is_query: input.isQuery,
    options: input.options,
    labels: input.labels,
    output_schema: input.outputSchema,
  }));
  return bodyOf(route, request, request.operation, requestId, timestamp, items);
}

/** The body of a generation. */
export function generateBody(
  route: Route,
  request: GenerateRequest,
  requestId: string,
  timestamp: number,
): IngestBody {
  const item: Fields = { generate: request.parameters, options: request.options };
  return bodyOf(route, request, "generate", requestId, timestamp, [item]);
}

function bodyOf(
  route: Route,
  call: Call,
  endpoint: string,
  requestId: string,
  timestamp: number,
  items: readonly Fields[],
): IngestBody {
  const shared: Fields = {
    request_id: requestId,
    total_items: items.length,
    operation: endpoint,
    model_id: call.model,
    profile_id: call.profile ?? "default",
    engine: route.engine ?? "",
    pool_name: route.pool,
    admission_pool: route.pool,
    machine_profile: route.machineProfile,
    bundle_config_hash: route.bundleConfigHash ?? "",
    router_id: "local-client",
    reply_subject: "",
    timestamp,
  };
  const works = items.map((item, index): PlainValue => ({
    work_item_id: `${requestId}.${index}`,
    item_index: index,
    ...shared,
    ...item,
  }));
  const body: IngestBody = {
    ...EMPTY_BODY,
    lane: `${route.pool}|${route.machineProfile}|${route.bundle}`,
    endpoint,
    model: call.model,
    engine: route.engine ?? "",
    admissionPool: route.pool,
    bundleConfigHash: route.bundleConfigHash ?? "",
    requestId,
    params: NO_PARAMS,
    items: encodeValue(works),
    dispatchContext: INTERNAL_CONTEXT,
    timeoutMs: BigInt(call.timeoutMs ?? 0),
    traceparent: bounded(call.traceparent, IngestLimits.traceparentUsedBytes),
    tracestate: bounded(call.tracestate, IngestLimits.tracestateUsedBytes),
  };
  return { ...body, payloadDigest: payloadDigest(body) };
}

/** Tracing never makes a call fail: a field that is too long is left out. */
function bounded(text: string | undefined, most: number): string | undefined {
  return text !== undefined && new TextEncoder().encode(text).length <= most ? text : undefined;
}
