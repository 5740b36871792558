/** Making a WorkResult from what the vectors say of one, by the code that makes them in production. */
import assert from "node:assert/strict";
import type { LargeResult } from "../../src/publish/publisher.ts";
import type { FinishedItem } from "../../src/publish/result_sender.ts";
import { GatheringWriter } from "../../src/wire/msgpack/gathering_writer.ts";
import { encodedText, MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import type { BatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import {
  beginOutcomeResult,
  endOutcomeResult,
  type ResultError,
  type ResultStamp,
} from "../../src/wire/work_result.ts";
import { decodeWorkResult, UNIT_NAMES, type WorkResult } from "../../src/wire/work_result_reader.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { answerOf, finishedItem, RecordedPublisher, RecordingChannel } from "../publish/rig.ts";

/** Fields of a WorkResult in the notation of the vectors. */
export interface ResultNotation {
  readonly work_item_id: string;
  readonly request_id: string;
  readonly item_index: number;
  readonly success: boolean;
  readonly result_msgpack: { readonly $bin: string } | { readonly $bin_repeat: readonly [number, number] };
  readonly error: string | null;
  readonly error_code: string | null;
  readonly inference_ms: Float;
  readonly queue_ms: Float;
  readonly processing_ms: Float;
  readonly worker_id: string;
  readonly tokenization_ms: Float;
  readonly postprocessing_ms: Float;
  readonly payload_fetch_ms: Float;
  readonly units?: Record<string, number | null>;
  readonly worker_direct: boolean;
  readonly executed_bundle_config_hash?: string;
  readonly retry_after_s?: number;
}

type Float = number | null | { readonly $f64: number };

/** The number of a tagged or plain float; undefined for nil. */
function float(value: Float): number | undefined {
  if (value === null) return undefined;
  return typeof value === "number" ? value : value.$f64;
}

/** A float as a backend sends it. */
function sent(value: Float): unknown {
  return value === null ? null : { $f64: float(value) };
}

/** Publication time of every item here, in Unix seconds. */
const TIMESTAMP = 1_700_000_000;

/** Publishes the only outcome of `answer` as one message and decodes it. */
export function publishedResult(unit: FinishedItem, answer: BatchOutcome): WorkResult {
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined && answer.outcomes.length === 1);
  assert.equal(new RecordedPublisher().publisher.outcome(unit, answer, outcome, ""), true);
  const { messages } = unit.delivery as RecordingChannel;
  assert.equal(messages.length, 1);
  return decodeWorkResult(messages[0] ?? new Uint8Array());
}

/** Bytes of the result that `wanted` describes. */
export async function resultBytes(wanted: ResultNotation, maxPayload = 1 << 28): Promise<Uint8Array> {
  const channel = new RecordingChannel(maxPayload, wanted.worker_direct ? "direct" : "pool");
  const queueMs = float(wanted.queue_ms);
  const { publisher } = new RecordedPublisher(TIMESTAMP * 1000 + (queueMs ?? 0), wanted.worker_id);
  const unit = finishedItem(channel, {
    work_item_id: wanted.work_item_id,
    request_id: wanted.request_id,
    item_index: wanted.item_index,
    // 0 is an unknown time of publication, which counts as no time in the queue.
    timestamp: queueMs === 0 ? 0 : TIMESTAMP,
    accepts_result_chunks: false,
  }, { payloadFetchMs: float(wanted.payload_fetch_ms) ?? 0 });
  const answer = answerOf([outcomeNotation(wanted)]);
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined);
  if (queueMs !== undefined) {
    assert.equal(await publisher.outcome(unit, answer, outcome, wanted.executed_bundle_config_hash ?? ""), true);
  } else if (!wanted.success) {
    const refusal = {
      code: wanted.error_code ?? "",
      message: wanted.error ?? "",
      ...(wanted.retry_after_s === undefined ? {} : { retryAfterS: wanted.retry_after_s }),
    };
    assert.equal(await publisher.refusal(channel, unit.work, refusal), true);
  } else {
    // A success without times is no result of dispatch; the writer makes it all the same.
    return largeResult(wanted).pieces[0] ?? new Uint8Array();
  }
  assert.equal(channel.messages.length, 1);
  return channel.messages[0] ?? new Uint8Array();
}

/** A result without times in the queue, in the form in which the publisher takes large ones. */
export function largeResult(wanted: ResultNotation): LargeResult {
  const answer = answerOf([outcomeNotation(wanted)]);
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined);
  const stamp: ResultStamp = {
    workerId: encodedText(wanted.worker_id),
    queueMs: undefined,
    payloadFetchMs: float(wanted.payload_fetch_ms) ?? 0,
    workerDirect: wanted.worker_direct,
    executedHash: wanted.executed_bundle_config_hash ?? "",
  };
  const write = (writer: MsgpackWriter, error: ResultError | undefined) => {
    beginOutcomeResult(writer, answer.bytes, outcome, error === undefined, stamp);
    if (error === undefined) writer.bin(answer.bytes, outcome.resultAt, outcome.resultLength);
    else writer.binHeader(0);
    endOutcomeResult(writer, answer.bytes, outcome, error, stamp);
  };
  const gathering = new GatheringWriter();
  write(gathering, undefined);
  const utf8 = new TextEncoder();
  return {
    pieces: gathering.pieces(),
    identity: {
      workItemId: utf8.encode(wanted.work_item_id),
      requestId: utf8.encode(wanted.request_id),
      itemIndex: wanted.item_index,
    },
    compact(error) {
      const writer = new MsgpackWriter();
      write(writer, error);
      return writer.take();
    },
  };
}

function outcomeNotation(wanted: ResultNotation): Record<string, unknown> {
  const common = {
    work_item_id: wanted.work_item_id,
    request_id: wanted.request_id,
    item_index: wanted.item_index,
    inference_ms: sent(wanted.inference_ms),
    tokenization_ms: sent(wanted.tokenization_ms),
    postprocessing_ms: sent(wanted.postprocessing_ms),
    units: wanted.units ?? null,
    retry_after_s: wanted.retry_after_s ?? null,
  };
  if (wanted.error_code === "raw_output_shape_error") {
    const values = [{ $f64: 1 }, { $f64: 2 }];
    return { ...common, disposition: "publish_and_ack", raw_output: { dense: { values, dim: 3, normalize: false } } };
  }
  return {
    ...common,
    disposition: wanted.success ? "publish_and_ack" : "publish_error_and_ack",
    result_msgpack: wanted.result_msgpack,
    error: wanted.error,
    error_code: wanted.error_code,
  };
}

function payloadOf({ result_msgpack: payload }: ResultNotation): Uint8Array {
  return "$bin" in payload
    ? fromHex(payload.$bin)
    : new Uint8Array(payload.$bin_repeat[1]).fill(payload.$bin_repeat[0]);
}

/** Fails unless a decoded result says what `wanted` says. */
export function assertResult(result: WorkResult, wanted: ResultNotation): void {
  const { units } = wanted;
  assert.deepEqual({ ...result, resultMsgpack: toHex(result.resultMsgpack) }, {
    workItemId: wanted.work_item_id,
    requestId: wanted.request_id,
    itemIndex: wanted.item_index,
    success: wanted.success,
    resultMsgpack: toHex(payloadOf(wanted)),
    error: wanted.error ?? undefined,
    errorCode: wanted.error_code ?? undefined,
    inferenceMs: float(wanted.inference_ms),
    queueMs: float(wanted.queue_ms),
    processingMs: float(wanted.processing_ms),
    workerId: wanted.worker_id,
    tokenizationMs: float(wanted.tokenization_ms),
    postprocessingMs: float(wanted.postprocessing_ms),
    payloadFetchMs: float(wanted.payload_fetch_ms),
    units: units === undefined ? undefined : Object.fromEntries(
      UNIT_NAMES.filter((name) => typeof units[name] === "number").map((name) => [name, BigInt(units[name] ?? 0)]),
    ),
    workerDirect: wanted.worker_direct,
    executedBundleConfigHash: wanted.executed_bundle_config_hash ?? "",
    retryAfterS: wanted.retry_after_s,
  });
}

interface ResultCase {
  readonly name: string;
  readonly hex?: string;
  readonly expected_hex?: string;
  readonly decoded?: ResultNotation;
  readonly fields_in_order?: ResultNotation;
  readonly oversized_bytes?: number;
  readonly max_payload?: number;
}

/** Claims a file of results: what we write is the file's bytes, and what we read of them is the file's fields. */
export function resultFieldsClaim(file: string): VectorClaim {
  return {
    files: [file],
    *cases(data) {
      for (const one of (Array.isArray(data) ? data : (data as { cases: unknown[] }).cases) as ResultCase[]) {
        const hex = one.hex ?? one.expected_hex ?? "";
        const wanted = one.decoded ?? one.fields_in_order;
        if (wanted === undefined) throw new Error(`no fields in ${one.name}`);
        yield {
          name: one.name,
          async check() {
            assert.equal(toHex(await caseBytes(one, wanted)), hex);
            assertResult(decodeWorkResult(fromHex(hex)), wanted);
          },
        } satisfies VectorCase;
      }
    },
  };
}

async function caseBytes(one: ResultCase, wanted: ResultNotation): Promise<Uint8Array> {
  if (one.oversized_bytes === undefined) return await resultBytes(wanted);
  const large = await ofLength({ ...wanted, success: true, error: null, error_code: null }, one.oversized_bytes);
  return await resultBytes(large, one.max_payload);
}

/** The same result with as many payload bytes as make it `length` bytes long. */
async function ofLength(wanted: ResultNotation, length: number): Promise<ResultNotation> {
  const withPayload = (bytes: number) => ({ ...wanted, result_msgpack: { $bin: "00".repeat(bytes) } });
  // The header of the payload takes up to three bytes more than that of an empty one.
  const base = (await resultBytes(withPayload(0))).length;
  for (let bytes = length - base; bytes >= length - base - 3; bytes--) {
    if ((await resultBytes(withPayload(bytes))).length === length) return withPayload(bytes);
  }
  throw new Error(`no payload makes ${length} bytes`);
}
