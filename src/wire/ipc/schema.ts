/** All messages of the IPC (spec/ipc.md 2 to 6), field by field, in the order in which the reference writes them. */
import { defaulted, optional, required, struct } from "./struct.ts";

/** Version of every envelope. */
export const IPC_VERSION = 1;

/** `kind` of a chunk of a large answer. */
export const CHUNK_KIND = "ipc_response_chunk_v1";

const EMPTY: readonly never[] = [];

/** 2.1 */
export const RequestEnvelope = struct("RequestEnvelope", {
  version: required("int"),
  method: required("str"),
  request_id: required("str"),
  accepts_ipc_response_chunks_v1: defaulted("bool", false),
  body: optional("map"),
});

/** 2.2; `kind` is never on an ordinary answer, but a reader must look at it. */
export const ResponseEnvelope = struct("ResponseEnvelope", {
  version: required("int"),
  request_id: required("str"),
  ok: required("bool"),
  body: optional("map"),
  error: optional("str"),
  kind: optional("str"),
});

/** 6.2 */
export const IpcResponseChunkV1 = struct("IpcResponseChunkV1", {
  version: required("int"),
  request_id: required("str"),
  transfer_digest: required("bin"),
  chunk_index: required("int"),
  chunk_count: required("int"),
  total_bytes: required("int"),
  payload: required("bin"),
  kind: defaulted("str", CHUNK_KIND),
});

/** 3.1 */
export const PingRequest = struct("PingRequest", { timestamp_ms: required("float") });

export const PingResponse = struct("PingResponse", {
  timestamp_ms: defaulted("float", 0),
  worker_id: defaulted("str", ""),
  ready: defaulted("bool", false),
  bundle_config_hash: defaulted("str", ""),
  loaded_models: defaulted("list[str]", EMPTY),
  loading_models: defaulted("list[str]", EMPTY),
});

/** 3.2 */
export const EnsureModelReadyRequest = struct("EnsureModelReadyRequest", { model_id: required("str") });

/** 4.1 */
export const READINESS_STATES = ["ready", "loading_started", "loading_in_progress", "retry_later", "failed"] as const;

export const EnsureModelReadyResponse = struct("EnsureModelReadyResponse", {
  state: required(`enum(${READINESS_STATES.join(",")})`),
  batch_budget: optional("int"),
  descriptor: optional("ModelDescriptor"),
});

/** 4.2 */
export const ModelDescriptor = struct("ModelDescriptor", {
  tokenizer_path: optional("str"),
  tokenizer_id: optional("str"),
  max_seq_len: optional("int"),
  output_types: defaulted("list[str]", EMPTY),
  supports_run_batch: defaulted("bool", false),
  default_query_template: optional("str"),
  default_doc_template: optional("str"),
  max_concurrent_dispatch: optional("int"),
});

/** 3.7 */
export const WorkerCapabilitiesRequest = struct("WorkerCapabilitiesRequest", {});

export const WorkerCapabilitiesResponse = struct("WorkerCapabilitiesResponse", {
  supports_execution_authority_v1: defaulted("bool", false),
  supports_numerical_admission_v1: defaulted("bool", false),
  has_generation_models: defaulted("bool", false),
  generation_models: defaulted("list[str]", EMPTY),
  supported_models: defaulted("list[str]", EMPTY),
  loaded_models: defaulted("list[str]", EMPTY),
});

/** 3.8 */
export const SignalGenerateCancelRequest = struct("SignalGenerateCancelRequest", { request_id: required("str") });
export const SignalGenerateCancelResponse = struct("SignalGenerateCancelResponse", {
  matched: defaulted("bool", false),
});

/** 3.10 */
export const ApplyModelConfigRequest = struct("ApplyModelConfigRequest", {
  bundle_id: required("str"),
  model_id: required("str"),
  epoch: required("int"),
  bundle_config_hash: required("str"),
  profiles_added: defaulted("list[str]", EMPTY),
  model_config: required("str"),
  bundle_adapters: optional("list[str]"),
});

export const ApplyModelConfigResponse = struct("ApplyModelConfigResponse", {
  applied: required("bool"),
  bundle_config_hash: required("str"),
  config_version: defaulted("int", 0),
  unsupported_models: defaulted("list[str]", EMPTY),
});

/** 3.11 */
export const ReplaceModelConfigEntry = struct("ReplaceModelConfigEntry", {
  model_id: required("str"),
  model_config: required("str"),
});

export const ReplaceModelConfigsRequest = struct("ReplaceModelConfigsRequest", {
  bundle_id: required("str"),
  epoch: required("int"),
  bundle_config_hash: required("str"),
  models: required("list[ReplaceModelConfigEntry]"),
  bundle_adapters: optional("list[str]"),
});

export const ReplaceModelConfigsResponse = struct("ReplaceModelConfigsResponse", {
  applied: required("bool"),
  bundle_config_hash: required("str"),
  config_version: defaulted("int", 0),
  applied_models: defaulted("list[str]", EMPTY),
  applied_profiles: defaulted("list[str]", EMPTY),
  unsupported_models: defaulted("list[str]", EMPTY),
});

/** 3.13 */
export const SetPinnedModelsRequest = struct("SetPinnedModelsRequest", { models: required("list[str]") });
export const SetPinnedModelsResponse = struct("SetPinnedModelsResponse", {
  applied: required("bool"),
  pinned_count: defaulted("int", 0),
});

export const NumericalProfileSnapshotRequest = struct("NumericalProfileSnapshotRequest", {});

export const NumericalAdmissionObservation = struct("NumericalAdmissionObservation", {
  sha256: required("str"),
  kind: required("str"),
  local_identities: required("list[str]"),
  model_contract_sha256: required("str"),
  outputs: required("list[str]"),
  expires_at_unix_ms: required("int"),
});

export const NumericalProfileObservation = struct("NumericalProfileObservation", {
  model_id: required("str"),
  local_identity: optional("str"),
  model_contract_sha256: optional("str"),
  remote_contract_sha256: optional("str"),
  remote_execution_sha256: optional("str"),
  admission: optional("NumericalAdmissionObservation"),
});

export const NumericalProfileSnapshotResponse = struct("NumericalProfileSnapshotResponse", {
  runtime_instance_id: optional("str"),
  profiles: defaulted("list[NumericalProfileObservation]", EMPTY),
  complete: defaulted("bool", false),
});

/** 3.12; read leniently by the peer. */
export const DrainRequest = struct("DrainRequest", { deadline_ms: required("int") });
export const DrainResponse = struct("DrainResponse", { acknowledged: defaulted("bool", false) });

/** 3.6 */
export const ProcessGenerateRequest = struct("ProcessGenerateRequest", {
  model_id: required("str"),
  work_item_msgpack: required("bin"),
});

/** 5.2 */
export const GENERATE_EVENT_KINDS = ["publish", "ack", "nak", "in_progress", "done"] as const;

export const GenerateEventFrame = struct("GenerateEvent", {
  kind: required(`enum(${GENERATE_EVENT_KINDS.join(",")})`),
  reply_subject: defaulted("str", ""),
  payload: defaulted("bin", ""),
  delay_ms: optional("int"),
  error: optional("str"),
});

/** 4.4 */
export const PreparedTokens = struct("PreparedTokens", {
  input_ids: required("list[list[int]]"),
  attention_mask: defaulted("list[list[int]]", EMPTY),
  token_type_ids: defaulted("list[list[int]]", EMPTY),
  tokenizer_id: required("str"),
  max_seq_len: defaulted("int", 0),
});

export const EncodeBatchItem = struct("EncodeBatchItem", {
  work_item_id: required("str"),
  request_id: required("str"),
  item_index: required("int"),
  total_items: required("int"),
  timestamp: required("float"),
  item: required("map"),
  output_types: optional("list[str]"),
  instruction: optional("str"),
  is_query: defaulted("bool", false),
  options: optional("map"),
  profile_id: optional("str"),
  bundle_config_hash: optional("str"),
  numerical_admission_sha256: optional("str"),
  payload_fetch_ms: defaulted("float", 0),
  prepared_tokens: optional("PreparedTokens"),
});

/** 4.5 */
export const ScoreBatchItem = struct("ScoreBatchItem", {
  work_item_id: required("str"),
  request_id: required("str"),
  item_index: required("int"),
  total_items: required("int"),
  timestamp: required("float"),
  query_item: required("map"),
  score_items: required("list[map]"),
  instruction: optional("str"),
  options: optional("map"),
  profile_id: optional("str"),
  bundle_config_hash: optional("str"),
  numerical_admission_sha256: optional("str"),
  payload_fetch_ms: defaulted("float", 0),
  prepared_tokens: optional("PreparedTokens"),
});

/** 4.6 */
export const PreparedAudioPcm16 = struct("PreparedAudioPcm16", {
  pcm_s16le: required("bin"),
  sample_rate: required("int"),
  sample_count: required("int"),
  duration_ms: required("int"),
  source_sample_rate: required("int"),
  source_sample_count: required("int"),
  source_channels: required("int"),
  container: required("str"),
});

export const ExtractBatchItem = struct("ExtractBatchItem", {
  work_item_id: required("str"),
  request_id: required("str"),
  item_index: required("int"),
  total_items: required("int"),
  timestamp: required("float"),
  item: required("map"),
  labels: optional("list[str]"),
  output_schema: optional("map"),
  instruction: optional("str"),
  options: optional("map"),
  profile_id: optional("str"),
  bundle_config_hash: optional("str"),
  payload_fetch_ms: defaulted("float", 0),
  prepared_audio: optional("PreparedAudioPcm16"),
});

/** 3.3 to 3.5 */
export const ProcessEncodeBatchRequest = struct("ProcessEncodeBatchRequest", {
  model_id: required("str"),
  items: required("list[EncodeBatchItem]"),
  accepts_batched_f16_multivectors: defaulted("bool", false),
});
export const ProcessScoreBatchRequest = struct("ProcessScoreBatchRequest", {
  model_id: required("str"),
  items: required("list[ScoreBatchItem]"),
});
export const ProcessExtractBatchRequest = struct("ProcessExtractBatchRequest", {
  model_id: required("str"),
  items: required("list[ExtractBatchItem]"),
});

/** 3.9, 4.3 */
export const RunBatchItem = struct("RunBatchItem", {
  op: required("enum(encode,score,extract)"),
  work_item_id: defaulted("str", ""),
  request_id: defaulted("str", ""),
  item_index: defaulted("int", 0),
  encode: optional("EncodeBatchItem"),
  score: optional("ScoreBatchItem"),
  extract: optional("ExtractBatchItem"),
  traceparent: optional("str"),
  tracestate: optional("str"),
});

export const RunBatchRequest = struct("RunBatchRequest", {
  model_id: required("str"),
  batch_id: required("int"),
  lora_key: required("str"),
  total_cost: required("int"),
  items: required("list[RunBatchItem]"),
  accepts_batched_f16_multivectors: defaulted("bool", false),
});

/** 4.10 */
export const DenseOutputStruct = struct("DenseOutput", {
  values: required("list[float]"),
  dim: required("int"),
  normalize: defaulted("bool", false),
});
export const ScoreOutputStruct = struct("ScoreOutputRaw", {
  scores: required("list[float]"),
  item_ids: required("list[str]"),
});
export const SparseOutputStruct = struct("SparseOutput", {
  indices: required("list[int]"),
  values: required("list[float]"),
  dims: optional("int"),
});
export const MultivectorOutputStruct = struct("MultivectorOutput", {
  values: required("list[float]"),
  num_tokens: required("int"),
  token_dims: required("int"),
  dtype: defaulted("str", "float32"),
  values_f16: defaulted("bin", ""),
});
export const RawOutputStruct = struct("RawOutput", {
  dense: optional("DenseOutput"),
  score: optional("ScoreOutputRaw"),
  sparse: optional("SparseOutput"),
  multivector: optional("MultivectorOutput"),
});

/** 4.9; passed on unchanged. */
export const UnitCounts = struct("UnitCounts", {
  input_tokens: optional("int"),
  pages: optional("int"),
  images: optional("int"),
  audio_ms: optional("int"),
  pairs: optional("int"),
  content_input_tokens: optional("int"),
  output_tokens: optional("int"),
});

export const DISPOSITIONS = ["publish_and_ack", "publish_error_and_ack", "nak_retry"] as const;

export const ItemOutcomeStruct = struct("ItemOutcome", {
  work_item_id: required("str"),
  request_id: required("str"),
  item_index: required("int"),
  disposition: required(`enum(${DISPOSITIONS.join(",")})`),
  nak_delay_ms: optional("int"),
  result_msgpack: optional("bin"),
  error: optional("str"),
  error_code: optional("str"),
  inference_ms: optional("float"),
  tokenization_ms: optional("float"),
  postprocessing_ms: optional("float"),
  raw_output: optional("RawOutput"),
  units: optional("UnitCounts"),
  retry_after_s: optional("int"),
});

/** 4.11 */
export const BatchedF16Item = struct("BatchedF16MultivectorItem", {
  work_item_id: required("str"),
  byte_offset: required("int"),
  byte_len: required("int"),
  num_tokens: required("int"),
  token_dims: required("int"),
});
export const BatchedF16Output = struct("BatchedF16MultivectorOutput", {
  values_f16: required("bin"),
  items: required("list[BatchedF16MultivectorItem]"),
});

/** 4.8 */
export const BatchOutcomeStruct = struct("BatchOutcome", {
  outcomes: required("list[ItemOutcome]"),
  batched_f16_multivectors: defaulted("list[BatchedF16MultivectorOutput]", EMPTY),
});
