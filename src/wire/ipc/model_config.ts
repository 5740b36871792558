/** ApplyModelConfig, ReplaceModelConfigs and SetPinnedModels (spec/ipc.md 3.10, 3.11, 3.13). */
import type { MsgpackReader } from "../msgpack/reader.ts";
import type { MsgpackWriter } from "../msgpack/writer.ts";
import {
  ApplyModelConfigRequest as ApplyStruct,
  ApplyModelConfigResponse,
  ReplaceModelConfigEntry as EntryStruct,
  ReplaceModelConfigsRequest as ReplaceStruct,
  ReplaceModelConfigsResponse,
  SetPinnedModelsRequest,
  SetPinnedModelsResponse,
} from "./schema.ts";
import { readStruct, readTexts } from "./struct.ts";

/** One model's configuration for a backend. */
export interface ApplyModelConfig {
  readonly bundleId: string;
  readonly modelId: string;
  readonly epoch: number;
  readonly bundleConfigHash: string;
  readonly profilesAdded: readonly string[];
  /** YAML of the one model. */
  readonly modelConfig: string;
  /** Adapter modules that scoped the hash; left out on the wire when undefined. */
  readonly bundleAdapters: readonly string[] | undefined;
}

/** All configurations of a bundle, in place of what the backend has. */
export interface ReplaceModelConfigs {
  readonly bundleId: string;
  readonly epoch: number;
  readonly bundleConfigHash: string;
  readonly models: readonly { readonly modelId: string; readonly modelConfig: string }[];
  readonly bundleAdapters: readonly string[] | undefined;
}

/** What a backend says to either. The lists of applied things are those of ReplaceModelConfigs, and empty otherwise. */
export interface ModelConfigAnswer {
  readonly applied: boolean;
  readonly bundleConfigHash: string;
  readonly configVersion: number;
  readonly appliedModels: readonly string[];
  readonly appliedProfiles: readonly string[];
  readonly unsupportedModels: readonly string[];
}

export function writeApplyModelConfig(writer: MsgpackWriter, request: ApplyModelConfig): void {
  const key = ApplyStruct.key;
  const { bundleAdapters } = request;
  writer.mapHeader(ApplyStruct.names.length - (bundleAdapters === undefined ? 1 : 0));
  writer.raw(key.bundle_id);
  writer.text(request.bundleId);
  writer.raw(key.model_id);
  writer.text(request.modelId);
  writer.raw(key.epoch);
  writer.integer(request.epoch);
  writer.raw(key.bundle_config_hash);
  writer.text(request.bundleConfigHash);
  writer.raw(key.profiles_added);
  writeTexts(writer, request.profilesAdded);
  writer.raw(key.model_config);
  writer.text(request.modelConfig);
  if (bundleAdapters === undefined) return;
  writer.raw(key.bundle_adapters);
  writeTexts(writer, bundleAdapters);
}

export function writeReplaceModelConfigs(writer: MsgpackWriter, request: ReplaceModelConfigs): void {
  const key = ReplaceStruct.key;
  const { bundleAdapters } = request;
  writer.mapHeader(ReplaceStruct.names.length - (bundleAdapters === undefined ? 1 : 0));
  writer.raw(key.bundle_id);
  writer.text(request.bundleId);
  writer.raw(key.epoch);
  writer.integer(request.epoch);
  writer.raw(key.bundle_config_hash);
  writer.text(request.bundleConfigHash);
  writer.raw(key.models);
  writer.arrayHeader(request.models.length);
  for (const model of request.models) {
    writer.mapHeader(EntryStruct.names.length);
    writer.raw(EntryStruct.key.model_id);
    writer.text(model.modelId);
    writer.raw(EntryStruct.key.model_config);
    writer.text(model.modelConfig);
  }
  if (bundleAdapters === undefined) return;
  writer.raw(key.bundle_adapters);
  writeTexts(writer, bundleAdapters);
}

const A = ApplyModelConfigResponse.index;

export function readApplyModelConfigAnswer(reader: MsgpackReader): ModelConfigAnswer {
  let applied = false, bundleConfigHash = "", configVersion = 0;
  let unsupportedModels: readonly string[] = [];
  readStruct(reader, ApplyModelConfigResponse, (field) => {
    if (field === A.applied) applied = reader.bool();
    else if (field === A.bundle_config_hash) bundleConfigHash = reader.text();
    else if (field === A.config_version) configVersion = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else unsupportedModels = readTexts(reader);
  });
  return { applied, bundleConfigHash, configVersion, appliedModels: [], appliedProfiles: [], unsupportedModels };
}

const R = ReplaceModelConfigsResponse.index;

export function readReplaceModelConfigsAnswer(reader: MsgpackReader): ModelConfigAnswer {
  let applied = false, bundleConfigHash = "", configVersion = 0;
  const lists: string[][] = [];
  readStruct(reader, ReplaceModelConfigsResponse, (field) => {
    if (field === R.applied) applied = reader.bool();
    else if (field === R.bundle_config_hash) bundleConfigHash = reader.text();
    else if (field === R.config_version) configVersion = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else lists[field] = readTexts(reader);
  });
  return {
    applied,
    bundleConfigHash,
    configVersion,
    appliedModels: lists[R.applied_models] ?? [],
    appliedProfiles: lists[R.applied_profiles] ?? [],
    unsupportedModels: lists[R.unsupported_models] ?? [],
  };
}

/** Answer of SetPinnedModels. */
export interface PinnedModelsAnswer {
  readonly applied: boolean;
  readonly pinnedCount: number;
}

export function writeSetPinnedModels(writer: MsgpackWriter, models: readonly string[]): void {
  writer.mapHeader(1);
  writer.raw(SetPinnedModelsRequest.key.models);
  writeTexts(writer, models);
}

export function readPinnedModelsAnswer(reader: MsgpackReader): PinnedModelsAnswer {
  let applied = false, pinnedCount = 0;
  readStruct(reader, SetPinnedModelsResponse, (field) => {
    if (field === SetPinnedModelsResponse.index.applied) applied = reader.bool();
    else pinnedCount = reader.unsigned(0xffffffff);
  });
  return { applied, pinnedCount };
}

function writeTexts(writer: MsgpackWriter, texts: readonly string[]): void {
  writer.arrayHeader(texts.length);
  for (const text of texts) writer.text(text);
}
