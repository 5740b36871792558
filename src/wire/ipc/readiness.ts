/** EnsureModelReady (spec/ipc.md 3.2, 4.1, 4.2): whether a model can take work, and what it tells about itself. */
import { MsgpackError } from "../msgpack/errors.ts";
import { KeyTable, textOf } from "../msgpack/keys.ts";
import type { MsgpackReader } from "../msgpack/reader.ts";
import { EnsureModelReadyResponse as Answer, ModelDescriptor as DescriptorStruct, READINESS_STATES } from "./schema.ts";
import { readStruct, readTexts } from "./struct.ts";

/** What a model tells about itself when it is ready (spec/ipc.md 4.2). */
export interface ModelDescriptor {
  readonly tokenizerPath: string | undefined;
  readonly tokenizerId: string | undefined;
  readonly maxSeqLen: number | undefined;
  readonly outputTypes: readonly string[];
  readonly supportsRunBatch: boolean;
  readonly defaultQueryTemplate: string | undefined;
  readonly defaultDocTemplate: string | undefined;
  readonly maxConcurrentDispatch: number | undefined;
}

/** Answer of EnsureModelReady (spec/ipc.md 3.2, 4.1). */
export type ModelReadiness =
  | {
    readonly state: "ready";
    readonly batchBudget: number | undefined;
    readonly descriptor: ModelDescriptor | undefined;
  }
  | { readonly state: "loading_started" | "loading_in_progress" | "retry_later" | "failed" };

const states = new KeyTable(READINESS_STATES);
const { state: STATE, batch_budget: BATCH_BUDGET } = Answer.index;
const U32_MAX = 0xffffffff;

/** Reads the answer. A state that is not known makes it undecodable (4.1); budget and descriptor count only with `ready`. */
export function readModelReadiness(reader: MsgpackReader): ModelReadiness {
  let state = "failed" as ModelReadiness["state"];
  let batchBudget: number | undefined;
  let descriptor: ModelDescriptor | undefined;
  readStruct(reader, Answer, (field) => {
    if (field === STATE) state = readState(reader);
    else if (reader.nil()) return;
    else if (field === BATCH_BUDGET) batchBudget = reader.unsigned(U32_MAX);
    else descriptor = readDescriptor(reader);
  });
  return state === "ready" ? { state, batchBudget, descriptor } : { state };
}

function readState(reader: MsgpackReader): ModelReadiness["state"] {
  reader.textSpan();
  const state = READINESS_STATES[states.indexOf(reader.bytes, reader.spanAt, reader.spanLength)];
  if (state !== undefined) return state;
  const text = textOf(reader.bytes, reader.spanAt, Math.min(reader.spanLength, 40));
  throw new MsgpackError("range", `unknown readiness state '${text}'`);
}

const F = DescriptorStruct.index;

function readDescriptor(reader: MsgpackReader): ModelDescriptor {
  const texts: (string | undefined)[] = [];
  const counts: (number | undefined)[] = [];
  let outputTypes: readonly string[] = [];
  let supportsRunBatch = false;
  readStruct(reader, DescriptorStruct, (field) => {
    if (field === F.output_types) outputTypes = readTexts(reader);
    else if (field === F.supports_run_batch) supportsRunBatch = reader.bool();
    else if (reader.nil()) return;
    else if (field === F.max_seq_len || field === F.max_concurrent_dispatch) counts[field] = reader.unsigned(U32_MAX);
    else texts[field] = reader.text();
  });
  return {
    tokenizerPath: texts[F.tokenizer_path],
    tokenizerId: texts[F.tokenizer_id],
    maxSeqLen: counts[F.max_seq_len],
    outputTypes,
    supportsRunBatch,
    defaultQueryTemplate: texts[F.default_query_template],
    defaultDocTemplate: texts[F.default_doc_template],
    maxConcurrentDispatch: counts[F.max_concurrent_dispatch],
  };
}
