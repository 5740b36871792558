import assert from "node:assert/strict";
import { type BatchConfig, DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import { BatchFormer } from "../../src/scheduler/batch_former.ts";
import { UnschedulableItemError } from "../../src/scheduler/errors.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { NaiveFormer, type TestItem, testItem } from "./naive_model.ts";

const BASE = { operation: "encode", lora: "" } as const;

function formerWith(overrides: Partial<BatchConfig> = {}) {
  const source = { current: { ...DEFAULT_BATCH_CONFIG, ...overrides } };
  return { source, former: new BatchFormer<TestItem>(BASE, source, {}) };
}

function names(items: readonly TestItem[] | undefined): string[] {
  return (items ?? []).map((item) => item.name);
}

Deno.test("a random course of submissions, takes, removals and new limits follows the plain rules", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = new SeededRandom(seed);
    const { source, former } = formerWith({
      maxBatchCost: random.pick([50, 200, 4000]),
      maxBatchRequests: random.pick([1, 3, 8]),
    });
    const naive = new NaiveFormer(source.current);
    const withLanes = random.chance(0.5);
    let now = 0, sequence = 0;
    for (let step = 0; step < 120; step++) {
      const where = `seed ${seed}, step ${step}`;
      now += random.pick([0, 0, 1, 2, 4, 7]);
      const action = random.next();
      if (action < 0.5) {
        const items = Array.from({ length: random.integer(1, 4) }, () =>
          testItem(`i${sequence++}`, {
            cost: random.chance(0.3) ? random.integer(0, 3) : random.integer(1, 120),
            runsAlone: withLanes && random.chance(0.25),
            hardCostCap: random.chance(0.15) ? random.pick([40, 100, 150]) : Infinity,
          }));
        former.submit(items, now, sequence - items.length);
        naive.submit(items, now);
      } else if (action < 0.65) {
        const immediate = random.chance(0.3);
        const reason = former.dueReason(now, immediate);
        assert.equal(reason, naive.reason(now, immediate), where);
        if (reason !== undefined) assert.deepEqual(names(former.take()?.items), names(naive.take()), where);
      } else if (action < 0.85) {
        const most = random.pick([0, 1, 2, 5, Infinity]);
        const taken = former.take(most);
        assert.deepEqual(names(taken?.items), names(naive.take(most)), where);
        assert.equal(taken?.totalCost ?? 0, (taken?.items ?? []).reduce((sum, item) => sum + item.cost, 0), where);
      } else if (action < 0.97) {
        const victim = naive.waiting[random.integer(0, Math.max(naive.waiting.length - 1, 0))]?.item;
        if (victim === undefined) continue;
        assert.equal(former.remove(victim), true, where);
        assert.equal(naive.remove(victim.name), true, where);
        assert.equal(former.remove(victim), false, where);
      } else {
        source.current = {
          ...source.current,
          maxBatchCost: random.pick([30, 90, 500]),
          maxBatchWaitMs: random.pick([6, 15]),
        };
        naive.config = source.current;
      }
      assert.equal(former.count, naive.waiting.length, where);
      assert.equal(former.cost, naive.cost, where);
      assert.equal(former.costCap, naive.cap, where);
      if (former.count > 0) {
        assert.equal(former.firstArrival, naive.first, where);
        assert.equal(former.lastArrival, naive.last, where);
        assert.equal(former.dueAt, naive.dueAt, where);
      } else {
        assert.equal(former.dueAt, undefined, where);
      }
    }
  }
});

Deno.test("items that cannot be queued leave the former as it was", () => {
  const { former } = formerWith();
  const good = testItem("good");
  const waiting = testItem("waiting");
  former.submit([waiting], 0, 0);
  for (const cost of [-1, NaN, Infinity, 1.5, 2 ** 53]) {
    assert.throws(() => former.submit([good, testItem("bad", { cost })], 1, 1), UnschedulableItemError);
  }
  assert.throws(() => former.submit([good, waiting], 1, 1), /waits already/);
  assert.throws(() => former.submit([good, testItem("other"), good], 1, 1), /submitted twice/);
  assert.equal(former.count, 1);
  assert.equal(former.cost, 1);
  assert.equal(former.lastArrival, 0);
  former.submit([good], 2, 1);
  assert.deepEqual(names(former.take()?.items), ["waiting", "good"]);
});

Deno.test("an item that has left can be submitted again, and belongs to its former only", () => {
  const { former } = formerWith();
  const { former: other } = formerWith();
  const item = testItem("a");
  former.submit([item], 0, 0);
  assert.equal(other.remove(item), false);
  assert.throws(() => other.submit([item], 0, 0), UnschedulableItemError);
  former.take();
  assert.equal(item.queueEntry, undefined);
  other.submit([item], 1, 0);
  assert.equal(other.count, 1);
});

Deno.test("everything is taken out in arrival order, from both lanes", () => {
  const { former } = formerWith();
  const items = [
    testItem("a", { cost: 9 }),
    testItem("b", { runsAlone: true, hardCostCap: 5 }),
    testItem("c", { cost: 3 }),
  ];
  former.submit(items, 0, 0);
  const into: TestItem[] = [];
  former.removeAll(into);
  assert.deepEqual(names(into), ["a", "b", "c"]);
  assert.equal(former.count + former.cost, 0);
  assert.equal(former.costCap, DEFAULT_BATCH_CONFIG.maxBatchCost);
  assert.equal(former.take(), undefined);
});
