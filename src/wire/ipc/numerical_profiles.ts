/**
 * NumericalProfileSnapshot (spec/ipc.md 3.13): the numerical contracts that a backend process holds its models to. For tools and for
 * the lane of numerical admission to come; nothing in the sidecar asks for it yet.
 */
import type { MsgpackReader } from "../msgpack/reader.ts";
import {
  NumericalAdmissionObservation as AdmissionStruct,
  NumericalProfileObservation as ProfileStruct,
  NumericalProfileSnapshotResponse as Answer,
} from "./schema.ts";
import { readStruct, readTexts } from "./struct.ts";

/** An admission that is in force for a model. */
export interface NumericalAdmission {
  readonly sha256: string;
  /** `openai` or `sie`. */
  readonly kind: string;
  readonly localIdentities: readonly string[];
  readonly modelContractSha256: string;
  readonly outputs: readonly string[];
  readonly expiresAtUnixMs: number;
}

/** What a process says of one model. */
export interface NumericalProfile {
  readonly modelId: string;
  readonly localIdentity: string | undefined;
  readonly modelContractSha256: string | undefined;
  readonly remoteContractSha256: string | undefined;
  readonly remoteExecutionSha256: string | undefined;
  readonly admission: NumericalAdmission | undefined;
}

/** Answer of NumericalProfileSnapshot. */
export interface NumericalSnapshot {
  /** Changes whenever the process starts. */
  readonly runtimeInstanceId: string | undefined;
  readonly profiles: readonly NumericalProfile[];
  /** Whether every model could be looked at. */
  readonly complete: boolean;
}

const S = Answer.index, P = ProfileStruct.index, A = AdmissionStruct.index;

/** Reads the answer. Keys that are left out and nil are the same. */
export function readNumericalSnapshot(reader: MsgpackReader): NumericalSnapshot {
  let runtimeInstanceId: string | undefined;
  let complete = false;
  const profiles: NumericalProfile[] = [];
  readStruct(reader, Answer, (field) => {
    if (field === S.complete) complete = reader.bool();
    else if (field === S.runtime_instance_id) runtimeInstanceId = optionalText(reader);
    else for (let left = reader.arrayHeader(); left > 0; left--) profiles.push(readProfile(reader));
  });
  return { runtimeInstanceId, profiles, complete };
}

function readProfile(reader: MsgpackReader): NumericalProfile {
  const texts: (string | undefined)[] = [];
  let modelId = "";
  let admission: NumericalAdmission | undefined;
  readStruct(reader, ProfileStruct, (field) => {
    if (field === P.model_id) modelId = reader.text();
    else if (field !== P.admission) texts[field] = optionalText(reader);
    else if (!reader.nil()) admission = readAdmission(reader);
  });
  return {
    modelId,
    localIdentity: texts[P.local_identity],
    modelContractSha256: texts[P.model_contract_sha256],
    remoteContractSha256: texts[P.remote_contract_sha256],
    remoteExecutionSha256: texts[P.remote_execution_sha256],
    admission,
  };
}

function readAdmission(reader: MsgpackReader): NumericalAdmission {
  const texts: string[] = [], lists: string[][] = [];
  let expiresAtUnixMs = 0;
  readStruct(reader, AdmissionStruct, (field) => {
    if (field === A.expires_at_unix_ms) expiresAtUnixMs = reader.integer();
    else if (field === A.local_identities || field === A.outputs) lists[field] = readTexts(reader);
    else texts[field] = reader.text();
  });
  return {
    sha256: texts[A.sha256] ?? "",
    kind: texts[A.kind] ?? "",
    localIdentities: lists[A.local_identities] ?? [],
    modelContractSha256: texts[A.model_contract_sha256] ?? "",
    outputs: lists[A.outputs] ?? [],
    expiresAtUnixMs,
  };
}

function optionalText(reader: MsgpackReader): string | undefined {
  return reader.nil() ? undefined : reader.text();
}
