/** When health messages are sent, what is read for them, and how the worker leaves. */
import assert from "node:assert/strict";
import type { HealthFacts } from "../../src/health/health_message.ts";
import { HealthPublisher } from "../../src/health/health_publisher.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

const facts: HealthFacts = {
  workerId: "w.1",
  machineProfile: "m",
  pool: "p",
  bundle: "b",
  gpuCount: 1,
  children: 1,
  ready: true,
  readyChildren: 1,
  bundleConfigHash: "",
  loadedModels: [],
  loadingModels: [],
  unsupportedModels: [],
  queueDepth: 0,
  pendingCost: 0,
  inflightBatches: 0,
  saturated: false,
};

class Rig {
  readonly clock = new VirtualClock();
  readonly stop = new AbortController();
  /** Time, and `terminated` of each message that was taken. */
  readonly sent: [number, boolean][] = [];
  readonly warnings: unknown[] = [];
  flushes = 0;
  depth = 0;
  lastDepth: unknown;
  failing = false;
  gate: Promise<void> | undefined;
  readonly publisher = new HealthPublisher({
    clock: this.clock,
    intervalMs: 5000,
    facts: () => ({ ...facts, queueDepth: this.depth }),
    channel: {
      publish: (subject, payload) => {
        if (this.failing) throw new Error("no connection");
        assert.equal(subject, "sie.health.w.1");
        const message = JSON.parse(new TextDecoder().decode(payload));
        this.sent.push([this.clock.now(), message.terminated]);
        this.lastDepth = message.queue_depth;
        return this.gate;
      },
      flush: () => {
        this.flushes++;
        return this.failing ? Promise.reject(new Error("no connection")) : Promise.resolve();
      },
    },
    log: { warn: (_message, fields) => this.warnings.push(fields["failures"]) },
  });
  #done: Promise<void> | undefined;

  /** Starts publishing; the first message goes out before this returns. */
  start(): this {
    this.#done = this.publisher.run(this.stop.signal);
    return this;
  }

  async end(): Promise<void> {
    this.stop.abort();
    await this.#done;
    assert.equal(this.clock.timerCount, 0);
  }
}

Deno.test("a message at once, one at each interval, and values as they are at that moment", async () => {
  const rig = new Rig().start();
  await rig.clock.advance(0);
  rig.depth = 7;
  await rig.clock.advance(10_000);
  assert.deepEqual(rig.sent, [[0, false], [5000, false], [10_000, false]]);
  assert.equal(rig.lastDepth, 7);
  await rig.end();
});

Deno.test("a request sends at once and does not move the interval; several are one", async () => {
  const rig = new Rig().start();
  await rig.clock.advance(3000);
  rig.publisher.requestNow();
  rig.publisher.requestNow();
  await rig.clock.advance(2000);
  assert.deepEqual(rig.sent, [[0, false], [3000, false], [5000, false]]);
  await rig.end();
});

Deno.test("a request while a message is on its way is not lost", async () => {
  const rig = new Rig();
  const gate = Promise.withResolvers<void>();
  rig.gate = gate.promise;
  rig.start();
  await rig.clock.advance(1);
  rig.publisher.requestNow();
  await rig.clock.advance(1);
  assert.equal(rig.sent.length, 1);
  rig.gate = undefined;
  gate.resolve();
  await rig.clock.advance(0);
  assert.deepEqual(rig.sent, [[0, false], [2, false]]);
  await rig.end();
});

Deno.test("ticks that pass while a message is being sent are not made up", async () => {
  const rig = new Rig();
  const gate = Promise.withResolvers<void>();
  rig.gate = gate.promise;
  rig.start();
  await rig.clock.advance(12_000);
  rig.gate = undefined;
  gate.resolve();
  await rig.clock.advance(8000);
  assert.deepEqual(rig.sent, [[0, false], [12_000, false], [15_000, false], [20_000, false]]);
  await rig.end();
});

Deno.test("leaving retracts the worker and flushes; the drain does it a second time", async () => {
  const rig = new Rig().start();
  await rig.clock.advance(1);
  await rig.end();
  assert.deepEqual(rig.sent, [[0, false], [1, true]]);
  assert.equal(rig.flushes, 1);
  await rig.publisher.retract();
  assert.deepEqual([rig.sent.length, rig.flushes], [3, 2]);
});

Deno.test("failures are told now and then, and nothing stops", async () => {
  const rig = new Rig();
  rig.failing = true;
  rig.start();
  await rig.clock.advance(5000 * 29);
  assert.deepEqual(rig.warnings, [1, 5, 30]);
  rig.failing = false;
  await rig.clock.advance(5000);
  assert.equal(rig.sent.length, 1);
  rig.failing = true;
  await rig.clock.advance(5000);
  assert.deepEqual(rig.warnings, [1, 5, 30, 1], "a success starts the count again");
  await rig.end();
  assert.equal(rig.flushes, 0, "what was not published needs no flush");
});
