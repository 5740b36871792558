import assert from "node:assert/strict";
import { ExecutionLock } from "../../src/live_config/execution_lock.ts";

/** Lets promise continuations run. */
const turn = () => new Promise<void>((resolve) => queueMicrotask(() => queueMicrotask(resolve)));

Deno.test("any number of batches run at once; a change waits for them and keeps new ones out", async () => {
  const lock = new ExecutionLock();
  assert.ok(lock.tryEnterShared());
  assert.ok(lock.tryEnterShared());
  const order: string[] = [];
  const change = lock.enterExclusive().then(() => void order.push("change"));
  assert.ok(!lock.tryEnterShared());
  const late = lock.enterShared().then(() => void order.push("late batch"));
  lock.leaveShared();
  await turn();
  assert.deepEqual(order, []);
  lock.leaveShared();
  await change;
  assert.deepEqual(order, ["change"]);
  lock.leaveExclusive();
  await late;
  assert.deepEqual(order, ["change", "late batch"]);
  assert.equal(lock.sharedHolders, 1);
});

Deno.test("changes take turns, and work that waited during one goes before the next", async () => {
  const lock = new ExecutionLock();
  const order: string[] = [];
  await lock.enterExclusive();
  const second = lock.enterExclusive().then(() => void order.push("second change"));
  const batch = lock.enterShared().then(() => void order.push("batch"));
  lock.leaveExclusive();
  await batch;
  await turn();
  assert.deepEqual(order, ["batch"]);
  lock.leaveShared();
  await second;
  assert.deepEqual(order, ["batch", "second change"]);
});

Deno.test("leaving a side that is not held is an error", () => {
  const lock = new ExecutionLock();
  assert.throws(() => lock.leaveShared(), RangeError);
  assert.throws(() => lock.leaveExclusive(), RangeError);
});
