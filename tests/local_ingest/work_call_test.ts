/** `publish_work` (spec/local-ingest.md 6): results, redelivery in the lane, deadline, shutdown. */
import assert from "node:assert/strict";
import type { Arrival, WorkIntake } from "../../src/dispatch/intake.ts";
import { decodeValue } from "../../src/client/values.ts";
import { decodeWorkResult, type WorkResult } from "../../src/wire/work_result_reader.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { batchAnswer, success } from "../dispatch/doubles.ts";
import { msgpack } from "../harness/work_items.ts";
import { settle } from "../sim/virtual_clock.ts";
import { callBody, IngestRig, requestFrame, type RigClient, workFrame } from "./rig.ts";

/** Takes work and does with each arrival what a test says. */
class Scripted implements WorkIntake {
  readonly attempts: number[] = [];
  readonly arrivals: Arrival[] = [];
  constructor(readonly act: (arrival: Arrival) => void = () => {}) {}

  accept(arrivals: readonly Arrival[]): Promise<void> {
    for (const arrival of arrivals) {
      this.attempts.push(arrival.delivery.attempt);
      this.arrivals.push(arrival);
      this.act(arrival);
    }
    return Promise.resolve();
  }
}

function resultsOf(client: RigClient, id: number): WorkResult[] {
  const [answer, ...more] = client.answersTo(id);
  assert.equal(more.length, 0);
  assert.ok(answer?.ok && answer.body.kind === "results", answer?.ok === false ? answer.error : "no results");
  const { results } = answer.body;
  const reader = new MsgpackReader(results);
  const found: WorkResult[] = [];
  for (let left = reader.arrayHeader(); left > 0; left--) {
    const start = reader.pos;
    reader.skip();
    found.push(decodeWorkResult(results.subarray(start, reader.pos)));
  }
  return found;
}

async function ended(client: RigClient): Promise<void> {
  client.stream.end();
  await client.ended;
}

Deno.test("results come in the order of the items, not of their indexes or their settlement", async () => {
  const rig = new IngestRig();
  rig.backend.answer = (body) => batchAnswer(body.entries.map(({ work }) => success(work.workItemId)).reverse());
  const client = rig.connect();
  const items = [2, 0, 1].map((index) => ({ item_index: index, work_item_id: `req.${index}` }));
  await client.send(requestFrame(1, "publish_work", callBody("req", "encode", items)));
  await rig.clock.advance(50);
  assert.deepEqual(resultsOf(client, 1).map(({ itemIndex }) => itemIndex), [2, 0, 1]);
  await ended(client);
});

Deno.test("calls coalesce: their items run in one batch", async () => {
  const rig = new IngestRig();
  // A batch keeps the backend busy while the calls come.
  const gate = Promise.withResolvers<void>();
  const { answer } = rig.backend;
  rig.backend.answer = async (body) => {
    await gate.promise;
    return await answer(body);
  };
  const clients = [rig.connect(), rig.connect(), rig.connect()];
  for (const [i, client] of clients.entries()) await client.send(workFrame(1, `req-${i}`, 2));
  await rig.clock.advance(5);
  gate.resolve();
  await rig.clock.advance(500);
  for (const client of clients) assert.equal(resultsOf(client, 1).length, 2);
  assert.ok(rig.backend.batches.length < 6, `${rig.backend.batches.length} batches`);
  for (const client of clients) await ended(client);
});

Deno.test("items beyond the model's batch budget are sent back and get through one by one", async () => {
  const rig = new IngestRig({ fetchBudget: 4 });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 10));
  await rig.clock.advance(99);
  assert.equal(client.answersTo(1).length, 0);
  await rig.clock.advance(50);
  const results = resultsOf(client, 1);
  assert.deepEqual(results.map(({ success }) => success), new Array(10).fill(true));
  const { counts, outstanding } = rig.parts.ledger;
  assert.deepEqual([counts.naked, counts.acked, outstanding], [6, 10, 0]);
  await ended(client);
});

Deno.test("an item whose hash the worker never accepts ends in an error after three more attempts", async () => {
  const rig = new IngestRig({ hash: "held" });
  const client = rig.connect();
  const body = callBody("req", "encode", [{ bundle_config_hash: "other" }]);
  await client.send(requestFrame(1, "publish_work", { ...body, bundleConfigHash: "other", timeoutMs: 60_000n }));
  await rig.clock.advance(60_000);
  const [result] = resultsOf(client, 1);
  assert.equal(result?.success, false);
  assert.equal(result?.errorCode, "inference_error");
  assert.equal(
    result?.error,
    'worker requested redelivery (nak) for "req.0" but the local-ingest lane has no broker redelivery; ' +
      "exhausted 3 in-lane retries",
  );
  assert.equal(result?.resultMsgpack.length, 0);
  assert.equal(result?.workerDirect, true);
  assert.deepEqual([result?.queueMs, result?.inferenceMs], [undefined, undefined]);
  // Four attempts, and the one that carried the error.
  assert.deepEqual([rig.parts.ledger.counts.naked, rig.parts.ledger.counts.acked], [4, 1]);
  await ended(client);
});

Deno.test("an attempt is made again after its delay, at most 5 s later", async () => {
  const intake = new Scripted(({ delivery }) => {
    if (delivery.attempt === 1) delivery.nak(700, "retry");
    else if (delivery.attempt === 2) delivery.nak(3_600_000, "retry");
  });
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 1, { timeoutMs: 300_000n }));
  await rig.clock.advance(699);
  assert.deepEqual(intake.attempts, [1]);
  await rig.clock.advance(1);
  assert.deepEqual(intake.attempts, [1, 2]);
  await rig.clock.advance(4999);
  assert.deepEqual(intake.attempts, [1, 2]);
  await rig.clock.advance(1);
  assert.deepEqual(intake.attempts, [1, 2, 3]);
  await ended(client);
});

Deno.test("thousands of items that come back at once wait under one timer and are attempted again in slices", async () => {
  const intake = new Scripted(({ delivery }) => {
    if (delivery.attempt === 1) delivery.nak(100, "retry");
    else {
      delivery.publish("", msgpack({}));
      delivery.ack("completed");
    }
  });
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 1000, { timeoutMs: 5000n }));
  // The other one is the deadline of the call.
  assert.equal(rig.clock.timerCount, 2);
  // Whatever else is due at that time has its turn before the last of them.
  let attempted = 0;
  rig.clock.after(100, () => {
    attempted = intake.attempts.length - 1000;
  });
  await rig.clock.advance(100);
  assert.ok(attempted > 0 && attempted < 1000, `${attempted} of 1000 in one go`);
  assert.equal(client.answersTo(1)[0]?.ok, true);
  assert.deepEqual(intake.attempts.slice(1000), new Array(1000).fill(2));
  await ended(client);
});

Deno.test("an item left by a crash is attempted again; one left by the shutdown ends the call", async () => {
  const intake = new Scripted(({ delivery }) => {
    if (delivery.attempt === 1) delivery.leave("crashed");
    else delivery.leave("shutdown");
  });
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 2, { timeoutMs: 300_000n }));
  await rig.clock.advance(5000);
  // The second item is not attempted again: the call was over by then.
  assert.deepEqual(intake.attempts, [1, 1, 2]);
  assert.deepEqual(client.errorsOf(1), ["cancelled"]);
  await ended(client);
});

Deno.test("the first result of an item counts, and an acknowledgement without one becomes an error", async () => {
  const intake = new Scripted(({ delivery, work }) => {
    if (work.itemIndex === 0) {
      delivery.publish("", batchResult("first"));
      delivery.publish("", batchResult("second"));
    }
    delivery.ack("completed");
    // A second settlement does nothing.
    delivery.nak(0, "retry");
  });
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 2));
  const [first, second] = resultsOf(client, 1);
  assert.equal(first?.workItemId, "first");
  assert.equal(second?.errorCode, "internal_error");
  assert.equal(rig.parts.ledger.counts.refused, 2);
  assert.equal(rig.parts.ledger.outstanding, 0);
  await ended(client);
});

Deno.test("after the deadline the work runs on, its result is dropped, and nothing is attempted again", async () => {
  const intake = new Scripted();
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 2, { lane: "a|b|c", timeoutMs: 250n }));
  await rig.clock.advance(249);
  assert.equal(client.responses().length, 0);
  await rig.clock.advance(1);
  assert.deepEqual(client.errorsOf(1), ["TimeoutError: publish_work timed out after 250ms (lane 'a|b|c')"]);
  const [one, two] = intake.arrivals;
  one?.delivery.publish("", batchResult("late"));
  one?.delivery.ack("completed");
  two?.delivery.nak(0, "retry");
  await rig.clock.advance(10_000);
  assert.equal(client.responses().length, 1);
  assert.deepEqual(intake.attempts, [1, 1]);
  assert.equal(rig.parts.ledger.outstanding, 0);
  await ended(client);
  assert.equal(rig.clock.timerCount, 0);
});

Deno.test("no timeout is one of 300 s", async () => {
  const rig = new IngestRig({ intake: new Scripted() });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 1, { timeoutMs: 0n }));
  await rig.clock.advance(299_999);
  assert.equal(client.responses().length, 0);
  await rig.clock.advance(1);
  assert.match(client.errorsOf(1)[0] ?? "", /timed out after 300000ms/);
  await ended(client);
});

Deno.test("shutdown answers running calls with exactly `cancelled`, then the connection ends", async () => {
  const intake = new Scripted();
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "a"), workFrame(2, "b", 3));
  const down = client.connection.shutdown();
  await Promise.all([down, client.ended]);
  assert.deepEqual([client.errorsOf(1), client.errorsOf(2)], [["cancelled"], ["cancelled"]]);
  assert.deepEqual(client.end, { kind: "shut_down" });
  assert.equal(client.stream.closed, true);
  // What was dispatched still settles, into nothing.
  for (const { delivery } of intake.arrivals) delivery.ack("completed");
  assert.equal(rig.parts.ledger.outstanding, 0);
  assert.equal(rig.clock.timerCount, 0);
});

Deno.test("a closed connection does not stop the work", async () => {
  const intake = new Scripted();
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "a"));
  await ended(client);
  const [arrival] = intake.arrivals;
  arrival?.delivery.publish("", batchResult("late"));
  arrival?.delivery.ack("completed");
  assert.equal(client.stream.written().length, 0);
  assert.equal(rig.parts.ledger.outstanding, 0);
});

Deno.test("a loading model holds the items; a failed load is a result of each", async () => {
  const rig = new IngestRig();
  let state: "loading_started" | "failed" = "loading_started";
  rig.backend.readiness = () => ({ state });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 2, { timeoutMs: 60_000n }));
  await rig.clock.advance(3000);
  assert.equal(client.responses().length, 0);
  state = "failed";
  await rig.clock.advance(30_000);
  const results = resultsOf(client, 1);
  assert.deepEqual(results.map(({ errorCode }) => errorCode), ["MODEL_LOAD_FAILED", "MODEL_LOAD_FAILED"]);
  await ended(client);
});

Deno.test("refused items get their typed result and the others go on", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  const items = [{}, { admission_pool: "other" }, { admission_pool: " Default " }];
  await client.send(requestFrame(1, "publish_work", callBody("req", "encode", items)));
  await rig.clock.advance(50);
  const results = resultsOf(client, 1);
  assert.deepEqual(results.map(({ success }) => success), [true, false, true]);
  assert.equal(results[1]?.errorCode, "pool_admission_rejected");
  assert.deepEqual(decodeValue(results[0]?.resultMsgpack ?? new Uint8Array()), { answer: "req.0" });
  await settle();
  await ended(client);
});

Deno.test("results that fit no frame are replaced by an error", async () => {
  const blob = new Uint8Array(33 * 1024 * 1024);
  const intake = new Scripted(({ delivery }) => {
    delivery.publish("", blob);
    delivery.ack("completed");
  });
  const rig = new IngestRig({ intake });
  const client = rig.connect();
  await client.send(workFrame(1, "req", 2));
  assert.deepEqual(client.errorsOf(1), ["ResultTooLarge: response frame exceeds 67108864 bytes"]);
  await ended(client);
});

/** A WorkResult with this item id. */
function batchResult(workItemId: string): Uint8Array {
  return msgpack({ work_item_id: workItemId });
}
