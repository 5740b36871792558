/** WorkResults: what is written for each choice of fields, and what a receiver accepts (spec/queue.md 3). */
import assert from "node:assert/strict";
import { readBatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { encodedText, MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import {
  beginOutcomeResult,
  endOutcomeResult,
  errorResultBound,
  outcomeResultBound,
  queueMilliseconds,
  type ResultError,
  type ResultStamp,
  writeErrorResult,
} from "../../src/wire/work_result.ts";
import { decodeWorkResult, inboxMessageKind } from "../../src/wire/work_result_reader.ts";
import { encodeNotation, readValue } from "../harness/notation.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below } from "./random_values.ts";

const STAMP: ResultStamp = {
  workerId: encodedText("worker-0"),
  queueMs: 12.5,
  payloadFetchMs: 0,
  workerDirect: false,
  executedHash: "",
};

/** Keys in their order; the optional ones are asked for. */
function keysOf(bytes: Uint8Array): string[] {
  const value = readValue(bytes);
  assert.ok(value.type === "map");
  return value.pairs.map(([key]) => key.type === "str" ? new TextDecoder().decode(bytesOf(key.hex)) : key.type);
}

function bytesOf(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (byte) => parseInt(byte, 16));
}

const ALWAYS = [
  "work_item_id",
  "request_id",
  "item_index",
  "success",
  "result_msgpack",
  "error",
  "error_code",
  "inference_ms",
  "queue_ms",
  "processing_ms",
  "worker_id",
  "tokenization_ms",
  "postprocessing_ms",
  "payload_fetch_ms",
];

function outcomeOf(fields: Record<string, unknown>) {
  const bytes = encodeNotation({
    outcomes: [{
      work_item_id: "req-1.3",
      request_id: "req-1",
      item_index: 3,
      disposition: "publish_and_ack",
      ...fields,
    }],
  });
  const answer = readBatchOutcome(new MsgpackReader(bytes));
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined);
  return { bytes: answer.bytes, outcome };
}

function written(
  { bytes, outcome }: ReturnType<typeof outcomeOf>,
  error: ResultError | undefined,
  stamp: ResultStamp,
): Uint8Array {
  const writer = new MsgpackWriter();
  beginOutcomeResult(writer, bytes, outcome, error === undefined, stamp);
  if (error === undefined) writer.bin(bytes, outcome.resultAt, outcome.resultLength);
  else writer.binHeader(0);
  endOutcomeResult(writer, bytes, outcome, error, stamp);
  return writer.take();
}

Deno.test("each combination of optional keys has its order and its count", () => {
  for (const units of [undefined, { input_tokens: 7, unknown_unit: "kept" }]) {
    for (const retry of [undefined, 5]) {
      for (const executedHash of ["", "hash-a"]) {
        const outcome = outcomeOf({
          units: units ?? null,
          retry_after_s: retry ?? null,
          result_msgpack: { $bin: "80" },
        });
        const bytes = written(outcome, undefined, { ...STAMP, executedHash });
        assert.deepEqual(keysOf(bytes), [
          ...ALWAYS,
          ...(units === undefined ? [] : ["units"]),
          "worker_direct",
          ...(executedHash === "" ? [] : ["executed_bundle_config_hash"]),
          ...(retry === undefined ? [] : ["retry_after_s"]),
        ]);
        const result = decodeWorkResult(bytes);
        assert.deepEqual(
          [result.itemIndex, result.success, result.units, result.retryAfterS, result.executedBundleConfigHash],
          [3, true, units && { input_tokens: 7n }, retry, executedHash],
        );
        assert.equal(inboxMessageKind(bytes), "result");
      }
    }
  }
});

Deno.test("the bound holds for every length of its parts, and is close", () => {
  const random = new SeededRandom(41);
  for (let i = 0; i < 300; i++) {
    const text = "日".repeat(below(random, 400));
    const error = random.chance(0.5) ? undefined : { code: "code".repeat(below(random, 20)), message: text };
    const stamp = { ...STAMP, executedHash: "h".repeat(below(random, 80)), payloadFetchMs: below(random, 2) };
    const outcome = outcomeOf({
      work_item_id: "w".repeat(below(random, 300)),
      units: { input_tokens: { $u64: "18446744073709551615" } },
      retry_after_s: 4294967295,
      item_index: 4294967295,
      inference_ms: { $f64: 1.5 },
      tokenization_ms: { $f64: 1.5 },
      postprocessing_ms: { $f64: 1.5 },
      result_msgpack: { $bin: "00".repeat(below(random, 70_000)) },
    });
    const payload = error === undefined ? outcome.outcome.resultLength : 0;
    const bound = outcomeResultBound(outcome.outcome, payload, error, stamp);
    const { length } = written(outcome, error, stamp);
    // Three bytes are reserved for each letter, of which ASCII needs one.
    const ascii = stamp.executedHash.length + (error?.code.length ?? 0);
    assert.ok(length <= bound && bound - length < 300 + 2 * ascii, `${length} bytes within ${bound}`);
    const work = decodeWorkItem(workItemBytes({ work_item_id: "w".repeat(below(random, 300)) }));
    const refusal = { code: "X", message: text };
    const writer = new MsgpackWriter();
    writeErrorResult(writer, work, refusal, 4294967295, stamp);
    assert.ok(writer.length <= errorResultBound(work, refusal, stamp));
  }
});

Deno.test("time in the queue is never negative, and 0 when the publication time is unknown", () => {
  assert.equal(queueMilliseconds(1_700_000_000_012.5, 1_700_000_000), 12.5);
  assert.equal(queueMilliseconds(1_700_000_000_000, 1_700_000_001), 0);
  for (const unknown of [0, -1, NaN, -Infinity]) assert.equal(queueMilliseconds(5, unknown), 0);
  assert.equal(queueMilliseconds(5, Infinity), 0);
});

/** A received message from its fields; those not given are left out. */
function received(fields: Record<string, unknown>) {
  return decodeWorkResult(encodeNotation(fields));
}

Deno.test("a receiver takes what the gateway takes", () => {
  const empty = received({});
  assert.deepEqual([empty.workItemId, empty.success, empty.resultMsgpack.length, empty.units], [
    "",
    false,
    0,
    undefined,
  ]);
  assert.equal(received({ inference_ms: 3 }).inferenceMs, 3);
  assert.equal(received({ queue_ms: { $f32: 0.5 } }).queueMs, 0.5);
  for (const form of [{ $bin: "6869" }, "hi", [104, 105]]) {
    assert.equal(new TextDecoder().decode(received({ result_msgpack: form }).resultMsgpack), "hi");
  }
  assert.equal(received({ result_msgpack: null }).resultMsgpack.length, 0);
  assert.equal(received({ units: { pairs: { $u64: "18446744073709551615" }, x: -1 } }).units?.pairs, (1n << 64n) - 1n);
  assert.deepEqual(received({ units: { pages: null } }).units, {});
  assert.equal(received({ unknown: [1], worker_direct: true }).workerDirect, true);
  const positional = decodeWorkResult(encodeNotation(["r.0", "r", 0, true, { $bin: "80" }, null, null, 1]));
  assert.deepEqual([positional.workItemId, positional.success, positional.inferenceMs], ["r.0", true, 1]);
});

Deno.test("a receiver drops what the gateway drops", () => {
  const dropped: Record<string, unknown>[] = [
    { item_index: { $f64: 1 } },
    { item_index: 4294967296 },
    { item_index: -1 },
    { units: { pages: { $f64: 1 } } },
    { units: { pages: -1 } },
    { retry_after_s: { $f64: 1 } },
    { success: null },
    { worker_direct: null },
    { work_item_id: null },
    { request_id: 5 },
    { result_msgpack: 5 },
    { result_msgpack: [256] },
    { error: { $raw_str: "ff" } },
    { $map: [["success", true], ["success", true]] },
  ];
  for (const fields of dropped) {
    assert.throws(() => received(fields), { name: "MsgpackError" }, JSON.stringify(fields));
  }
  for (const whole of ["text", 5, null]) assert.throws(() => decodeWorkResult(encodeNotation(whole)));
});

Deno.test("the top-level str key kind alone decides what an inbox message is", () => {
  const kindOf = (notation: unknown) => inboxMessageKind(encodeNotation(notation));
  for (const kind of ["result_chunk_v1", "chunk", "nak"]) assert.equal(kindOf({ request_id: "r", kind }), kind);
  assert.equal(kindOf({ kind: "chunk2" }), "result");
  assert.equal(kindOf({ kind: 1 }), "result");
  assert.equal(kindOf({ units: { kind: "chunk" } }), "result");
  assert.equal(kindOf({ $map: [[{ $bin: "6b696e64" }, "chunk"]] }), "result");
  assert.equal(kindOf({ $map: [[7, "kind"], ["kind", "nak"]] }), "nak");
  assert.equal(kindOf(["kind", "chunk"]), "result");
});
