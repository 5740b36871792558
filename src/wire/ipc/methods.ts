/** The methods of the IPC (spec/ipc.md 3) as typed descriptors: name, writer of the request's body, reader of the answer's. */
import type { MsgpackReader } from "../msgpack/reader.ts";
import { encodedText, type MsgpackWriter } from "../msgpack/writer.ts";
import type { BatchEntry, BatchOperation } from "./batch_items.ts";
import { type BatchOutcome, readBatchOutcome } from "./batch_outcome.ts";
import { type RunBatchBody, writeProcessBatchBody, writeRunBatchBody } from "./batch_requests.ts";
import { type GenerateEvent, type GenerateRequest, readGenerateEvent, writeGenerateRequest } from "./generate_event.ts";
import {
  type PingAnswer,
  readCancelMatched,
  readDrainAcknowledged,
  readPingAnswer,
  readWorkerCapabilities,
  type WorkerCapabilities,
} from "./heartbeat.ts";
import {
  type ApplyModelConfig,
  type ModelConfigAnswer,
  type PinnedModelsAnswer,
  readApplyModelConfigAnswer,
  readPinnedModelsAnswer,
  readReplaceModelConfigsAnswer,
  type ReplaceModelConfigs,
  writeApplyModelConfig,
  writeReplaceModelConfigs,
  writeSetPinnedModels,
} from "./model_config.ts";
import { type NumericalSnapshot, readNumericalSnapshot } from "./numerical_profiles.ts";
import { type ModelReadiness, readModelReadiness } from "./readiness.ts";
import {
  DrainRequest,
  EnsureModelReadyRequest,
  NumericalProfileSnapshotRequest,
  PingRequest,
  SignalGenerateCancelRequest,
  WorkerCapabilitiesRequest,
} from "./schema.ts";

/** One method: how its request is written and its answer read. */
export interface IpcMethod<Request, Answer> {
  readonly name: string;
  /** The name as encoded text. */
  readonly encodedName: Uint8Array;
  /** Whether the answer may come in chunks (2.1): all but ProcessGenerate. */
  readonly acceptsChunks: boolean;
  writeBody(writer: MsgpackWriter, request: Request): void;
  /** Reads the body at the reader's position. The answer may keep views of the reader's bytes. */
  readBody(reader: MsgpackReader): Answer;
}

function method<Request, Answer>(
  name: string,
  writeBody: IpcMethod<Request, Answer>["writeBody"],
  readBody: IpcMethod<Request, Answer>["readBody"],
  acceptsChunks = true,
): IpcMethod<Request, Answer> {
  return { name, encodedName: encodedText(name), acceptsChunks, writeBody, readBody };
}

/** Request: Unix milliseconds. */
export const Ping: IpcMethod<number, PingAnswer> = method("Ping", (writer, timestampMs) => {
  writer.mapHeader(1);
  writer.raw(PingRequest.key.timestamp_ms);
  writer.float64(timestampMs);
}, readPingAnswer);

/** Request: the model id. */
export const EnsureModelReady: IpcMethod<string, ModelReadiness> = method("EnsureModelReady", (writer, modelId) => {
  writer.mapHeader(1);
  writer.raw(EnsureModelReadyRequest.key.model_id);
  writer.text(modelId);
}, readModelReadiness);

export const RunBatch: IpcMethod<RunBatchBody, BatchOutcome> = method("RunBatch", writeRunBatchBody, readBatchOutcome);

/** Request of the three Process…Batch methods, for backends without RunBatch and for tests. */
export interface ProcessBatchBody {
  readonly modelId: string;
  readonly entries: readonly BatchEntry[];
}

function processBatch(name: string, operation: BatchOperation): IpcMethod<ProcessBatchBody, BatchOutcome> {
  return method(
    name,
    (writer, body) => writeProcessBatchBody(writer, operation, body.modelId, body.entries),
    readBatchOutcome,
  );
}

export const ProcessEncodeBatch = processBatch("ProcessEncodeBatch", "encode");
export const ProcessScoreBatch = processBatch("ProcessScoreBatch", "score");
export const ProcessExtractBatch = processBatch("ProcessExtractBatch", "extract");

/** Answered by a stream of events, each an answer of its own. */
export const ProcessGenerate: IpcMethod<GenerateRequest, GenerateEvent> = method(
  "ProcessGenerate",
  writeGenerateRequest,
  readGenerateEvent,
  false,
);

export const GetWorkerCapabilities: IpcMethod<void, WorkerCapabilities> = method(
  "WorkerCapabilities",
  (writer) => writer.mapHeader(WorkerCapabilitiesRequest.names.length),
  readWorkerCapabilities,
);

/** Request: the WorkItem's request id. Answer: whether a live attempt was told to stop. */
export const SignalGenerateCancel: IpcMethod<string, boolean> = method("SignalGenerateCancel", (writer, requestId) => {
  writer.mapHeader(1);
  writer.raw(SignalGenerateCancelRequest.key.request_id);
  writer.text(requestId);
}, readCancelMatched);

export const ApplyModelConfigMethod: IpcMethod<ApplyModelConfig, ModelConfigAnswer> = method(
  "ApplyModelConfig",
  writeApplyModelConfig,
  readApplyModelConfigAnswer,
);

export const ReplaceModelConfigsMethod: IpcMethod<ReplaceModelConfigs, ModelConfigAnswer> = method(
  "ReplaceModelConfigs",
  writeReplaceModelConfigs,
  readReplaceModelConfigsAnswer,
);

/** Request: the whole new set. */
export const SetPinnedModels: IpcMethod<readonly string[], PinnedModelsAnswer> = method(
  "SetPinnedModels",
  writeSetPinnedModels,
  readPinnedModelsAnswer,
);

/** Nothing in the sidecar calls it: for tools, and for the lane of numerical admission to come. */
export const GetNumericalSnapshot: IpcMethod<void, NumericalSnapshot> = method(
  "NumericalProfileSnapshot",
  (writer) => writer.mapHeader(NumericalProfileSnapshotRequest.names.length),
  readNumericalSnapshot,
);

/** Request: milliseconds until running work is cancelled. Answer: acknowledged. */
export const Drain: IpcMethod<number, boolean> = method("Drain", (writer, deadlineMs) => {
  writer.mapHeader(1);
  writer.raw(DrainRequest.key.deadline_ms);
  writer.integer(deadlineMs);
}, readDrainAcknowledged);
