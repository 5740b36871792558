/** The pull loop on a real broker: credit, permits, batches, bytes, gates and what comes back to the gateway. */
import assert from "node:assert/strict";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { eventually } from "../harness/process.ts";
import { answer, LANE, Rig } from "./support.ts";

Deno.test("work of both lanes is taken, answered and removed", async () => {
  await using rig = await Rig.start();
  await rig.gateway.send({ items: 200 });
  await rig.gateway.send({ items: 20, worker: LANE.workerId });
  await rig.gateway.answered();
  await rig.settled();
  assert.deepEqual(rig.gateway.totals(), { sent: 220, answered: 220, duplicated: 0 });
  const direct = rig.intake.arrivals.filter(({ delivery }) => delivery.workerDirect);
  assert.equal(direct.length, 20);
  assert.ok(direct.every(({ delivery }) => delivery.source === "direct" && delivery.attempt === 1));
  assert.deepEqual(rig.metrics.counts["receive pool first"], 200);
  assert.deepEqual(rig.metrics.counts["ack pool success completed"], 200);
  assert.ok(Math.max(...rig.intake.batches) <= rig.settings.pull.fetchBudget);
  await rig.stop();
});

Deno.test("no more than the permits allow is ever held, however much waits", async () => {
  let held = 0, most = 0;
  const free: (() => void)[] = [];
  await using rig = await Rig.start({
    environment: { SIE_NATS_FETCH_BUDGET: "16", SIE_PULL_LOOP_MAX_OUTSTANDING: "24" },
    script: async (arrival) => {
      most = Math.max(most, ++held);
      await new Promise<void>((resolve) => free.push(resolve));
      held--;
      await answer(arrival);
    },
  });
  await rig.gateway.send({ items: 200 });
  await eventually("all permits are out", () => held === 24);
  // What the broker still owes is nothing: no message sits in a local buffer with its ack wait running.
  await eventually("the broker owes nothing", () => rig.consumer.report().lanes[0]?.credit === 0);
  assert.equal((await rig.consumerInfo()).num_ack_pending, 24);
  const pump = setInterval(() => free.splice(0).forEach((resolve) => resolve()), 1);
  await rig.gateway.answered();
  clearInterval(pump);
  assert.equal(most, 24);
  await rig.settled();
  await rig.stop();
});

Deno.test("a delivery that gives its permit back makes room while it is held", async () => {
  const parked: (() => void)[] = [];
  await using rig = await Rig.start({
    environment: { SIE_NATS_FETCH_BUDGET: "4", SIE_PULL_LOOP_MAX_OUTSTANDING: "4" },
    script: async (arrival) => {
      if (arrival.work.modelId !== "cold/model") return await answer(arrival);
      arrival.delivery.releasePermit();
      arrival.delivery.releasePermit();
      await new Promise<void>((resolve) => parked.push(resolve));
      await answer(arrival);
    },
  });
  const cold = await rig.gateway.send({ items: 8, fields: { model_id: "cold/model" } });
  await eventually("the cold items are held", () => parked.length === 8);
  assert.equal(rig.consumer.report().lanes[0]?.held, 8);
  assert.equal(cold.complete, false);
  parked.forEach((resolve) => resolve());
  await rig.gateway.send({ items: 8 });
  await rig.gateway.answered();
  await rig.settled();
  await rig.stop();
});

Deno.test("pulling stops at the high mark of the byte budget and goes on at the low one", async () => {
  const free: (() => void)[] = [];
  const budget = new ByteBudget({ limit: 1 << 20, high: 60_000, low: 20_000 });
  await using rig = await Rig.start({
    budget,
    environment: { SIE_NATS_FETCH_BUDGET: "2", SIE_PULL_LOOP_MAX_OUTSTANDING: "64" },
    script: async (arrival) => {
      await new Promise<void>((resolve) => free.push(resolve));
      await answer(arrival);
    },
  });
  await rig.gateway.send({ items: 30, fields: { item: { text: "x".repeat(10_000) } } });
  await eventually("the lane is paused", () => rig.consumer.report().lanes[0]?.state === "paused");
  const { detail, held } = rig.consumer.report().lanes[0] ?? assert.fail();
  assert.match(detail, /bytes are in work; the high mark is 60000/);
  // At most the credit of the last request came on top of what made six items reach the mark.
  assert.ok(held >= 6 && held <= 9, `${held} items are held`);
  const pump = setInterval(() => free.splice(0).forEach((resolve) => resolve()), 1);
  await rig.gateway.answered();
  clearInterval(pump);
  await rig.settled();
  await rig.stop();
});

Deno.test("a single message does not wait for company longer than the quantum", async () => {
  await using rig = await Rig.start();
  await rig.gateway.send({ items: 1 });
  await rig.gateway.answered();
  assert.deepEqual(rig.intake.batches, [1]);
  await rig.settled();
  await rig.stop();
});

Deno.test("while it shuts down, what has arrived is handed to other workers and nothing more is run", async () => {
  const free: (() => void)[] = [];
  await using rig = await Rig.start({
    environment: { SIE_NATS_FETCH_BUDGET: "4", SIE_PULL_LOOP_MAX_OUTSTANDING: "12", SIE_PULL_LOOP_INFLIGHT: "1" },
    script: async (arrival) => {
      await new Promise<void>((resolve) => free.push(resolve));
      await answer(arrival);
    },
  });
  rig.intake.waits = true;
  await rig.gateway.send({ items: 40 });
  await eventually(
    "one batch runs, others wait for it",
    () => Promise.resolve(free.length > 0 && rig.consumer.report().lanes[0]?.held === 12),
  );
  const running = free.length;
  rig.consumer.stopPulling();
  free.splice(0).forEach((resolve) => resolve());
  assert.ok(await rig.consumer.joinTasks(10_000));
  assert.equal(rig.intake.arrivals.length, running);
  assert.equal(rig.ledger.outstanding, 0);
  assert.equal(rig.metrics.counts["nak pool success retry"], 12 - running);
  assert.equal(rig.consumer.report().lanes[0]?.state, "stopped");
  await rig.stop();
});
