/**
 * The publications of a generation as a gateway reads them (spec/generation.md 6 and 9): every field typed and checked. What is handed
 * on to the client as it is (logprobs, candidates, tool calls) stays a span of MessagePack. The sidecar itself looks at less
 * (`wire/generate_chunk.ts`).
 */
import { defaulted, optional, readStruct, required, type Struct, struct } from "../wire/ipc/struct.ts";
import { MsgpackError } from "../wire/msgpack/errors.ts";
import { KeyTable, textOf } from "../wire/msgpack/keys.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { inboxMessageKind } from "../wire/work_result_reader.ts";

/** How a generation may end. */
export const FINISH_REASONS = [
  "stop",
  "length",
  "tool_calls",
  "content_filter",
  "function_call",
  "error",
  "cancelled",
] as const;

/** One of {@link FINISH_REASONS}. */
export type FinishReason = (typeof FINISH_REASONS)[number];

/** What a generation used, in tokens. */
export interface TokenUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly totalTokens: number;
  /** Of the prompt's. */
  readonly cachedTokens: number | undefined;
  /** MessagePack, as the backend got it from elsewhere. */
  readonly upstreamUsage: Uint8Array | undefined;
  /** MessagePack. */
  readonly images: Uint8Array | undefined;
}

/** Why a generation failed. */
export interface PublicationError {
  readonly code: string;
  readonly message: string;
  /** The parameter at fault. */
  readonly param: string | undefined;
  readonly retryAfterS: number | undefined;
}

/** A piece of a generation. What is absent is undefined; spans are views of the bytes read. */
export interface WorkerChunk {
  readonly kind: "chunk";
  readonly requestId: string;
  readonly attemptId: string;
  /** 0 to 2^32 - 1. */
  readonly seq: number;
  readonly textDelta: string;
  readonly done: boolean;
  readonly isFirst: boolean | undefined;
  readonly finishReason: FinishReason | undefined;
  readonly usage: TokenUsage | undefined;
  /** Milliseconds until the first token. */
  readonly ttftMs: number | undefined;
  readonly error: PublicationError | undefined;
  readonly logprobs: Uint8Array | undefined;
  readonly candidates: Uint8Array | undefined;
  readonly choiceIndex: number | undefined;
  readonly reasoningDelta: string | undefined;
  readonly toolCalls: Uint8Array | undefined;
  /** Of the configuration it ran with; missing, it cannot be attested. */
  readonly executedBundleConfigHash: string | undefined;
}

/** A worker's refusal, which asks the gateway to go elsewhere. */
export interface WorkerNak {
  readonly kind: "nak";
  readonly requestId: string;
  readonly attemptId: string;
  /** `model_not_loaded`, `kv_budget`, `worker_shutting_down`, … */
  readonly reason: string;
  readonly executedBundleConfigHash: string | undefined;
}

const ChunkStruct = struct("chunk", {
  kind: required("str"),
  request_id: required("str"),
  attempt_id: required("str"),
  seq: required("int"),
  text_delta: defaulted("str", ""),
  done: required("bool"),
  is_first: optional("bool"),
  finish_reason: optional("str"),
  usage: optional("usage"),
  ttft_ms: optional("float"),
  error: optional("error"),
  logprobs: optional("list"),
  candidates: optional("list"),
  choice_index: optional("int"),
  reasoning_delta: optional("str"),
  tool_calls: optional("list"),
  executed_bundle_config_hash: optional("str"),
});

const NakStruct = struct("nak", {
  kind: required("str"),
  request_id: required("str"),
  attempt_id: required("str"),
  reason: defaulted("str", ""),
  executed_bundle_config_hash: optional("str"),
});

const UsageStruct = struct("usage", {
  prompt_tokens: required("int"),
  completion_tokens: required("int"),
  total_tokens: required("int"),
  prompt_tokens_details: optional("details"),
  upstream_usage: optional("map"),
  images: optional("any"),
});

const DetailsStruct = struct("prompt_tokens_details", { cached_tokens: optional("int") });

const ErrorStruct = struct("error", {
  code: required("str"),
  message: required("str"),
  param: optional("str"),
  retry_after_s: optional("int"),
});

const U32_MAX = 0xffffffff;
const C = ChunkStruct.index, N = NakStruct.index, U = UsageStruct.index, E = ErrorStruct.index;
const finishReasons = new KeyTable(FINISH_REASONS);

/**
 * Reads a publication.
 *
 * @throws MsgpackError for whatever makes a gateway drop it: no map, a key that is no str, another kind, a field that is missing or
 * comes twice or has another type, an unknown `finish_reason`, a `ttft_ms` that is not finite
 */
export function readWorkerPublication(bytes: Uint8Array): WorkerChunk | WorkerNak {
  const reader = new MsgpackReader(bytes);
  const end = requireTextKeys(reader);
  const kind = inboxMessageKind(bytes);
  if (kind !== "chunk" && kind !== "nak") {
    throw new MsgpackError("field", "a message that is no publication: its kind is neither chunk nor nak");
  }
  const body = new MsgpackReader(bytes, 0, end);
  return kind === "chunk" ? readChunk(body) : readNak(body);
}

/** @returns the offset after the map */
function requireTextKeys(reader: MsgpackReader): number {
  for (let left = reader.mapHeader(); left > 0; left--) {
    const kind = reader.kind();
    if (kind !== "str") throw new MsgpackError("type", `a publication with a key of type ${kind}, not str`);
    reader.skip();
    reader.skip();
  }
  return reader.pos;
}

function readChunk(reader: MsgpackReader): WorkerChunk {
  const texts: string[] = [], counts: number[] = [], flags: boolean[] = [], spans: Uint8Array[] = [];
  let finishReason: FinishReason | undefined, usage: TokenUsage | undefined, error: PublicationError | undefined;
  let ttftMs: number | undefined;
  readPresent(reader, ChunkStruct, (field) => {
    switch (field) {
      case C.seq:
      case C.choice_index:
        counts[field] = reader.unsigned(U32_MAX);
        return;
      case C.done:
      case C.is_first:
        flags[field] = reader.bool();
        return;
      case C.finish_reason:
        finishReason = readFinishReason(reader);
        return;
      case C.usage:
        usage = readUsage(reader);
        return;
      case C.ttft_ms:
        ttftMs = readFinite(reader);
        return;
      case C.error:
        error = readError(reader);
        return;
      case C.logprobs:
      case C.candidates:
      case C.tool_calls:
        spans[field] = readSpan(reader);
        return;
      default:
        texts[field] = reader.text();
    }
  });
  return {
    kind: "chunk",
    requestId: texts[C.request_id] ?? "",
    attemptId: texts[C.attempt_id] ?? "",
    seq: counts[C.seq] ?? 0,
    textDelta: texts[C.text_delta] ?? "",
    done: flags[C.done] ?? false,
    isFirst: flags[C.is_first],
    finishReason,
    usage,
    ttftMs,
    error,
    logprobs: spans[C.logprobs],
    candidates: spans[C.candidates],
    choiceIndex: counts[C.choice_index],
    reasoningDelta: texts[C.reasoning_delta],
    toolCalls: spans[C.tool_calls],
    executedBundleConfigHash: texts[C.executed_bundle_config_hash],
  };
}

function readNak(reader: MsgpackReader): WorkerNak {
  const texts: string[] = [];
  readPresent(reader, NakStruct, (field) => texts[field] = reader.text());
  return {
    kind: "nak",
    requestId: texts[N.request_id] ?? "",
    attemptId: texts[N.attempt_id] ?? "",
    reason: texts[N.reason] ?? "",
    executedBundleConfigHash: texts[N.executed_bundle_config_hash],
  };
}

function readUsage(reader: MsgpackReader): TokenUsage {
  const counts: number[] = [], spans: Uint8Array[] = [];
  let cachedTokens: number | undefined;
  readPresent(reader, UsageStruct, (field) => {
    if (field === U.upstream_usage || field === U.images) spans[field] = readSpan(reader);
    else if (field !== U.prompt_tokens_details) counts[field] = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else readPresent(reader, DetailsStruct, () => cachedTokens = reader.unsigned(Number.MAX_SAFE_INTEGER));
  });
  return {
    promptTokens: counts[U.prompt_tokens] ?? 0,
    completionTokens: counts[U.completion_tokens] ?? 0,
    totalTokens: counts[U.total_tokens] ?? 0,
    cachedTokens,
    upstreamUsage: spans[U.upstream_usage],
    images: spans[U.images],
  };
}

function readError(reader: MsgpackReader): PublicationError {
  const texts: string[] = [];
  let retryAfterS: number | undefined;
  readPresent(reader, ErrorStruct, (field) => {
    if (field === E.retry_after_s) retryAfterS = reader.unsigned(U32_MAX);
    else texts[field] = reader.text();
  });
  return { code: texts[E.code] ?? "", message: texts[E.message] ?? "", param: texts[E.param], retryAfterS };
}

/** As `readStruct`, but an optional field that is nil counts as absent. */
function readPresent(reader: MsgpackReader, of: Struct, read: (field: number) => void): void {
  readStruct(reader, of, (field) => {
    const isOptional = of.fields[of.names[field] ?? ""]?.fallback === null;
    if (!isOptional || !reader.nil()) read(field);
  });
}

function readFinishReason(reader: MsgpackReader): FinishReason {
  reader.textSpan();
  const reason = FINISH_REASONS[finishReasons.indexOf(reader.bytes, reader.spanAt, reader.spanLength)];
  if (reason !== undefined) return reason;
  const text = textOf(reader.bytes, reader.spanAt, Math.min(reader.spanLength, 40));
  throw new MsgpackError("range", `unknown finish reason '${text}'`);
}

function readFinite(reader: MsgpackReader): number {
  const value = reader.float();
  if (!Number.isFinite(value)) throw new MsgpackError("range", `${value} is no finite number`);
  return value;
}

function readSpan(reader: MsgpackReader): Uint8Array {
  const start = reader.pos;
  reader.skip();
  return reader.bytes.subarray(start, reader.pos);
}
