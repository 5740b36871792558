/** Requests of our client made from the decoded requests of vectors, to compare the bytes. */
import type { BatchEntry, BatchOperation } from "../../src/wire/ipc/batch_items.ts";
import { writeRequest } from "../../src/wire/ipc/envelope.ts";
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
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { encodeNotation } from "../harness/notation.ts";
import { fromHex } from "../harness/paths.ts";

type Plain = Record<string, unknown>;

/** A decoded request. */
export interface DecodedRequest {
  readonly method: string;
  readonly request_id: string;
  readonly body: Plain;
}

function encoded<Request>(method: IpcMethod<Request, unknown>, id: string, request: Request): Uint8Array {
  const writer = new MsgpackWriter();
  writeRequest(writer, method, id, request);
  return writer.take();
}

/** Encodes a request as our client does; undefined for a method that our client does not have. */
export function encodeAsClient(request: DecodedRequest): Uint8Array | undefined {
  const { method, request_id: id, body } = request;
  switch (method) {
    case "Ping":
      return encoded(Ping, id, plainNumber(body.timestamp_ms));
    case "EnsureModelReady":
      return encoded(EnsureModelReady, id, String(body.model_id));
    case "WorkerCapabilities":
      return encoded(GetWorkerCapabilities, id, undefined);
    case "NumericalProfileSnapshot":
      return encoded(GetNumericalSnapshot, id, undefined);
    case "SignalGenerateCancel":
      return encoded(SignalGenerateCancel, id, String(body.request_id));
    case "Drain":
      return encoded(Drain, id, plainNumber(body.deadline_ms));
    case "SetPinnedModels":
      return encoded(SetPinnedModels, id, body.models as string[]);
    case "ApplyModelConfig":
      return encoded(ApplyModelConfigMethod, id, {
        ...common(body),
        modelId: String(body.model_id),
        profilesAdded: (body.profiles_added ?? []) as string[],
        modelConfig: String(body.model_config),
      });
    case "ReplaceModelConfigs":
      return encoded(ReplaceModelConfigsMethod, id, {
        ...common(body),
        models: (body.models as Plain[]).map((model) => ({
          modelId: String(model.model_id),
          modelConfig: String(model.model_config),
        })),
      });
    case "ProcessGenerate":
      return encoded(ProcessGenerate, id, {
        modelId: String(body.model_id),
        workItemMsgpack: fromHex((body.work_item_msgpack as { $bin: string }).$bin),
      });
    case "ProcessEncodeBatch":
      return encoded(ProcessEncodeBatch, id, processBody("encode", body));
    case "ProcessScoreBatch":
      return encoded(ProcessScoreBatch, id, processBody("score", body));
    case "ProcessExtractBatch":
      return encoded(ProcessExtractBatch, id, processBody("extract", body));
    case "RunBatch":
      return encoded(RunBatch, id, runBatchBody(body));
    default:
      return undefined;
  }
}

function plainNumber(value: unknown): number {
  return typeof value === "object" && value !== null && "$f64" in value ? Number(value.$f64) : Number(value);
}

function common(body: Plain) {
  return {
    bundleId: String(body.bundle_id),
    epoch: Number(body.epoch),
    bundleConfigHash: String(body.bundle_config_hash),
    bundleAdapters: body.bundle_adapters as string[] | undefined,
  };
}

function processBody(operation: BatchOperation, body: Plain) {
  const entries = (body.items as Plain[]).map((item) => entry(operation, item, {}));
  return { modelId: String(body.model_id), entries };
}

function runBatchBody(body: Plain) {
  const items = body.items as Plain[];
  const operation = (items[0]?.op ?? "encode") as BatchOperation;
  return {
    modelId: String(body.model_id),
    operation,
    batchId: Number(body.batch_id),
    loraKey: String(body.lora_key),
    totalCost: Number(body.total_cost),
    entries: items.map((item) => entry(operation, item[operation] as Plain, item)),
  };
}

/** What a batch item takes from elsewhere than its work item. */
const PREPARED = ["payload_fetch_ms", "prepared_tokens", "prepared_audio"];

/** The work item whose batch item `item` is. */
function entry(operation: BatchOperation, item: Plain, outer: Plain): BatchEntry {
  const fields = Object.entries(item).filter(([name]) => !PREPARED.includes(name));
  const work = decodeWorkItem(encodeNotation({
    ...Object.fromEntries(fields),
    operation,
    model_id: "from/subject",
    pool_name: "default",
    machine_profile: "l4",
    reply_subject: "_INBOX.r.1",
    // Nil is no text for these two; the batch item has nil where the work item has none.
    profile_id: item.profile_id ?? "",
    bundle_config_hash: item.bundle_config_hash ?? "",
    traceparent: outer.traceparent ?? null,
    tracestate: outer.tracestate ?? null,
  }));
  const prepared = (name: string) =>
    item[name] === undefined || item[name] === null ? undefined : encodeNotation(item[name]);
  const preparedTokens = prepared("prepared_tokens");
  const preparedAudio = prepared("prepared_audio");
  return {
    work,
    input: {
      payloadFetchMs: plainNumber(item.payload_fetch_ms ?? 0),
      ...(preparedTokens === undefined ? {} : { preparedTokens }),
      ...(preparedAudio === undefined ? {} : { preparedAudio }),
    },
  };
}
