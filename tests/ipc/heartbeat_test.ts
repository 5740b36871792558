import assert from "node:assert/strict";
import { IpcError } from "../../src/ipc/errors.ts";
import { type ChildPing, Heartbeat, judgeRound, type PingRound } from "../../src/ipc/heartbeat.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

function child(ready: boolean, fields: { hash?: string; loaded?: string[]; authority?: boolean } = {}): ChildPing {
  return {
    answer: {
      timestampMs: 0,
      workerId: "w",
      ready,
      bundleConfigHash: fields.hash ?? "",
      loadedModels: fields.loaded ?? [],
      loadingModels: [],
    },
    error: undefined,
    capabilities: fields.authority === undefined ? undefined : {
      supportsExecutionAuthorityV1: fields.authority,
      supportsNumericalAdmissionV1: fields.authority,
      hasGenerationModels: false,
      generationModels: [],
      supportedModels: [],
      loadedModels: [],
    },
  };
}

const DEAD: ChildPing = { answer: undefined, error: new IpcError("timeout", "test"), capabilities: undefined };

Deno.test("one ready child makes a round successful; hashes and lists come from ready children alone", () => {
  const round = judgeRound([
    child(false, { hash: "from a child that is not ready", loaded: ["x"] }),
    child(true, { hash: "", loaded: ["b"], authority: true }),
    child(true, { hash: "h", loaded: ["a", "b"], authority: true }),
    DEAD,
  ], false);
  assert.equal(round.successful, true);
  assert.equal(round.readyChildren, 2);
  assert.equal(round.bundleConfigHash, "h");
  assert.deepEqual(round.loadedModels, ["a", "b"]);
  // Not every child said so.
  assert.equal(round.supportsExecutionAuthorityV1, false);
});

Deno.test("a round without a ready child leaves the list of loaded models as it was", () => {
  for (const round of [judgeRound([DEAD, child(false)], false), judgeRound([child(true)], true)]) {
    assert.deepEqual([round.successful, round.readyChildren, round.loadedModels], [false, 0, undefined]);
  }
});

Deno.test("authority needs every child ready, answering and supporting, and no quarantine", () => {
  const supporting = child(true, { authority: true });
  assert.equal(judgeRound([supporting, supporting], false).supportsExecutionAuthorityV1, true);
  assert.equal(judgeRound([supporting, child(true, { authority: false })], false).supportsExecutionAuthorityV1, false);
  assert.equal(judgeRound([supporting, child(true)], false).supportsExecutionAuthorityV1, false);
  assert.equal(judgeRound([supporting], true).supportsExecutionAuthorityV1, false);
});

function unexpected(thrown: unknown): void {
  throw thrown;
}

Deno.test("the rounds go on after one that threw", async () => {
  const clock = new VirtualClock();
  const faults: unknown[] = [];
  let rounds = 0, told = 0;
  const heartbeat = new Heartbeat({
    clock,
    intervalMs: 1000,
    round: () => ++rounds === 1 ? Promise.reject(new Error("a bug")) : Promise.resolve(judgeRound([], false)),
    onRound() {
      if (++told === 1) throw new Error("another");
    },
    onFault: (thrown) => faults.push(thrown),
  });
  heartbeat.start();
  await clock.advance(3500);
  assert.deepEqual([rounds, told], [4, 3]);
  assert.deepEqual(faults.map(String), ["Error: a bug", "Error: another"]);
  await heartbeat.stop();
});

Deno.test("rounds start at once and at the interval, and missed ones fall out", async () => {
  const clock = new VirtualClock();
  const starts: number[] = [];
  const durations = [0, 4500, 0, 0];
  let told = 0;
  const heartbeat = new Heartbeat({
    clock,
    intervalMs: 2000,
    async round() {
      starts.push(clock.now());
      const duration = durations[starts.length - 1] ?? 0;
      if (duration > 0) await new Promise<void>((resolve) => clock.after(duration, resolve));
      return judgeRound([], false);
    },
    onRound: () => told++,
    onFault: unexpected,
  });
  heartbeat.start();
  heartbeat.start();
  await clock.advance(9000);
  // The second round takes from 2000 to 6500: the ticks at 4000 and 6000 fall out.
  assert.deepEqual(starts, [0, 2000, 8000]);
  assert.equal(told, 3);
  await heartbeat.stop();
  await clock.advance(10_000);
  assert.equal(starts.length, 3);
  assert.equal(clock.timerCount, 0);
});

Deno.test("stopping waits for the round that runs", async () => {
  const clock = new VirtualClock();
  const answer = Promise.withResolvers<PingRound>();
  const told: PingRound[] = [];
  const heartbeat = new Heartbeat({
    clock,
    intervalMs: 1,
    round: () => answer.promise,
    onRound: (round) => told.push(round),
    onFault: unexpected,
  });
  heartbeat.start();
  let stopped = false;
  const stopping = heartbeat.stop().then(() => stopped = true);
  await clock.advance(100);
  assert.equal(stopped, false);
  answer.resolve(judgeRound([], false));
  await stopping;
  assert.equal(told.length, 1);
});

Deno.test("an interval of 0 is refused", () => {
  const round = () => Promise.resolve(judgeRound([], false));
  const options = { clock: new VirtualClock(), round, onRound() {}, onFault: unexpected };
  assert.throws(() => new Heartbeat({ ...options, intervalMs: 0 }), RangeError);
  assert.throws(() => new Heartbeat({ ...options, intervalMs: NaN }), RangeError);
});
