/** Permits: order, abort, and the errors that reveal a double release. */
import assert from "node:assert/strict";
import { Semaphore } from "../../src/runtime/semaphore.ts";
import { SeededRandom } from "../sim/seeded_random.ts";

Deno.test("waiters get permits in the order in which they came, and nobody overtakes them", async () => {
  const semaphore = new Semaphore(1);
  assert.equal(semaphore.tryAcquire(), true);
  const order: number[] = [];
  const waits = [1, 2, 3].map((n) => semaphore.acquire().then((got) => got && order.push(n)));
  assert.deepEqual([semaphore.free, semaphore.held, semaphore.waiting], [0, 1, 3]);
  semaphore.release();
  // The permit belongs to the first waiter already, although its continuation has not run.
  assert.equal(semaphore.tryAcquire(), false);
  await waits[0];
  semaphore.release();
  await waits[1];
  semaphore.release();
  await waits[2];
  assert.deepEqual(order, [1, 2, 3]);
  semaphore.release();
  assert.deepEqual([semaphore.free, semaphore.waiting], [1, 0]);
});

Deno.test("an aborted wait takes no permit and leaves the queue", async () => {
  const semaphore = new Semaphore(1);
  semaphore.tryAcquire();
  const gone = new AbortController();
  const first = semaphore.acquire(gone.signal);
  const second = semaphore.acquire();
  gone.abort();
  assert.equal(await first, false);
  assert.equal(semaphore.waiting, 1);
  semaphore.release();
  assert.equal(await second, true);
  assert.equal(await semaphore.acquire(gone.signal), false);
  assert.equal(semaphore.held, 1);
});

Deno.test("an abort after the permit was given changes nothing", async () => {
  const semaphore = new Semaphore(1);
  semaphore.tryAcquire();
  const late = new AbortController();
  const wait = semaphore.acquire(late.signal);
  semaphore.release();
  late.abort();
  assert.equal(await wait, true);
  assert.equal(semaphore.held, 1);
});

Deno.test("several permits come back at once", async () => {
  const semaphore = new Semaphore(3);
  for (let i = 0; i < 3; i++) semaphore.tryAcquire();
  const waits = Promise.all([semaphore.acquire(), semaphore.acquire()]);
  semaphore.release(3);
  assert.deepEqual(await waits, [true, true]);
  assert.equal(semaphore.free, 1);
});

Deno.test("what was not acquired cannot be released", () => {
  const semaphore = new Semaphore(2);
  assert.throws(() => semaphore.release(), /cannot release 1 permits: 0 of 2 are held/);
  semaphore.tryAcquire();
  assert.throws(() => semaphore.release(2), RangeError);
  assert.throws(() => semaphore.release(-1), RangeError);
  assert.throws(() => semaphore.release(0.5), RangeError);
  assert.equal(semaphore.held, 1);
});

Deno.test("only whole numbers of permits make a semaphore", () => {
  for (const bad of [0, -1, 1.5, NaN, Infinity]) assert.throws(() => new Semaphore(bad), RangeError);
});

Deno.test("random acquiring, aborting and releasing never hands out more than there is", async () => {
  const random = new SeededRandom(20_260);
  const semaphore = new Semaphore(4);
  let held = 0, most = 0;
  const waiting: { abort: AbortController; done: Promise<void> }[] = [];
  for (let step = 0; step < 5_000; step++) {
    const choice = random.integer(0, 9);
    if (choice < 5) {
      const abort = new AbortController();
      const done = semaphore.acquire(abort.signal).then((got) => {
        if (got) most = Math.max(most, ++held);
      });
      waiting.push({ abort, done });
    } else if (choice < 7) {
      waiting.splice(random.integer(0, waiting.length), 1)[0]?.abort.abort();
    } else if (held > 0) {
      held--;
      semaphore.release();
    }
    await Promise.resolve();
    assert.ok(semaphore.free === 0 || semaphore.waiting === 0, "a permit is free while somebody waits");
  }
  while (semaphore.waiting > 0 || held > 0) {
    if (held > 0) {
      held--;
      semaphore.release();
    }
    await Promise.resolve();
  }
  await Promise.all(waiting.map(({ done }) => done));
  assert.equal(most, 4);
  for (; held > 0; held--) semaphore.release();
  assert.equal(semaphore.free, 4);
});
