/**
 * Brings what our readers made of an answer, and what a vector says it is, into one form: plain values under the names of the wire,
 * every default filled in, bytes as hexadecimal text, numbers of float lists as float32.
 */
import type { BatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import type { GenerateEvent } from "../../src/wire/ipc/generate_event.ts";
import type { PingAnswer, WorkerCapabilities } from "../../src/wire/ipc/heartbeat.ts";
import {
  ApplyModelConfigMethod,
  Drain,
  EnsureModelReady,
  GetNumericalSnapshot,
  GetWorkerCapabilities,
  type IpcMethod,
  Ping,
  ProcessEncodeBatch,
  ProcessExtractBatch,
  ProcessGenerate,
  ProcessScoreBatch,
  ReplaceModelConfigsMethod,
  RunBatch,
  SetPinnedModels,
  SignalGenerateCancel,
} from "../../src/wire/ipc/methods.ts";
import type { ModelConfigAnswer, PinnedModelsAnswer } from "../../src/wire/ipc/model_config.ts";
import type { NumericalProfile, NumericalSnapshot } from "../../src/wire/ipc/numerical_profiles.ts";
import type { RawOutput } from "../../src/wire/ipc/raw_output.ts";
import type { ModelReadiness } from "../../src/wire/ipc/readiness.ts";
import {
  ApplyModelConfigResponse,
  BatchedF16Item,
  BatchedF16Output,
  DenseOutputStruct,
  DrainResponse,
  EnsureModelReadyResponse,
  GenerateEventFrame,
  ItemOutcomeStruct,
  ModelDescriptor,
  MultivectorOutputStruct,
  NumericalProfileObservation,
  NumericalProfileSnapshotResponse,
  PingResponse,
  ReplaceModelConfigsResponse,
  ScoreOutputStruct,
  SetPinnedModelsResponse,
  SignalGenerateCancelResponse,
  SparseOutputStruct,
  WorkerCapabilitiesResponse,
} from "../../src/wire/ipc/schema.ts";
import type { Struct } from "../../src/wire/ipc/struct.ts";
import { decodeNotation } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";

type Plain = Record<string, unknown>;

/** A method with both forms of its answers. */
export interface AnswerForm<Answer = unknown> {
  readonly method: IpcMethod<never, Answer>;
  /** From our reader. */
  readonly ofAnswer: (answer: Answer) => unknown;
  /** From a vector's body. */
  readonly ofVector: (body: Plain) => unknown;
}

function form<Answer>(
  method: IpcMethod<never, Answer>,
  ofVector: (body: Plain) => unknown,
  ofAnswer: (answer: Answer) => unknown,
): AnswerForm {
  return { method, ofAnswer: ofAnswer as (answer: unknown) => unknown, ofVector };
}

/** All methods by name. */
export const ANSWER_FORMS: Readonly<Record<string, AnswerForm>> = {
  Ping: form(Ping, (body) => filled(PingResponse, body), pingForm),
  EnsureModelReady: form(EnsureModelReady, readinessVector, readinessForm),
  WorkerCapabilities: form(GetWorkerCapabilities, (body) => filled(WorkerCapabilitiesResponse, body), capabilitiesForm),
  SignalGenerateCancel: form(
    SignalGenerateCancel,
    (body) => filled(SignalGenerateCancelResponse, body),
    (matched) => ({ matched }),
  ),
  Drain: form(Drain, (body) => filled(DrainResponse, body), (acknowledged) => ({ acknowledged })),
  ApplyModelConfig: form(
    ApplyModelConfigMethod,
    (body) => filled(ApplyModelConfigResponse, body),
    (answer) => {
      const { applied_models: _models, applied_profiles: _profiles, ...rest } = configForm(answer);
      return rest;
    },
  ),
  ReplaceModelConfigs: form(
    ReplaceModelConfigsMethod,
    (body) => filled(ReplaceModelConfigsResponse, body),
    configForm,
  ),
  SetPinnedModels: form(
    SetPinnedModels,
    (body) => filled(SetPinnedModelsResponse, body),
    (answer: PinnedModelsAnswer) => ({ applied: answer.applied, pinned_count: answer.pinnedCount }),
  ),
  NumericalProfileSnapshot: form(GetNumericalSnapshot, snapshotVector, snapshotForm),
  RunBatch: form(RunBatch, batchVector, batchForm),
  ProcessEncodeBatch: form(ProcessEncodeBatch, batchVector, batchForm),
  ProcessScoreBatch: form(ProcessScoreBatch, batchVector, batchForm),
  ProcessExtractBatch: form(ProcessExtractBatch, batchVector, batchForm),
  ProcessGenerate: form(ProcessGenerate, eventVector, eventForm),
};

/** A generation event as a vector has it. */
export function eventVector(body: Plain): unknown {
  const { kind, reply_subject, payload, delay_ms } = filled(GenerateEventFrame, body);
  if (kind === "publish") return { kind, reply_subject, payload };
  return kind === "nak" ? { kind, delay_ms } : { kind };
}

/** A generation event as our reader has it. */
export function eventForm(event: GenerateEvent): unknown {
  switch (event.kind) {
    case "publish":
      return { kind: event.kind, reply_subject: event.replySubject, payload: toHex(event.payload) };
    case "nak":
      return { kind: event.kind, delay_ms: event.delayMs ?? null };
    case "unknown":
      return { kind: event.name };
    default:
      return { kind: event.kind };
  }
}

/** Known fields only, defaults in place of missing ones, tags of the notation resolved. */
function filled(of: Struct, body: Plain): Plain {
  const plain: Plain = {};
  for (const name of of.names) {
    if (name in body) plain[name] = resolved(body[name]);
    else if (of.fields[name]?.fallback !== undefined) plain[name] = of.fields[name].fallback;
    else throw new Error(`the vector lacks ${of.name}.${name}`);
  }
  return plain;
}

function resolved(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(resolved);
  if (typeof value !== "object" || value === null) return value;
  if ("$bin" in value) return value.$bin;
  if ("$f64" in value) return value.$f64;
  if ("$f32" in value) return value.$f32;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolved(inner)]));
}

function pingForm(answer: PingAnswer): Plain {
  return {
    timestamp_ms: answer.timestampMs,
    worker_id: answer.workerId,
    ready: answer.ready,
    bundle_config_hash: answer.bundleConfigHash,
    loaded_models: answer.loadedModels,
    loading_models: answer.loadingModels,
  };
}

function capabilitiesForm(answer: WorkerCapabilities): Plain {
  return {
    supports_execution_authority_v1: answer.supportsExecutionAuthorityV1,
    supports_numerical_admission_v1: answer.supportsNumericalAdmissionV1,
    has_generation_models: answer.hasGenerationModels,
    generation_models: answer.generationModels,
    supported_models: answer.supportedModels,
    loaded_models: answer.loadedModels,
  };
}

function configForm(answer: ModelConfigAnswer): Plain {
  return {
    applied: answer.applied,
    bundle_config_hash: answer.bundleConfigHash,
    config_version: answer.configVersion,
    applied_models: answer.appliedModels,
    applied_profiles: answer.appliedProfiles,
    unsupported_models: answer.unsupportedModels,
  };
}

function snapshotVector(body: Plain): Plain {
  const { profiles, ...rest } = filled(NumericalProfileSnapshotResponse, body);
  return { ...rest, profiles: (profiles as Plain[]).map((profile) => filled(NumericalProfileObservation, profile)) };
}

function snapshotForm(answer: NumericalSnapshot): Plain {
  return {
    runtime_instance_id: answer.runtimeInstanceId ?? null,
    complete: answer.complete,
    profiles: answer.profiles.map(profileForm),
  };
}

function profileForm({ admission, ...profile }: NumericalProfile): Plain {
  return {
    model_id: profile.modelId,
    local_identity: profile.localIdentity ?? null,
    model_contract_sha256: profile.modelContractSha256 ?? null,
    remote_contract_sha256: profile.remoteContractSha256 ?? null,
    remote_execution_sha256: profile.remoteExecutionSha256 ?? null,
    admission: admission === undefined ? null : {
      sha256: admission.sha256,
      kind: admission.kind,
      local_identities: admission.localIdentities,
      model_contract_sha256: admission.modelContractSha256,
      outputs: admission.outputs,
      expires_at_unix_ms: admission.expiresAtUnixMs,
    },
  };
}

/** Budget and descriptor count only with `ready` (spec/ipc.md 3.2). */
function readinessVector(body: Plain): Plain {
  const { state, batch_budget, descriptor } = filled(EnsureModelReadyResponse, body);
  if (state !== "ready") return { state };
  return { state, batch_budget, descriptor: descriptor === null ? null : filled(ModelDescriptor, descriptor as Plain) };
}

function readinessForm(answer: ModelReadiness): Plain {
  if (answer.state !== "ready") return { state: answer.state };
  const told = answer.descriptor;
  return {
    state: answer.state,
    batch_budget: answer.batchBudget ?? null,
    descriptor: told === undefined ? null : {
      tokenizer_path: told.tokenizerPath ?? null,
      tokenizer_id: told.tokenizerId ?? null,
      max_seq_len: told.maxSeqLen ?? null,
      output_types: told.outputTypes,
      supports_run_batch: told.supportsRunBatch,
      default_query_template: told.defaultQueryTemplate ?? null,
      default_doc_template: told.defaultDocTemplate ?? null,
      max_concurrent_dispatch: told.maxConcurrentDispatch ?? null,
    },
  };
}

function batchVector(body: Plain): Plain {
  const { outcomes, batched_f16_multivectors } = body as { outcomes: Plain[]; batched_f16_multivectors?: Plain[] };
  return {
    outcomes: outcomes.map(outcomeVector),
    batched_f16_multivectors: (batched_f16_multivectors ?? []).map((buffer) => ({
      ...filled(BatchedF16Output, buffer),
      items: (buffer.items as Plain[]).map((item) => filled(BatchedF16Item, item)),
    })),
  };
}

function outcomeVector(outcome: Plain): Plain {
  const { raw_output, units, ...plain } = filled(ItemOutcomeStruct, outcome);
  return {
    ...plain,
    // Nil and empty are the same (4.9).
    result_msgpack: plain.result_msgpack === "" ? null : plain.result_msgpack,
    raw_output: raw_output === null ? null : rawVector(raw_output as Plain),
    units,
  };
}

const MEMBERS: readonly (readonly [string, Struct])[] = [
  ["dense", DenseOutputStruct],
  ["score", ScoreOutputStruct],
  ["sparse", SparseOutputStruct],
  ["multivector", MultivectorOutputStruct],
];

function rawVector(raw: Plain): unknown {
  for (const [name, of] of MEMBERS) {
    if (raw[name] === undefined || raw[name] === null) continue;
    const member = filled(of, raw[name] as Plain);
    for (const key of ["values", "scores"]) {
      if (key in member) member[key] = (member[key] as number[]).map(Math.fround);
    }
    return { [name]: member };
  }
  return "none";
}

function batchForm(answer: BatchOutcome): Plain {
  const text = (at: number, length: number) => new TextDecoder().decode(answer.bytes.subarray(at, at + length));
  return {
    outcomes: answer.outcomes.map((outcome) => ({
      work_item_id: text(outcome.workItemIdAt, outcome.workItemIdLength),
      request_id: text(outcome.requestIdAt, outcome.requestIdLength),
      item_index: outcome.itemIndex,
      disposition: outcome.disposition,
      nak_delay_ms: outcome.nakDelayMs ?? null,
      result_msgpack: outcome.resultLength === 0
        ? null
        : toHex(answer.bytes.subarray(outcome.resultAt, outcome.resultAt + outcome.resultLength)),
      error: outcome.error ?? null,
      error_code: outcome.errorCode ?? null,
      inference_ms: outcome.inferenceMs ?? null,
      tokenization_ms: outcome.tokenizationMs ?? null,
      postprocessing_ms: outcome.postprocessingMs ?? null,
      retry_after_s: outcome.retryAfterS ?? null,
      raw_output: outcome.rawOutput === undefined ? null : rawForm(outcome.rawOutput),
      units: outcome.unitsLength === 0
        ? null
        : decodeNotation(answer.bytes.subarray(outcome.unitsAt, outcome.unitsAt + outcome.unitsLength)),
    })),
    batched_f16_multivectors: answer.batchedF16.map((buffer) => ({
      values_f16: toHex(buffer.valuesF16),
      items: buffer.items.map((item) => ({
        work_item_id: item.workItemId,
        byte_offset: item.byteOffset,
        byte_len: item.byteLength,
        num_tokens: item.numTokens,
        token_dims: item.tokenDims,
      })),
    })),
  };
}

function rawForm(raw: RawOutput): unknown {
  switch (raw.kind) {
    case "dense":
      return { dense: { values: [...raw.values], dim: raw.dim, normalize: raw.normalize } };
    case "score":
      return { score: { scores: [...raw.scores], item_ids: raw.itemIds } };
    case "sparse":
      return { sparse: { indices: [...raw.indices], values: [...raw.values], dims: raw.dims ?? null } };
    case "multivector":
      return {
        multivector: {
          values: [...raw.values],
          num_tokens: raw.numTokens,
          token_dims: raw.tokenDims,
          dtype: raw.dtype,
          values_f16: toHex(raw.valuesF16),
        },
      };
    case "none":
      return "none";
  }
}
