/** The order of shutdown: limits, failures, and that nothing keeps a later step from being done. */
import assert from "node:assert/strict";
import { sleep } from "../../src/runtime/clock.ts";
import { drainInOrder, type StepReport } from "../../src/runtime/drain_order.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

Deno.test("steps run one after the other, each within its own limit", async () => {
  const clock = new VirtualClock(100);
  const order: string[] = [];
  const heard: StepReport[] = [];
  const drained = drainInOrder(clock, [
    { name: "stop pulling", limitMs: 10, run: () => void order.push("stop pulling") },
    {
      name: "finish",
      limitMs: 50,
      async run() {
        await sleep(clock, 50 - 1);
        order.push("finish");
      },
    },
    { name: "flush", limitMs: 5, run: () => Promise.resolve().then(() => void order.push("flush")) },
  ], (report) => heard.push(report));
  await clock.runToEnd();
  const report = await drained;
  assert.deepEqual(order, ["stop pulling", "finish", "flush"]);
  assert.equal(report.clean, true);
  assert.equal(report.totalMs, 49);
  assert.deepEqual(report.steps.map(({ name, tookMs, outcome }) => [name, tookMs, outcome.kind]), [
    ["stop pulling", 0, "done"],
    ["finish", 49, "done"],
    ["flush", 0, "done"],
  ]);
  assert.deepEqual(heard, report.steps);
  assert.equal(clock.timerCount, 0);
});

Deno.test("a step that overruns or fails is reported, told to give up, and the next one is done", async () => {
  const clock = new VirtualClock();
  const aborted: unknown[] = [];
  let flushed = false;
  const late = Promise.withResolvers<void>();
  const drained = drainInOrder(clock, [
    {
      name: "parked groups",
      limitMs: 15_000,
      run(signal) {
        signal.addEventListener("abort", () => aborted.push(signal.reason.message));
        return late.promise;
      },
    },
    {
      name: "backend",
      limitMs: 10,
      run() {
        throw new Error("it is gone");
      },
    },
    { name: "flush", limitMs: 10, run: () => void (flushed = true) },
  ]);
  await clock.runToEnd();
  const report = await drained;
  assert.equal(report.clean, false);
  assert.deepEqual(report.steps.map(({ outcome }) => outcome), [
    { kind: "overran" },
    { kind: "failed", why: "it is gone" },
    { kind: "done" },
  ]);
  assert.deepEqual(aborted, ["parked groups took longer than 15000 ms"]);
  assert.deepEqual([report.totalMs, flushed], [15_000, true]);
  // Its late failure reaches nobody.
  late.reject(new Error("too late"));
  await clock.advance(1);
});

Deno.test("no step is nothing to do", async () => {
  assert.deepEqual(await drainInOrder(new VirtualClock(), []), { steps: [], totalMs: 0, clean: true });
});
