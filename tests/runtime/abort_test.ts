import assert from "node:assert/strict";
import { ABORTED, unlessAborted } from "../../src/runtime/abort.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";

/** A signal that counts its listeners. */
function countedSignal() {
  const controller = new AbortController();
  const { signal } = controller;
  let listeners = 0;
  const add = signal.addEventListener.bind(signal), remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => (listeners++, add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => (listeners--, remove(...args));
  return { controller, signal, listeners: () => listeners };
}

Deno.test("what comes before the signal is passed on, value or failure, and nothing listens any more", async () => {
  const { signal, listeners } = countedSignal();
  assert.equal(await unlessAborted(Promise.resolve(7), signal), 7);
  await assert.rejects(unlessAborted(Promise.reject(new Error("no")), signal), /no/);
  assert.equal(listeners(), 0);
});

Deno.test("the signal ends the wait, and what comes late is given back", async () => {
  const { controller, signal } = countedSignal();
  const later = Promise.withResolvers<number>();
  const late: number[] = [];
  const waiting = unlessAborted(later.promise, signal, { late: (value) => void late.push(value) });
  controller.abort();
  assert.equal(await waiting, ABORTED);
  later.resolve(7);
  await settle();
  assert.deepEqual(late, [7]);
});

Deno.test("a signal that was there before ends the wait at once, and a failure that comes late is not heard of", async () => {
  const later = Promise.withResolvers<number>();
  assert.equal(await unlessAborted(later.promise, AbortSignal.abort()), ABORTED);
  later.reject(new Error("late"));
  await settle();
});

Deno.test("with grace the wait goes on after the signal", async (t) => {
  for (const signalFirst of [false, true]) {
    await t.step(signalFirst ? "the signal was there before" : "the signal comes", async () => {
      const clock = new VirtualClock();
      const controller = new AbortController();
      if (signalFirst) controller.abort();
      const later = Promise.withResolvers<number>();
      const options = { grace: { clock, ms: 100 } };
      const inTime = unlessAborted(later.promise, controller.signal, options);
      const never = unlessAborted(new Promise<number>(() => {}), controller.signal, options);
      controller.abort();
      await clock.advance(99);
      later.resolve(7);
      assert.equal(await inTime, 7);
      await clock.advance(1);
      assert.equal(await never, ABORTED);
      assert.equal(clock.timerCount, 0);
    });
  }
});
