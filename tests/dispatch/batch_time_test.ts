/** What dispatch tells a predictor of batch times, and when. */
import assert from "node:assert/strict";
import type { BatchTimes } from "../../src/dispatch/batch_time.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { sleep } from "../../src/runtime/clock.ts";
import type { BatchShape } from "../../src/scheduler/batch_shape.ts";
import { batchAnswer, success } from "./doubles.ts";
import { Rig, take } from "./rig.ts";

/** Remembers what it is told. */
class Recorder implements BatchTimes {
  readonly begun: BatchShape[] = [];
  readonly measured: number[] = [];
  predictedMs: number | undefined;

  begin(shape: BatchShape) {
    this.begun.push(shape);
    return { predictedMs: this.predictedMs, ended: (ms: number) => void this.measured.push(ms) };
  }
}

const SCORE = { operation: "score", model_id: "m", item: null, query_item: { text: "12345" } };

function documents(...lengths: number[]) {
  return { ...SCORE, score_items: lengths.map((length) => ({ text: "x".repeat(length) })) };
}

Deno.test("each batch is told with its sizes and its load, and its time with what the backend says, else as it was seen", async () => {
  const batchTimes = new Recorder();
  const rig = new Rig({ batchTimes });
  rig.backend.answer = async ({ entries }) => {
    await sleep(rig.clock, 12);
    return batchAnswer(entries.map(({ work }) => success(work.workItemId, { inference_ms: null })));
  };
  const arrivals = [
    rig.arrival({ ...documents(10), request_id: "a" }),
    rig.arrival({ ...documents(30, 5), request_id: "b" }),
    rig.arrival({ ...documents(2), request_id: "c" }),
  ];
  await take(rig, arrivals);
  assert.deepEqual(batchTimes.begun, [{
    modelId: "m",
    operation: "score",
    items: 3,
    cost: 15 + 45 + 7,
    longest: 45,
    queueDepth: 0,
    inFlight: 0,
  }]);
  assert.deepEqual(batchTimes.measured, [12]);
  rig.backend.answer = async ({ entries }) => {
    await sleep(rig.clock, 12);
    return batchAnswer(entries.map(({ work }) => success(work.workItemId, { inference_ms: 3.5 })));
  };
  await take(rig, [rig.arrival({ ...documents(1), request_id: "d" })]);
  assert.deepEqual(batchTimes.measured, [12, 3.5]);
});

Deno.test("the load of a batch: what waits on, and what is in flight", async () => {
  const batchTimes = new Recorder();
  const rig = new Rig({ batchTimes });
  rig.backend.answer = async ({ entries }) => {
    await sleep(rig.clock, 100);
    return batchAnswer(entries.map(({ work }) => success(work.workItemId)));
  };
  await take(rig, rig.arrivals(30, { ...documents(4) }));
  assert.deepEqual(batchTimes.begun.map(({ items, queueDepth, inFlight }) => [items, queueDepth, inFlight]), [
    [12, 18, 0],
    [12, 6, 1],
    [6, 0, 1],
  ]);
});

Deno.test("a batch that fails, or of errors alone, has no time; work ends as it would without a predictor", async () => {
  const batchTimes = new Recorder();
  const rig = new Rig({ batchTimes });
  rig.backend.answer = () => {
    throw new IpcError("timeout", "no answer");
  };
  const failed = rig.arrivals(2, { request_id: "failed" });
  await take(rig, failed);
  rig.backend.answer = ({ entries }) =>
    batchAnswer(
      entries.map(({ work }) =>
        success(work.workItemId, { disposition: "publish_error_and_ack", error: "no", error_code: "INVALID_INPUT" })
      ),
    );
  const refused = rig.arrivals(2, { request_id: "refused" });
  await take(rig, refused);
  assert.deepEqual([batchTimes.begun.length, batchTimes.measured.length], [2, 0]);
  assert.deepEqual([...failed, ...refused].map(({ delivery }) => delivery.settlement?.did), [
    "nak",
    "nak",
    "ack",
    "ack",
  ]);
  assert.deepEqual(rig.trace.filter(({ kind }) => kind === "batch_time"), []);
});

Deno.test("the trace has the prediction beside the measured time, and neither without a predictor", async () => {
  const batchTimes = new Recorder();
  batchTimes.predictedMs = 2;
  const rig = new Rig({ batchTimes });
  await take(rig, [rig.arrival()]);
  const [batch] = rig.trace.filter(({ kind }) => kind === "batch");
  assert.equal(batch?.kind === "batch" && batch.predictedMs, 2);
  const { at, ...time } = rig.trace.find(({ kind }) => kind === "batch_time") ?? {};
  assert.ok(typeof at === "number");
  assert.deepEqual(time, { kind: "batch_time", batch: 0, measuredMs: 1.5, predictedMs: 2 });

  const without = new Rig();
  await take(without, [without.arrival()]);
  assert.ok(without.trace.every((event) => event.kind !== "batch_time" && !("predictedMs" in event)));
});
