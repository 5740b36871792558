/** Faults of the stream, the consumer and the messages: afterwards every item is answered, and few are run twice. */
import assert from "node:assert/strict";
import { AckPolicy } from "@nats-io/jetstream";
import { eventually } from "../harness/process.ts";
import { AckWatcher } from "./ack_watcher.ts";
import { duplicateRuns, reportFault } from "./fault_report.ts";
import { answered, concluded, DURABLE, goesOn, impatientRig, lane, STREAM } from "./fault_support.ts";
import { Pace } from "./paced.ts";
import { resultOf, type Script } from "./support.ts";

Deno.test("fault: the consumer is deleted while it is pulled from", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({ script: pace.script() });
  await rig.gateway.send({ items: 1_000 });
  pace.run(20);
  await eventually("a quarter is answered", () => answered(rig) >= 250);
  const held = lane(rig).held;
  await rig.manager.consumers.delete(STREAM, DURABLE);
  const deleted = performance.now();
  await eventually("the loop has made it anew", () => lane(rig).rebuilds === 1);
  await goesOn(rig);
  const recovered = performance.now() - deleted;
  assert.ok(recovered < 5_000, `recovered after ${recovered} ms`);
  assert.equal(lane(rig).state, "pulling");
  assert.ok(rig.metrics.states.includes("pool rebuilding"));
  // The new consumer knows nothing of what the old one had given out.
  await concluded(rig, held + rig.settings.pull.fetchBudget);
  reportFault("consumer deleted while pulling", rig, held, recovered);
});

Deno.test("fault: the consumer is deleted and made anew by somebody with a foreign filter", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({ script: pace.script() });
  await rig.gateway.send({ items: 200 });
  await eventually("all permits are out", () => pace.waiting === 64);
  await rig.manager.consumers.delete(STREAM, DURABLE);
  await rig.manager.consumers.add(STREAM, {
    durable_name: DURABLE,
    ack_policy: AckPolicy.Explicit,
    filter_subject: "sie.work.default.l4.default.another",
  }).catch((thrown: Error) => {
    // The loop may have been faster; then there is nothing foreign to correct.
    assert.match(thrown.message, /consumer already exists|exist/);
  });
  const deleted = performance.now();
  pace.run(20);
  await rig.gateway.answered();
  const { config } = await rig.consumerInfo();
  assert.equal(config.filter_subject, "sie.work.default.l4.default.*");
  await concluded(rig, 128);
  reportFault("consumer recreated with a foreign filter", rig, 64, performance.now() - deleted);
});

Deno.test("fault: the stream is deleted; the lane makes it anew and goes on", async () => {
  await using rig = await impatientRig({});
  await rig.gateway.send({ items: 10 });
  await rig.gateway.answered();
  await rig.settled();
  await rig.manager.streams.delete(STREAM);
  const deleted = performance.now();
  await eventually("it is there again", async () => (await rig.manager.streams.info(STREAM)).config.name === STREAM);
  await rig.gateway.send({ items: 10 });
  await rig.gateway.answered();
  const recovered = performance.now() - deleted;
  assert.ok(recovered < 10_000, `recovered after ${recovered} ms`);
  await concluded(rig, 0);
  reportFault("stream deleted", rig, 0, recovered);
});

Deno.test("fault: the stream is purged; what is held is still answered, what comes later too", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({ script: pace.script() });
  const first = await rig.gateway.send({ items: 500 });
  await eventually("all permits are out", () => pace.waiting === 64);
  await rig.manager.streams.purge(STREAM);
  const purged = performance.now();
  pace.run(20);
  await eventually("what was held is answered", () => first.results.size === 64);
  const later = await rig.gateway.send({ items: 100 });
  await eventually("new work is answered", () => later.complete);
  reportFault("stream purged (436 items thrown away by it)", rig, 64, performance.now() - purged);
  await rig.settled();
  assert.equal(duplicateRuns(rig), 0);
  await rig.stop();
});

Deno.test("fault: max_payload is lowered and the server reloaded", async () => {
  const big = new Uint8Array(600_000);
  const script: Script = async ({ delivery, work }) => {
    // What publish/ does with a result that is too large and may not be chunked.
    const whole = resultOf(work.workItemId, false, { result_msgpack: big });
    const error = {
      success: false,
      result_msgpack: new Uint8Array(0),
      error: "too large",
      error_code: "PAYLOAD_TOO_LARGE",
    };
    const fitting = whole.length <= delivery.maxPayload ? whole : resultOf(work.workItemId, false, error);
    const sent = delivery.publish(work.replySubject, fitting);
    if (sent !== undefined) await sent;
    delivery.ack("completed");
  };
  await using rig = await impatientRig({ script });
  const before = await rig.gateway.send({ items: 5 });
  await eventually("they fit", () => before.complete);
  assert.equal(rig.connection.maxPayload, 8 * 1024 * 1024);
  await rig.server.reload("max_payload: 256KB");
  const reloaded = performance.now();
  const after = await rig.gateway.send({ items: 5 });
  await eventually("they are answered, if only with an error", () => after.complete);
  const recovered = performance.now() - reloaded;
  assert.equal(rig.connection.maxPayload, 256 * 1024);
  assert.deepEqual([...after.results.values()].map(({ errorCode }) => errorCode), Array(5).fill("PAYLOAD_TOO_LARGE"));
  await concluded(rig, 5);
  reportFault("max_payload lowered", rig, 5, recovered);
});

Deno.test("fault: the stream is full; the gateway is refused, and the lane goes on when there is room", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({ script: pace.script() });
  await rig.manager.streams.update(STREAM, { max_msgs: 100 });
  await rig.gateway.send({ items: 100 });
  await assert.rejects(rig.gateway.send({ items: 1, requestId: "one-too-many" }), /maximum messages exceeded/);
  rig.gateway.requests.delete("one-too-many");
  const full = performance.now();
  pace.run(20);
  await rig.gateway.answered();
  await rig.gateway.send({ items: 100 });
  await concluded(rig, 0);
  reportFault("message cap reached", rig, 0, performance.now() - full);
});

Deno.test("fault: a poison message is given up after max_deliver and hurts nobody else", async () => {
  await using rig = await impatientRig({
    environment: { SIE_MAX_DELIVER: "3", SIE_NAK_DELAY_S: "0.05" },
  });
  const acks = await AckWatcher.start(rig.admin);
  const advisories: string[] = [];
  rig.admin.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", {
    callback: (_, message) => void advisories.push(message.string()),
  });
  await rig.admin.flush();
  await rig.gateway.sendRaw("sie.work.default.l4.default.test__model", Uint8Array.of(0xc1));
  await rig.gateway.send({ items: 50 });
  await rig.gateway.answered();
  await eventually("the broker gives it up", () => advisories.length === 1);
  assert.deepEqual(acks.of(1), Array(3).fill('-NAK {"delay":50000000}'));
  assert.equal(rig.metrics.counts["nak pool success retry"], 3);
  // It stays in the stream, for people to look at, until it is too old.
  assert.equal((await rig.manager.streams.info(STREAM)).state.messages, 1);
  assert.equal(rig.ledger.outstanding, 0);
  reportFault("poison message", rig, 0, 0);
  await rig.stop();
});

Deno.test("fault: the same item is delivered again while the first delivery still runs", async () => {
  using pace = new Pace();
  let silent = true;
  await using rig = await impatientRig({ script: pace.script(), mayProgress: () => !silent });
  const request = await rig.gateway.send({ items: 2 });
  await eventually("both have been delivered twice", () => pace.waiting === 4);
  silent = false;
  const numbers = new Set(rig.intake.arrivals.map(({ delivery }) => delivery.number));
  assert.equal(numbers.size, 4);
  assert.deepEqual(rig.intake.arrivals.map(({ delivery }) => delivery.attempt), [1, 1, 2, 2]);
  pace.release();
  await rig.gateway.answered();
  await rig.settled();
  assert.equal(request.results.size, 2);
  assert.deepEqual([...request.answers.values()], [2, 2]);
  assert.deepEqual(rig.ledger.counts, { opened: 4, acked: 4, naked: 0, left: 0, refused: 0 });
  reportFault("delivered again while the first runs", rig, 2, 0);
  await rig.stop();
});

Deno.test("a consumer that the broker holds back is said to be so, and goes on when it is resumed", async () => {
  await using rig = await impatientRig({});
  await rig.gateway.send({ items: 1 });
  await rig.gateway.answered();
  await rig.manager.consumers.pause(STREAM, DURABLE, new Date(Date.now() + 3_600_000));
  await rig.gateway.send({ items: 20 });
  await eventually("it is noticed", () => lane(rig).detail === "the consumer is paused on the broker");
  assert.equal(lane(rig).state, "pulling");
  await rig.manager.consumers.resume(STREAM, DURABLE);
  const resumed = performance.now();
  await rig.gateway.answered();
  reportFault("consumer paused on the broker", rig, 0, performance.now() - resumed);
  await concluded(rig, 0);
});

Deno.test("max_ack_pending used up by slow work is said, and nothing is healed that is not ill", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({ environment: { SIE_MAX_ACK_PENDING: "5" }, script: pace.script() });
  await rig.gateway.send({ items: 20 });
  await eventually("five are out", () => pace.waiting === 5);
  await eventually("it is noticed", () => lane(rig).detail === "all 5 of max_ack_pending are unsettled");
  const { state, repulls, rebuilds } = lane(rig);
  assert.deepEqual({ state, repulls, rebuilds }, { state: "pulling", repulls: 0, rebuilds: 0 });
  pace.run(5);
  await concluded(rig, 0);
});
