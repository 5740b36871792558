import assert from "node:assert/strict";
import { SchedulerRegistry } from "../../src/scheduler/registry.ts";
import { settle } from "../sim/virtual_clock.ts";
import { type TestItem, testItem } from "./naive_model.ts";
import { ENCODE, SchedulerRig } from "./scheduler_rig.ts";

Deno.test("a model has one scheduler, and models do not wait for each other", async () => {
  const rig = new SchedulerRig();
  const registry = new SchedulerRegistry<TestItem>(rig.options({ pipelineDepth: 1 }));
  const first = registry.getOrCreate("m");
  assert.equal(registry.getOrCreate("m"), first);
  assert.notEqual(registry.getOrCreate("m:profile"), first, "a variant is a model of its own");
  first.submit(ENCODE, [testItem("a")]);
  await settle();
  first.submit(ENCODE, [testItem("b", { cost: 7 })]);
  registry.getOrCreate("other").submit(ENCODE, [testItem("c")]);
  await settle();
  assert.deepEqual(rig.contents, ["a", "c"]);
  assert.deepEqual(registry.totals(), { pendingItems: 1, pendingCost: 7, inflightBatches: 2 });
  assert.deepEqual([...registry.schedulers()].map(({ modelId }) => modelId), ["m", "m:profile", "other"]);
});

Deno.test("all schedulers drain at once under one deadline, and none is made afterwards", async () => {
  const rig = new SchedulerRig();
  const registry = new SchedulerRegistry<TestItem>(rig.options({ pipelineDepth: 1 }));
  for (const model of ["m", "n"]) {
    registry.getOrCreate(model).submit(ENCODE, [testItem(`${model}1`)]);
    await settle();
    registry.getOrCreate(model).submit(ENCODE, [testItem(`${model}2`)]);
  }
  const draining = registry.drainAll(100);
  assert.throws(() => registry.getOrCreate("new"), { code: "scheduler_closed" });
  await rig.endOldest();
  await rig.clock.advance(100);
  assert.deepEqual((await draining).map((item) => item.name), ["n2"]);
  assert.deepEqual(rig.contents, ["m1", "n1", "m2"]);
  assert.throws(() => registry.getOrCreate("m").submit(ENCODE, [testItem("late")]), /'m' is closed/);
});
