/** Batches that are shortened by what they are predicted to take. */
import assert from "node:assert/strict";
import { DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import { BatchFormer } from "../../src/scheduler/batch_former.ts";
import type { BatchShape, FitsPrefix } from "../../src/scheduler/batch_shape.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { NaiveFormer, type TestItem, testItem } from "./naive_model.ts";
import { ENCODE, SchedulerRig } from "./scheduler_rig.ts";

function costOf(items: readonly TestItem[]): number {
  return items.reduce((sum, { cost }) => sum + cost, 0);
}

function longestOf(items: readonly TestItem[]): number {
  return Math.max(...items.map(({ cost }) => cost));
}

Deno.test("by seeds: the largest batch that fits leaves, and what was put back waits as if it had never left", () => {
  let shortened = 0;
  for (let seed = 1; seed <= 300; seed++) {
    const random = new SeededRandom(seed);
    const config = {
      ...DEFAULT_BATCH_CONFIG,
      maxBatchRequests: random.pick([1, 4, 33]),
      maxBatchCost: random.pick([60, 5000]),
    };
    const former = new BatchFormer<TestItem>(ENCODE, { current: config }, {});
    const naive = new NaiveFormer(config);
    // Linear in what a padding backend computes; the cap is moved for each batch.
    const perItem = random.next(), perPadded = random.next();
    const time = (items: number, longest: number) => perItem * items + perPadded * items * longest;
    let sequence = 0;
    for (let step = 0; step < 60; step++) {
      const where = `seed ${seed}, step ${step}`;
      const items = Array.from(
        { length: random.integer(0, 12) },
        () => testItem(`i${sequence++}`, { cost: random.integer(0, 40), runsAlone: random.chance(0.05) }),
      );
      former.submit(items, step, sequence - items.length);
      naive.submit(items, step);
      const cap = 800 * random.next() * random.next();
      let asked = 0;
      const fits: FitsPrefix = (key, count, cost, longest) => {
        asked++;
        assert.equal(key, ENCODE);
        assert.ok(count >= 2 && longest <= cost, where);
        return time(count, longest) <= cap;
      };
      // What the plain rules would take tells the order; the cap cuts it.
      const mostItems = random.pick([2, 7, Infinity]);
      const plain = new NaiveFormer(config);
      plain.waiting = [...naive.waiting];
      plain.lastAlone = naive.lastAlone;
      const candidates = plain.take(mostItems);
      const taken = former.take(mostItems, fits)?.items ?? [];
      let largest = Math.min(candidates.length, 1);
      while (
        largest < candidates.length &&
        time(largest + 1, longestOf(candidates.slice(0, largest + 1))) <= cap
      ) largest++;
      assert.deepEqual(taken.map(({ name }) => name), candidates.slice(0, largest).map(({ name }) => name), where);
      assert.ok(asked <= 1 + Math.ceil(Math.log2(Math.max(candidates.length, 1))), `${where}: asked ${asked} times`);
      if (largest < candidates.length) shortened++;
      for (const { name } of taken) assert.equal(naive.remove(name), true, where);
      if (taken[0] !== undefined) naive.lastAlone = taken[0].runsAlone;
      assert.equal(former.count, naive.waiting.length, where);
      assert.equal(former.cost, naive.cost, where);
      if (former.count > 0) assert.equal(former.dueAt, naive.dueAt, where);
      for (const { item } of naive.waiting) assert.ok(item.queueEntry !== undefined, where);
    }
  }
  assert.ok(shortened > 1000, `${shortened}`);
});

Deno.test("whatever is predicted, each item leaves once, and no batch that does not fit has two items", () => {
  for (let seed = 1; seed <= 200; seed++) {
    const random = new SeededRandom(seed);
    const former = new BatchFormer<TestItem>(ENCODE, { current: { ...DEFAULT_BATCH_CONFIG, maxBatchCost: 400 } }, {});
    const items = Array.from({ length: 200 }, (_, i) => testItem(`${i}`, { cost: random.integer(0, 50) }));
    former.submit(items, 0, 0);
    const left: string[] = [];
    for (;;) {
      // Not monotone, not even the same twice.
      const said = new Map<string, boolean>();
      const taken = former.take(Infinity, (_key, count, cost, longest) => {
        const fits = random.chance(0.4);
        said.set(`${count} ${cost} ${longest}`, fits);
        return fits;
      });
      if (taken === undefined) break;
      const { length } = taken.items;
      assert.equal(taken.totalCost, costOf(taken.items));
      if (length > 1) assert.equal(said.get(`${length} ${taken.totalCost} ${longestOf(taken.items)}`), true);
      left.push(...taken.items.map(({ name }) => name));
    }
    assert.deepEqual(left.toSorted(), items.map(({ name }) => name).toSorted());
    assert.deepEqual([former.count, former.cost], [0, 0]);
  }
});

Deno.test("the scheduler asks with what the batch then says of itself, in every role", async () => {
  const asked: BatchShape[] = [];
  const rig = new SchedulerRig({
    config: { ...DEFAULT_BATCH_CONFIG, maxBatchRequests: 8 },
    fits: (shape) => {
      asked.push(shape);
      return shape.items <= 3;
    },
  });
  rig.scheduler.submit(ENCODE, Array.from({ length: 10 }, (_, i) => testItem(`${i}`, { cost: i + 1 })));
  await rig.clock.advance(0);
  const drained = rig.scheduler.drain(1000);
  while (rig.open.length > 0) {
    for (const { batch } of [...rig.open]) {
      const { modelId, key, items, totalCost: cost, queueDepth, inFlight } = batch;
      assert.ok(items.length <= 3);
      const shape = { modelId, operation: key.operation, items: items.length, cost, longest: longestOf(items) };
      if (items.length > 1) {
        assert.ok(asked.some((one) => JSON.stringify(one) === JSON.stringify({ ...shape, queueDepth, inFlight })));
      }
      await rig.endOldest();
    }
  }
  assert.deepEqual(await drained, []);
  assert.deepEqual(rig.contents, ["0 1 2", "3 4 5", "6 7 8", "9"]);
  assert.deepEqual(rig.batches.map(({ role }) => role), ["primary", "drain", "drain", "drain"]);
});
