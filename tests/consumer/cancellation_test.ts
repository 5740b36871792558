/** Cancel signals on a real broker, and the 200 of them that arrive before, during and after their items. */
import assert from "node:assert/strict";
import { headers } from "@nats-io/nats-core";
import { settleBy } from "../../src/dispatch/settle_by.ts";
import type { Checkpoint } from "../../src/dispatch/views.ts";
import { eventually } from "../harness/process.ts";
import { answer, LANE, Rig, type Script } from "./support.ts";

const DELAYS = { baseMs: 5_000 };

/** Asks at two checkpoints, as dispatch does at seven; `between` is what preparation and queueing take. */
function checking(rig: () => Rig, between: () => Promise<void>): Script {
  const dropped = (arrival: Parameters<Script>[0], checkpoint: Checkpoint): boolean => {
    const reason = rig().cancellations.dropReason(arrival.work, arrival.delivery, checkpoint);
    if (reason !== undefined) settleBy(arrival.delivery, "cancelled", DELAYS);
    return reason !== undefined;
  };
  return async (arrival) => {
    if (dropped(arrival, "intake")) return;
    await between();
    if (dropped(arrival, "before_ipc")) return;
    await answer(arrival);
  };
}

Deno.test("200 cancels before, during and after their items: nothing cancelled in time is answered, nothing else is lost", async () => {
  const waiting: (() => void)[] = [];
  const box: { rig?: Rig } = {};
  await using rig = await Rig.start({
    idle: true,
    environment: { SIE_NATS_FETCH_BUDGET: "512", SIE_PULL_LOOP_MAX_OUTSTANDING: "512" },
    script: checking(() => box.rig ?? assert.fail(), () => new Promise<void>((resolve) => waiting.push(resolve))),
  });
  box.rig = rig;
  const before = Array.from({ length: 70 }, (_, i) => `before-${i}`);
  const during = Array.from({ length: 70 }, (_, i) => `during-${i}`);
  const after = Array.from({ length: 60 }, (_, i) => `after-${i}`);
  const kept = Array.from({ length: 100 }, (_, i) => `kept-${i}`);
  for (const id of before) rig.gateway.nats.publish(`work_cancel.gw-1.${id}`);
  await rig.gateway.nats.flush();
  await eventually("70 are remembered", () => rig.cancellations.size.requests === 70);
  const all = [...before, ...during, ...after, ...kept];
  const requests = await Promise.all(all.map((requestId) => rig.gateway.send({ requestId })));
  rig.consumer.startPulling();
  await eventually("the others have passed the first checkpoint", () => waiting.length === 230);
  for (const id of during) await rig.gateway.cancel(id);
  await eventually("140 are remembered", () => rig.cancellations.size.requests === 140);
  waiting.splice(0).forEach((resolve) => resolve());
  const answered = () => requests.filter((request) => request.complete).length;
  await eventually("what was not cancelled is answered", () => answered() === 160);
  for (const id of after) await rig.gateway.cancel(id);
  await rig.settled();
  assert.equal(rig.metrics.counts["ack pool success completed"], 300);
  assert.equal(rig.gateway.strays, 0, "a cancelled request was answered");
  const names = new Set(requests.filter((request) => request.complete).map(({ requestId }) => requestId));
  assert.deepEqual([...after, ...kept].filter((id) => !names.has(id)), []);
  assert.equal(rig.intake.arrivals.length, 300);
  await rig.stop();
});

Deno.test("signals that the broker delivers for somebody else are dropped", async () => {
  await using rig = await Rig.start();
  const { nats } = rig.gateway;
  nats.publish("work_cancel.gw-1.with-reply", new Uint8Array(0), { reply: "somewhere" });
  const foreign = headers();
  foreign.set("Nats-Stream", "COPIES");
  nats.publish("work_cancel.gw-1.with-header", new Uint8Array(0), { headers: foreign });
  nats.publish("cancel.gw-1.with-reply", new Uint8Array(0), { reply: "somewhere" });
  nats.publish("work_cancel.gw-1");
  nats.publish("work_cancel..no-router");
  nats.publish("work_cancel.gw-1.good");
  await nats.flush();
  await eventually("the good one is remembered", () => rig.cancellations.size.requests > 0);
  assert.deepEqual(rig.cancellations.size, { requests: 1, batches: 0 });
  assert.deepEqual(rig.generateCancels, []);
  await rig.stop();
});

Deno.test("every generation cancel goes to the backend and is remembered", async () => {
  await using rig = await Rig.start();
  await rig.gateway.cancelGeneration("gen.with.dots");
  await rig.gateway.cancelGeneration("gen-2");
  await eventually("both are passed on", () => rig.generateCancels.length === 2);
  assert.deepEqual(rig.generateCancels, ["gen.with.dots", "gen-2"]);
  assert.equal(rig.cancellations.size.requests, 2);
  await rig.stop();
});

Deno.test("a direct copy that was called back does not run; its pool copy does", async () => {
  const waiting: (() => void)[] = [];
  const box: { rig?: Rig } = {};
  await using rig = await Rig.start({
    script: checking(() => box.rig ?? assert.fail(), () => new Promise<void>((resolve) => waiting.push(resolve))),
  });
  box.rig = rig;
  const requestId = "direct-1";
  const request = await rig.gateway.send({ requestId, items: 3, worker: LANE.workerId });
  await eventually("the direct copies wait", () => waiting.length === 3);
  await rig.gateway.republishToPool({ requestId, worker: LANE.workerId });
  await eventually("the pool copies wait too", () => waiting.length === 6);
  await eventually("the call is remembered", () => rig.cancellations.size.batches === 1);
  waiting.splice(0).forEach((resolve) => resolve());
  await rig.gateway.answered();
  await rig.settled();
  assert.ok([...request.results.values()].every((result) => !result.workerDirect));
  assert.deepEqual(rig.gateway.totals(), { sent: 3, answered: 3, duplicated: 0 });
  // Another worker's copies are none of ours.
  rig.gateway.nats.publish("batch_cancel.gw-1.worker-2.other");
  await rig.gateway.nats.flush();
  await rig.connection.flush();
  assert.equal(rig.cancellations.size.batches, 1);
  await rig.stop();
});
