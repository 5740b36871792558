/** The byte budget: limit, marks, order of waiting, and what is already in memory. */
import assert from "node:assert/strict";
import { ByteBudget, ByteBudgetError } from "../../src/runtime/byte_budget.ts";

Deno.test("what fits is reserved, what does not is not", () => {
  const budget = new ByteBudget({ limit: 10 });
  assert.equal(budget.tryReserve(10), true);
  assert.equal(budget.tryReserve(0), true);
  assert.equal(budget.tryReserve(1), false);
  budget.release(4);
  assert.equal(budget.tryReserve(4), true);
  assert.equal(budget.used, 10);
});

Deno.test("waiting reservations are granted in order; a small one does not overtake a large one", async () => {
  const budget = new ByteBudget({ limit: 10 });
  budget.tryReserve(8);
  const order: string[] = [];
  const large = budget.acquire(6).then(() => order.push("large"));
  const small = budget.acquire(1).then(() => order.push("small"));
  assert.equal(budget.tryReserve(1), false, "nobody overtakes");
  budget.release(3);
  assert.equal(budget.waiting, 2);
  budget.release(1);
  await large;
  assert.deepEqual([budget.used, budget.waiting], [10, 1]);
  budget.release(1);
  await small;
  assert.deepEqual(order, ["large", "small"]);
  assert.deepEqual([budget.used, budget.waiting], [10, 0]);
});

Deno.test("when the large one in front gives up, those behind it go on", async () => {
  const budget = new ByteBudget({ limit: 10 });
  budget.tryReserve(8);
  const abort = new AbortController();
  const large = budget.acquire(6, abort.signal);
  const small = budget.acquire(2);
  abort.abort();
  assert.deepEqual(await Promise.all([large, small]), [false, true]);
  assert.equal(budget.used, 10);
  assert.equal(await budget.acquire(1, abort.signal), false);
});

Deno.test("what can never fit is refused at once, with size and limit", async () => {
  const budget = new ByteBudget({ limit: 10 });
  await assert.rejects(budget.acquire(11), (thrown) => {
    assert.ok(thrown instanceof ByteBudgetError);
    assert.equal(thrown.code, "byte_budget_exceeded");
    assert.equal(thrown.message, "11 bytes do not fit into the budget of 10 bytes");
    return true;
  });
  assert.equal(budget.waiting, 0);
});

Deno.test("listeners hear of each crossing once", () => {
  const budget = new ByteBudget({ limit: 100, high: 80, low: 40 });
  const heard: string[] = [];
  const stop = budget.listen({ high: () => heard.push("high"), low: () => heard.push("low") });
  budget.tryReserve(79);
  assert.deepEqual(heard, []);
  budget.tryReserve(1);
  budget.tryReserve(10);
  assert.deepEqual(heard, ["high"]);
  assert.equal(budget.pressed, true);
  budget.release(49);
  assert.equal(budget.pressed, true);
  budget.release(1);
  assert.deepEqual(heard, ["high", "low"]);
  budget.release(40);
  budget.tryReserve(80);
  const late: string[] = [];
  budget.listen({ high: () => late.push("high") });
  assert.deepEqual(late, ["high"], "one that comes late is told");
  stop();
  budget.release(80);
  assert.deepEqual(heard, ["high", "low", "high"]);
});

Deno.test("a listener may reserve and release", () => {
  const budget = new ByteBudget({ limit: 100, high: 50, low: 10 });
  let highs = 0;
  budget.listen({ high: () => highs++, low: () => void budget.tryReserve(60) });
  budget.tryReserve(50);
  budget.release(50);
  assert.deepEqual([highs, budget.used, budget.pressed], [2, 60, true]);
});

Deno.test("bytes that are in memory already count past the limit, and keep others out", () => {
  const budget = new ByteBudget({ limit: 10 });
  budget.add(25);
  assert.deepEqual([budget.used, budget.pressed], [25, true]);
  assert.equal(budget.tryReserve(1), false);
  budget.release(25);
  assert.equal(budget.tryReserve(10), true);
});

Deno.test("impossible amounts are programming errors", () => {
  const budget = new ByteBudget({ limit: 10 });
  assert.throws(() => budget.release(1), /cannot release 1 bytes: only 0 are reserved/);
  for (const bad of [-1, 1.5, NaN, Infinity]) {
    assert.throws(() => budget.tryReserve(bad), RangeError);
    assert.throws(() => budget.add(bad), RangeError);
    assert.throws(() => budget.release(bad), RangeError);
  }
  assert.equal(budget.used, 0);
  for (const limits of [{ limit: 0 }, { limit: 5, high: 6 }, { limit: 5, high: 4, low: 5 }, { limit: 5, low: -1 }]) {
    assert.throws(() => new ByteBudget(limits), RangeError);
  }
});
