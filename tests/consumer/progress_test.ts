/** Progress on a real broker: nothing that is held is delivered again, and nothing settled hears of it. */
import assert from "node:assert/strict";
import { nanos } from "@nats-io/nats-core";
import { eventually } from "../harness/process.ts";
import { AckWatcher } from "./ack_watcher.ts";
import { answer, Rig, type RigOptions } from "./support.ts";

/** A rig whose pool consumer has been given a short ack wait by somebody: it is kept, and it is what counts. */
async function rigWithAckWait(ackWaitMs: number, options: RigOptions): Promise<Rig> {
  const rig = await Rig.start({ ...options, idle: true });
  await rig.manager.consumers.update("WORK_POOL_default", "default_l4_default", { ack_wait: nanos(ackWaitMs) });
  await rig.consumer.reconcile();
  rig.consumer.startPulling();
  return rig;
}

/** Lets real time pass: here what does not happen in it is what is tested. */
async function pass(ms: number): Promise<void> {
  const end = performance.now() + ms;
  await eventually(`${ms} ms have passed`, () => performance.now() >= end);
}

Deno.test("a held delivery outlives many ack waits, and hears nothing after its settlement", async () => {
  const free: (() => void)[] = [];
  await using rig = await rigWithAckWait(600, {
    script: async (arrival) => {
      await new Promise<void>((resolve) => free.push(resolve));
      await answer(arrival);
    },
  });
  const acks = await AckWatcher.start(rig.admin);
  await rig.gateway.send({ items: 5 });
  await eventually("five ack waits have passed", () => acks.count("+WPI") >= 5 * 3 * 5);
  assert.equal(rig.intake.arrivals.length, 5);
  assert.equal(rig.consumer.report().lanes[0]?.kept, 5);
  free.splice(0).forEach((resolve) => resolve());
  await rig.settled();
  assert.equal(rig.consumer.report().lanes[0]?.kept, 0);
  await pass(500);
  for (let sequence = 1; sequence <= 5; sequence++) {
    const bodies = acks.of(sequence);
    assert.equal(bodies.indexOf("+ACK"), bodies.length - 1, `message ${sequence}: ${bodies.slice(-3)}`);
  }
  assert.equal((await rig.consumerInfo()).num_redelivered, 0);
  await rig.stop();
});

Deno.test("1,000 items at a backend that does 12 at a time finish without a single one being run twice", async () => {
  const waiting: (() => void)[] = [];
  const pump = setInterval(() => waiting.splice(0, 12).forEach((run) => run()), 100);
  try {
    await using rig = await rigWithAckWait(1_000, {
      environment: { SIE_NATS_FETCH_BUDGET: "256", SIE_PULL_LOOP_MAX_OUTSTANDING: "1000" },
      script: async (arrival) => {
        await new Promise<void>((resolve) => waiting.push(resolve));
        await answer(arrival);
      },
    });
    await rig.gateway.send({ items: 1_000 });
    await rig.gateway.answered();
    await rig.settled();
    assert.deepEqual(rig.gateway.totals(), { sent: 1_000, answered: 1_000, duplicated: 0 });
    assert.equal(rig.intake.arrivals.length, 1_000);
    assert.equal((await rig.consumerInfo()).num_redelivered, 0);
    await rig.stop();
  } finally {
    clearInterval(pump);
  }
});

Deno.test("while the backend has fallen silent nothing is kept alive: the broker gives it to others", async () => {
  let silent = true;
  const free: (() => void)[] = [];
  await using rig = await rigWithAckWait(600, {
    mayProgress: () => !silent,
    script: async (arrival) => {
      if (arrival.delivery.attempt > 1) return await answer(arrival);
      await new Promise<void>((resolve) => free.push(resolve));
      arrival.delivery.leave("crashed");
    },
  });
  const acks = await AckWatcher.start(rig.admin);
  const request = await rig.gateway.send({ items: 1 });
  await eventually("it is delivered again and answered", () => request.complete);
  assert.equal(acks.count("+WPI"), 0);
  silent = false;
  free.splice(0).forEach((resolve) => resolve());
  await rig.settled();
  await rig.stop();
});
