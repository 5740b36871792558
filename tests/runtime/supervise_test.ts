/** Background tasks: unexpected ends, restarts, stopping; and the last resort. */
import assert from "node:assert/strict";
import { installLastResort, Supervisor } from "../../src/runtime/supervise.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

function supervised() {
  const clock = new VirtualClock();
  const log: Record<string, unknown>[] = [];
  return { clock, log, supervisor: new Supervisor(clock, { error: (_message, fields) => log.push(fields) }) };
}

function untilStopped(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

Deno.test("a task that is stopped ends in silence, also with an error", async () => {
  const { supervisor, log } = supervised();
  supervisor.start("quiet", untilStopped);
  supervisor.start("loud", async (signal) => {
    await untilStopped(signal);
    throw new Error("on the way out");
  }, { restart: true });
  assert.deepEqual(supervisor.running, ["quiet", "loud"]);
  await supervisor.stop();
  assert.deepEqual([supervisor.running, log, supervisor.failures], [[], [], 0]);
});

Deno.test("one task can be stopped alone", async () => {
  const { supervisor } = supervised();
  const stop = supervisor.start("a", untilStopped);
  supervisor.start("b", untilStopped);
  await stop();
  assert.deepEqual(supervisor.running, ["b"]);
  await supervisor.stop();
});

Deno.test("an unexpected end is told; what must run is started again after a second", async () => {
  const { supervisor, log, clock } = supervised();
  const starts: number[] = [];
  supervisor.start("pull loop", async (signal) => {
    starts.push(clock.now());
    if (starts.length === 1) throw new Error("broken");
    if (starts.length === 2) return;
    await untilStopped(signal);
  }, { restart: true });
  await clock.advance(999);
  assert.deepEqual(starts, [0]);
  await clock.advance(5000);
  assert.deepEqual(starts, [0, 1000, 2000]);
  assert.deepEqual(log, [
    { task: "pull loop", why: "broken", restart: true },
    { task: "pull loop", why: "it returned", restart: true },
  ]);
  await supervisor.stop();
  assert.equal(clock.timerCount, 0);
});

Deno.test("what need not run stays ended; what may end does so in silence", async () => {
  const { supervisor, log, clock } = supervised();
  supervisor.start("once", () => Promise.reject(new Error("no")));
  supervisor.start("short", () => Promise.resolve(), { mayEnd: true });
  supervisor.start("thrower", () => {
    throw new TypeError("at once");
  }, { mayEnd: true });
  await clock.advance(10_000);
  assert.deepEqual(supervisor.running, []);
  assert.deepEqual(log.map(({ task, why }) => `${task}: ${why}`).sort(), ["once: no", "thrower: at once"]);
  assert.equal(supervisor.failures, 2);
});

Deno.test("stopping does not wait for the pause before a restart", async () => {
  const { supervisor, clock } = supervised();
  supervisor.start("a", () => Promise.reject(new Error("no")), { restart: true });
  await clock.advance(1);
  await supervisor.stop();
  assert.deepEqual([supervisor.running, clock.timerCount], [[], 0]);
});

Deno.test("errors that nobody handled are told and end the process, once", () => {
  const target = new EventTarget();
  const log: [string, unknown][] = [];
  const exits: number[] = [];
  const remove = installLastResort({
    log: { error: (message, fields) => log.push([message, fields["error"]]) },
    exit: (code) => exits.push(code),
  }, target);
  const event = new ErrorEvent("error", { error: new Error("lost"), cancelable: true });
  target.dispatchEvent(event);
  assert.equal(event.defaultPrevented, true);
  const promise = Promise.resolve();
  target.dispatchEvent(
    new PromiseRejectionEvent("unhandledrejection", { promise, reason: new Error("second"), cancelable: true }),
  );
  assert.deepEqual(log, [["exited with error: uncaught error", "lost"]]);
  assert.deepEqual(exits, [1]);
  remove();
  target.dispatchEvent(new ErrorEvent("error", { error: new Error("after") }));
  assert.equal(log.length, 1);
});

Deno.test("an unhandled rejection of the process reaches the last resort", async () => {
  const heard = Promise.withResolvers<unknown>();
  const remove = installLastResort({
    log: { error: (message, fields) => heard.resolve([message, fields["error"]]) },
    exit: () => {},
  });
  try {
    Promise.reject(new Error("nobody waits for me"));
    assert.deepEqual(await heard.promise, ["exited with error: unhandled rejection", "nobody waits for me"]);
  } finally {
    remove();
  }
});
