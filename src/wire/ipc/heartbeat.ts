/** Ping, WorkerCapabilities, SignalGenerateCancel, Drain (spec/ipc.md 3.1, 3.7, 3.8, 3.12): the small answers. */
import type { MsgpackReader } from "../msgpack/reader.ts";
import { DrainResponse, PingResponse, SignalGenerateCancelResponse, WorkerCapabilitiesResponse } from "./schema.ts";
import { readStruct, readTexts } from "./struct.ts";

/** Answer of Ping. */
export interface PingAnswer {
  /** Echo of the request's Unix milliseconds. */
  readonly timestampMs: number;
  readonly workerId: string;
  readonly ready: boolean;
  /** Hash of the backend's configuration; "" without a bundle. */
  readonly bundleConfigHash: string;
  readonly loadedModels: readonly string[];
  readonly loadingModels: readonly string[];
}

const P = PingResponse.index;

/** Reads a Ping answer. */
export function readPingAnswer(reader: MsgpackReader): PingAnswer {
  let timestampMs = 0, workerId = "", ready = false, bundleConfigHash = "";
  let loadedModels: readonly string[] = [], loadingModels: readonly string[] = [];
  readStruct(reader, PingResponse, (field) => {
    switch (field) {
      case P.timestamp_ms:
        timestampMs = reader.float();
        return;
      case P.worker_id:
        workerId = reader.text();
        return;
      case P.ready:
        ready = reader.bool();
        return;
      case P.bundle_config_hash:
        bundleConfigHash = reader.text();
        return;
      case P.loaded_models:
        loadedModels = readTexts(reader);
        return;
      case P.loading_models:
        loadingModels = readTexts(reader);
    }
  });
  return { timestampMs, workerId, ready, bundleConfigHash, loadedModels, loadingModels };
}

/** Answer of WorkerCapabilities. */
export interface WorkerCapabilities {
  readonly supportsExecutionAuthorityV1: boolean;
  readonly supportsNumericalAdmissionV1: boolean;
  readonly hasGenerationModels: boolean;
  readonly generationModels: readonly string[];
  readonly supportedModels: readonly string[];
  readonly loadedModels: readonly string[];
}

const C = WorkerCapabilitiesResponse.index;

/** Reads a WorkerCapabilities answer. */
export function readWorkerCapabilities(reader: MsgpackReader): WorkerCapabilities {
  const flags: boolean[] = [];
  const lists: string[][] = [];
  readStruct(reader, WorkerCapabilitiesResponse, (field) => {
    if (field <= C.has_generation_models) flags[field] = reader.bool();
    else lists[field] = readTexts(reader);
  });
  return {
    supportsExecutionAuthorityV1: flags[C.supports_execution_authority_v1] ?? false,
    supportsNumericalAdmissionV1: flags[C.supports_numerical_admission_v1] ?? false,
    hasGenerationModels: flags[C.has_generation_models] ?? false,
    generationModels: lists[C.generation_models] ?? [],
    supportedModels: lists[C.supported_models] ?? [],
    loadedModels: lists[C.loaded_models] ?? [],
  };
}

/** Reads the `matched` of a SignalGenerateCancel answer. */
export function readCancelMatched(reader: MsgpackReader): boolean {
  let matched = false;
  readStruct(reader, SignalGenerateCancelResponse, () => matched = reader.bool());
  return matched;
}

/** Reads the `acknowledged` of a Drain answer. */
export function readDrainAcknowledged(reader: MsgpackReader): boolean {
  let acknowledged = false;
  readStruct(reader, DrainResponse, () => acknowledged = reader.bool());
  return acknowledged;
}
