import assert from "node:assert/strict";
import { DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import type { CompletedWave } from "../../src/scheduler/batch_controller.ts";
import { BatchConfigError } from "../../src/scheduler/errors.ts";
import { ModelScheduler } from "../../src/scheduler/model_scheduler.ts";
import { settle } from "../sim/virtual_clock.ts";
import { testItem } from "./naive_model.ts";
import { ENCODE, SchedulerRig } from "./scheduler_rig.ts";

const EXTRACT = { operation: "extract", lora: "" } as const;

/** Sends two items at time 0 and ends their batch, so that the loop is no longer idle. */
async function warmUp(rig: SchedulerRig): Promise<void> {
  rig.scheduler.submit(ENCODE, [testItem("warm1"), testItem("warm2")]);
  await settle();
  await rig.endOldest();
  rig.batches.length = 0;
}

Deno.test("what is submitted in one go leaves together, even item by item", async () => {
  const rig = new SchedulerRig();
  for (const name of ["a", "b", "c"]) rig.scheduler.submit(ENCODE, [testItem(name)]);
  assert.equal(rig.scheduler.pendingItems, 3);
  assert.equal(rig.batches.length, 0, "nothing runs inside submit");
  await settle();
  assert.deepEqual(rig.contents, ["a b c"]);
  assert.deepEqual([rig.scheduler.pendingItems, rig.scheduler.pendingCost, rig.scheduler.inflightBatches], [0, 0, 1]);
});

Deno.test("no more batches than permits; what came meanwhile is drained with the continuation permit", async () => {
  const rig = new SchedulerRig({ pipelineDepth: 1 });
  rig.scheduler.submit(ENCODE, [testItem("a")]);
  await settle();
  rig.scheduler.submit(ENCODE, [testItem("b", { cost: 2 }), testItem("c")]);
  await rig.clock.advance(1000);
  assert.deepEqual(rig.contents, ["a"]);
  await rig.endOldest();
  assert.deepEqual(rig.contents, ["a", "c b"]);
  assert.deepEqual(rig.batches[1]?.role, "drain");
});

Deno.test("the drain of a wave is bounded by what was there when its permit came", async () => {
  const rig = new SchedulerRig({ pipelineDepth: 1, config: { ...DEFAULT_BATCH_CONFIG, maxBatchRequests: 2 } });
  rig.scheduler.submit(ENCODE, ["a", "b", "c", "d", "e"].map((name) => testItem(name)));
  await settle();
  await rig.endOldest();
  rig.scheduler.submit(ENCODE, [testItem("late1"), testItem("late2")]);
  await settle();
  await rig.endOldest();
  await rig.endOldest();
  assert.deepEqual(rig.batches.map(({ role, items }) => [role, ...items]), [
    ["primary", "a", "b"],
    ["drain", "c", "d"],
    ["drain", "e"],
    ["primary", "late1", "late2"],
  ]);
});

Deno.test("removing the oldest item lets the next key have its turn in its own time", async () => {
  const rig = new SchedulerRig();
  await warmUp(rig);
  const first = testItem("first");
  rig.scheduler.submit({ operation: "encode", lora: "x" }, [first]);
  await rig.clock.advance(1);
  rig.scheduler.submit(ENCODE, Array.from({ length: 12 }, (_, i) => testItem(`b${i}`)));
  await rig.clock.advance(1);
  assert.equal(rig.batches.length, 0, "the full key waits behind the older one");
  assert.equal(rig.scheduler.remove(first), true);
  await settle();
  assert.deepEqual(rig.batches.map(({ t, reason, items }) => [t, reason, items.length]), [[2, "count_cap", 12]]);
  assert.equal(rig.scheduler.remove(first), false, "it is gone");
});

Deno.test("an item in flight cannot be removed", async () => {
  const rig = new SchedulerRig();
  const item = testItem("a");
  rig.scheduler.submit(ENCODE, [item]);
  await settle();
  assert.equal(rig.scheduler.remove(item), false);
  const other = new SchedulerRig();
  const elsewhere = testItem("b");
  other.scheduler.submit(ENCODE, [elsewhere]);
  assert.equal(rig.scheduler.remove(elsewhere), false, "it waits in another scheduler");
  assert.equal(other.scheduler.pendingItems, 1);
});

Deno.test("LoRA names that clients make up do not stay in memory", async () => {
  const rig = new SchedulerRig();
  for (let i = 0; i < 100; i++) {
    const item = testItem(`i${i}`);
    rig.scheduler.submit({ operation: "encode", lora: `lora-${i}` }, [item]);
    if (i % 2 === 0) rig.scheduler.remove(item);
    else {
      await settle();
      while (rig.open.length > 0) await rig.endOldest();
    }
    await rig.clock.advance(100);
    while (rig.open.length > 0) await rig.endOldest();
  }
  assert.equal(rig.batches.length, 50);
  assert.equal(rig.scheduler.keyCount, 0);
  assert.throws(() => rig.scheduler.submit({ operation: "encode", lora: "bad" }, [testItem("x", { cost: NaN })]));
  assert.equal(rig.scheduler.keyCount, 0, "a refused submission leaves no key behind");
});

Deno.test("items of a LoRA key that come while its wave waits for the permit are drained with it", async () => {
  const key = { operation: "encode", lora: "x" } as const;
  const rig = new SchedulerRig({ pipelineDepth: 1 });
  rig.scheduler.submit(key, [testItem("a")]);
  await settle();
  rig.scheduler.submit(key, [testItem("b")]);
  rig.scheduler.submit(ENCODE, [testItem("other")]);
  await rig.endOldest();
  assert.deepEqual(rig.batches.map(({ role, items }) => [role, ...items]), [["primary", "a"], ["drain", "b"]]);
});

Deno.test("one timer serves all keys and is not set anew for each arrival", async () => {
  const rig = new SchedulerRig();
  await warmUp(rig);
  for (let i = 0; i < 8; i++) {
    rig.scheduler.submit({ operation: "encode", lora: `k${i % 4}` }, [testItem(`i${i}`)]);
    await settle();
    assert.equal(rig.clock.timerCount, 1);
    await rig.clock.advance(0.25);
  }
  await rig.clock.advance(20);
  assert.deepEqual(rig.batches[0], {
    t: 6,
    key: "encode/k0",
    role: "primary",
    reason: "coalesce",
    items: ["i0", "i4"],
    cost: 2,
  });
});

Deno.test("a timer that fires less than half a millisecond early counts", async () => {
  const rig = new SchedulerRig();
  await warmUp(rig);
  rig.scheduler.submit(ENCODE, [testItem("a")]);
  await rig.clock.advance(0.4);
  rig.scheduler.submit(ENCODE, [testItem("b")]);
  await rig.clock.runUntil(100);
  assert.deepEqual(
    rig.batches.map(({ t, reason }) => [t, reason]),
    [[5, "coalesce"]],
    "due at 5.4, the timer was set for 5",
  );
});

Deno.test("an arrival does not use the timers' slack", async () => {
  const rig = new SchedulerRig();
  await warmUp(rig);
  rig.scheduler.submit(ENCODE, [testItem("a")]);
  await settle();
  await rig.clock.advance(4.8);
  rig.scheduler.submit({ operation: "encode", lora: "x" }, [testItem("b")]);
  await settle();
  assert.equal(rig.batches.length, 0);
});

Deno.test("an engine that batches itself gets extract items one by one, as many at once as it takes", async () => {
  const rig = new SchedulerRig();
  for (const useless of [0, 1, NaN, -3]) rig.scheduler.setEngineConcurrency(useless);
  assert.equal(rig.scheduler.pipelineDepth, 2);
  rig.scheduler.setEngineConcurrency(4);
  rig.scheduler.submit(EXTRACT, ["a", "b", "c", "d", "e"].map((name) => testItem(name)));
  await settle();
  assert.deepEqual(rig.contents, ["a", "b", "c", "d"]);
  assert.deepEqual(rig.batches.map(({ role }) => role), ["primary", "drain", "drain", "drain"]);
  await rig.endOldest();
  assert.equal(rig.contents.at(-1), "e");
  rig.scheduler.setEngineConcurrency(3);
  assert.equal(rig.scheduler.pipelineDepth, 4, "it only grows");
  rig.scheduler.setEngineConcurrency(1e9);
  assert.equal(rig.scheduler.pipelineDepth, 1024);
  rig.scheduler.submit(ENCODE, [testItem("x"), testItem("y")]);
  await rig.clock.advance(5);
  assert.equal(rig.contents.at(-1), "x y", "other operations are still batched");
});

Deno.test("the controller learns from the first batch of a wave and its limits reach what waits", async () => {
  const waves: CompletedWave[] = [];
  const inferences: number[] = [];
  const rig = new SchedulerRig({
    pipelineDepth: 1,
    createController: () => ({
      recordInference: (ms) => void inferences.push(ms),
      recordCompletion: (wave) => {
        waves.push(wave);
        return { maxBatchCost: 3, maxBatchWaitMs: 40 };
      },
    }),
  });
  rig.scheduler.submit(ENCODE, [testItem("a", { cost: 5 })]);
  await settle();
  rig.scheduler.submit(ENCODE, [testItem("b"), testItem("c"), testItem("d"), testItem("e")]);
  await rig.endOldest({ inferenceMs: 7, latenciesMs: Array.from({ length: 10 }, (_, i) => i + 1) });
  assert.deepEqual(waves, [{ batchCost: 5, batchSize: 1, costCap: 16384, latencyP50Ms: 5 }]);
  assert.deepEqual(rig.scheduler.limits, { ...DEFAULT_BATCH_CONFIG, maxBatchCost: 3, maxBatchWaitMs: 40 });
  assert.deepEqual(rig.contents, ["a", "b c d"], "the new cost cap holds for what waited");
  await rig.endOldest({ inferenceMs: 8, latenciesMs: [100] });
  assert.equal(waves.length, 1, "a drain is no wave");
  assert.deepEqual(inferences, [7, 8]);
  await rig.endOldest();
  assert.equal(waves.length, 1, "a batch without success teaches nothing");
});

Deno.test("without wave cadence the controller steps after every batch", async () => {
  let steps = 0;
  const rig = new SchedulerRig({
    pipelineDepth: 1,
    waveCadence: false,
    createController: () => ({ recordInference: () => {}, recordCompletion: () => (steps++, undefined) }),
  });
  rig.scheduler.submit(ENCODE, [testItem("a")]);
  await settle();
  rig.scheduler.submit(ENCODE, [testItem("b")]);
  await rig.endOldest({ latenciesMs: [1] });
  await rig.endOldest({ latenciesMs: [1] });
  assert.equal(steps, 2);
});

Deno.test("a run that throws or rejects, or a controller that throws, is reported and costs no permit", async () => {
  let call = 0;
  const rig = new SchedulerRig({ pipelineDepth: 1 });
  const scheduler = new ModelScheduler("model", {
    ...rig.options(),
    pipelineDepth: 1,
    createController: () => ({
      recordInference: () => {},
      recordCompletion: () => {
        throw new Error("controller");
      },
    }),
    run: () => {
      call++;
      if (call === 1) throw new Error("thrown");
      return call === 2 ? Promise.reject(new Error("rejected")) : Promise.resolve({ latenciesMs: [1] });
    },
  });
  for (const name of ["a", "b", "c", "d"]) {
    scheduler.submit(ENCODE, [testItem(name)]);
    await settle();
  }
  assert.deepEqual(rig.faults.map((fault) => (fault as Error).message), [
    "thrown",
    "rejected",
    "controller",
    "controller",
  ]);
  assert.equal(scheduler.inflightBatches, 0);
});

Deno.test("a drain sends everything at once, waits for what is in flight, and then refuses", async () => {
  const rig = new SchedulerRig();
  await warmUp(rig);
  rig.scheduler.submit(EXTRACT, [testItem("x")]);
  rig.scheduler.submit(ENCODE, [testItem("y")]);
  await settle();
  assert.equal(rig.batches.length, 0, "neither is due");
  let left: unknown;
  const draining = rig.scheduler.drain(10_000);
  void draining.then((items) => (left = items));
  assert.deepEqual(rig.batches.map(({ key, reason }) => [key, reason]), [["extract", "drain"], ["encode", "drain"]]);
  rig.scheduler.submit(ENCODE, [testItem("meanwhile")]);
  await rig.endOldest();
  assert.equal(rig.contents.at(-1), "meanwhile", "it is still taken while the drain goes on");
  await rig.endOldest();
  assert.equal(left, undefined);
  await rig.endOldest();
  assert.deepEqual(left, []);
  assert.equal(rig.scheduler.drain(5), draining);
  assert.equal(rig.clock.timerCount, 0);
});

Deno.test("a drain whose deadline passes gives back what still waits", async () => {
  const rig = new SchedulerRig({ pipelineDepth: 1 });
  const [a, b, c] = [testItem("a"), testItem("b", { cost: 9 }), testItem("c")] as const;
  rig.scheduler.submit(ENCODE, [a]);
  await settle();
  rig.scheduler.submit(ENCODE, [b, c]);
  const draining = rig.scheduler.drain(50);
  await rig.clock.advance(50);
  assert.deepEqual(await draining, [b, c]);
  assert.equal(b.queueEntry, undefined);
  await rig.endOldest();
  assert.deepEqual(rig.contents, ["a"], "nothing leaves after the end");
  assert.equal(rig.scheduler.inflightBatches, 0);
});

Deno.test("settings that nobody can mean are refused by name", () => {
  const rig = new SchedulerRig();
  const bad = (overrides: object) => () =>
    new ModelScheduler("m", rig.options({ config: { ...DEFAULT_BATCH_CONFIG, ...overrides } }));
  assert.throws(bad({ maxBatchRequests: 0 }), /maxBatchRequests must be a whole number of at least 1, got 0/);
  assert.throws(bad({ maxBatchCost: 1.5 }), /maxBatchCost/);
  assert.throws(bad({ maxBatchWaitMs: -1 }), /maxBatchWaitMs must be a finite number of at least 0, got -1/);
  assert.throws(bad({ coalesceMs: NaN }), BatchConfigError);
  assert.throws(bad({ coalesceRatio: Infinity }), BatchConfigError);
  assert.throws(() => new ModelScheduler("m", rig.options({ pipelineDepth: 0 })), RangeError);
  assert.throws(() => rig.scheduler.setLimits({ maxBatchCost: 0, maxBatchWaitMs: 1 }), BatchConfigError);
  assert.equal(rig.scheduler.limits.maxBatchCost, DEFAULT_BATCH_CONFIG.maxBatchCost);
});
