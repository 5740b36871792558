/** What a backend makes of a request's frame (spec/ipc.md 1.3, 2.1): hang up, refuse, or run a method. The server's half. */
import { errorText } from "../../runtime/errors.ts";
import { BAD_EXTENSION, BAD_KEY, BAD_UTF8, MsgpackReader } from "../msgpack/reader.ts";
import { bodyFault, printed } from "./body_check.ts";
import {
  ApplyModelConfigRequest,
  DrainRequest,
  EnsureModelReadyRequest,
  IPC_VERSION,
  NumericalProfileSnapshotRequest,
  PingRequest,
  ProcessEncodeBatchRequest,
  ProcessExtractBatchRequest,
  ProcessGenerateRequest,
  ProcessScoreBatchRequest,
  ReplaceModelConfigsRequest,
  RequestEnvelope,
  RunBatchRequest,
  SetPinnedModelsRequest,
  SignalGenerateCancelRequest,
  WorkerCapabilitiesRequest,
} from "./schema.ts";
import type { Struct } from "./struct.ts";

/** Body of each method's request. Drain is read leniently: whatever its body holds, it fits. */
const BODIES: Readonly<Record<string, Struct>> = {
  Ping: PingRequest,
  EnsureModelReady: EnsureModelReadyRequest,
  WorkerCapabilities: WorkerCapabilitiesRequest,
  SignalGenerateCancel: SignalGenerateCancelRequest,
  ApplyModelConfig: ApplyModelConfigRequest,
  ReplaceModelConfigs: ReplaceModelConfigsRequest,
  SetPinnedModels: SetPinnedModelsRequest,
  Drain: DrainRequest,
  RunBatch: RunBatchRequest,
  ProcessEncodeBatch: ProcessEncodeBatchRequest,
  ProcessScoreBatch: ProcessScoreBatchRequest,
  ProcessExtractBatch: ProcessExtractBatchRequest,
  ProcessGenerate: ProcessGenerateRequest,
  // Beyond the twelve methods (3.13); a backend may know them.
  NumericalProfileSnapshot: NumericalProfileSnapshotRequest,
  RunBatchWithExecutionAuthorityV1: RunBatchRequest,
  RunBatchWithNumericalAdmissionV1: RunBatchRequest,
  ProcessGenerateWithExecutionAuthorityV1: ProcessGenerateRequest,
};

/** What is to be done with a frame. */
export type RequestVerdict =
  | { readonly kind: "hang_up"; readonly reason: string }
  /** `requestId` is the MessagePack that is echoed: what came may be no text. */
  | { readonly kind: "refuse"; readonly requestId: Uint8Array; readonly error: string }
  | {
    readonly kind: "call";
    readonly method: string;
    readonly requestId: string;
    readonly acceptsChunks: boolean;
    /** MessagePack of the body, a map. */
    readonly body: Uint8Array;
  };

const EMPTY_TEXT = Uint8Array.of(0xa0);
const EMPTY_MAP = Uint8Array.of(0x80);
const F = RequestEnvelope.index;

/** Judges the body of one frame; the method and its body are judged by {@link callFault}. */
export function judgeRequest(frame: Uint8Array): RequestVerdict {
  const fault = frameFault(frame);
  if (fault !== undefined) return { kind: "hang_up", reason: fault };
  const fields = envelopeFields(frame);
  const requestId = fields[F.request_id] ?? EMPTY_TEXT;
  const refuse = (error: string): RequestVerdict => ({ kind: "refuse", requestId, error });
  const version = fields[F.version];
  if (version === undefined || !isVersion(new MsgpackReader(version))) {
    return refuse(`unsupported version ${version === undefined ? "None" : printed(new MsgpackReader(version))}`);
  }
  const method = fields[F.method];
  const body = bodyOf(fields[F.body]);
  if (method === undefined || body === undefined || !isStr(method) || !isStr(requestId)) {
    return refuse("envelope missing fields");
  }
  return {
    kind: "call",
    method: new MsgpackReader(method).text(),
    requestId: new MsgpackReader(requestId).text(),
    acceptsChunks: fields[F.accepts_ipc_response_chunks_v1]?.[0] === 0xc3,
    body,
  };
}

/** What is wrong with a call, as the error of its answer: an unknown method, or a body that does not fit it. */
export function callFault(method: string, body: Uint8Array): string | undefined {
  const of = Object.hasOwn(BODIES, method) ? BODIES[method] : undefined;
  if (of === undefined) return `unknown method ${method}`;
  if (of === DrainRequest) return undefined;
  const fault = bodyFault(new MsgpackReader(body), of);
  return fault === undefined ? undefined : `bad body for ${method}: ${fault}`;
}

/** Why the connection must be closed without an answer. */
function frameFault(frame: Uint8Array): string | undefined {
  const reader = new MsgpackReader(frame);
  try {
    const flags = reader.skip();
    reader.expectEnd();
    if ((flags & BAD_KEY) !== 0) return "a map key that is neither str nor bin";
    if ((flags & BAD_UTF8) !== 0) return "a str that is not UTF-8";
    if ((flags & BAD_EXTENSION) !== 0) return "an extension that cannot be read";
  } catch (thrown) {
    return errorText(thrown);
  }
  return new MsgpackReader(frame).kind() === "map" ? undefined : "the envelope is no map";
}

/** MessagePack of each known field; of one that comes twice the last. */
function envelopeFields(frame: Uint8Array): (Uint8Array | undefined)[] {
  const reader = new MsgpackReader(frame);
  const fields: (Uint8Array | undefined)[] = [];
  for (let left = reader.mapHeader(); left > 0; left--) {
    const isText = reader.kind() === "str";
    const named = reader.keySpan() && isText;
    const field = named ? RequestEnvelope.keys.indexOf(frame, reader.spanAt, reader.spanLength) : -1;
    const start = reader.pos;
    reader.skip();
    if (field >= 0) fields[field] = frame.subarray(start, reader.pos);
  }
  return fields;
}

/** The server compares loosely: `true` and 1.0 equal 1. */
function isVersion(reader: MsgpackReader): boolean {
  const kind = reader.kind();
  if (kind === "bool") return reader.bool();
  return kind === "int" || kind === "float" ? reader.float() === IPC_VERSION : false;
}

function isStr(value: Uint8Array): boolean {
  return new MsgpackReader(value).kind() === "str";
}

/** The body's map; every empty value counts as an empty one, anything else is no body. */
function bodyOf(value: Uint8Array | undefined): Uint8Array | undefined {
  if (value === undefined) return EMPTY_MAP;
  const reader = new MsgpackReader(value);
  switch (reader.kind()) {
    case "map":
      return value;
    case "nil":
      return EMPTY_MAP;
    case "bool":
      return reader.bool() ? undefined : EMPTY_MAP;
    case "int":
    case "float":
      return reader.float() === 0 ? EMPTY_MAP : undefined;
    case "array":
      return reader.arrayHeader() === 0 ? EMPTY_MAP : undefined;
    case "str":
      reader.textSpan();
      return reader.spanLength === 0 ? EMPTY_MAP : undefined;
    case "bin":
      reader.binSpan();
      return reader.spanLength === 0 ? EMPTY_MAP : undefined;
    case "ext":
      return undefined;
  }
}
