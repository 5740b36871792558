/** The parts of a pull loop by themselves: credit, statuses, healing steps, batches, ACK subjects. */
import assert from "node:assert/strict";
import { attemptOf, parseAckSubject } from "../../src/consumer/ack_subject.ts";
import type { JetStreamDelivery } from "../../src/consumer/jetstream_delivery.ts";
import { LaneBatches } from "../../src/consumer/lane_batches.ts";
import { heartbeatFor, nextStep } from "../../src/consumer/lane_watchdog.ts";
import { PullRequests } from "../../src/consumer/pull_requests.ts";
import { PullStatus, reactionTo } from "../../src/consumer/pull_status.ts";
import type { Arrival } from "../../src/dispatch/intake.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

Deno.test("credit: messages use it up, an expiry gives back what it says", () => {
  const requests = new PullRequests();
  const first = requests.ask(64, 5_000, 0);
  for (let i = 0; i < 40; i++) requests.received();
  assert.equal(requests.credit, 24);
  const second = requests.ask(64, 5_000, 100);
  assert.equal(requests.credit, 88);
  requests.ended(first, 24, false);
  assert.equal(requests.credit, 64);
  requests.ended(first, 24, false);
  assert.equal(requests.credit, 64, "a request ends once");
  requests.ended(second, undefined, true);
  assert.equal(requests.credit, 0);
});

Deno.test("credit: a lost status is noticed when the request's time is over", () => {
  const requests = new PullRequests();
  requests.ask(10, 1_000, 0);
  for (let i = 0; i < 4; i++) requests.received();
  requests.expire(2_999);
  assert.equal(requests.credit, 6);
  requests.expire(3_000);
  assert.equal(requests.credit, 0);
  assert.equal(requests.open, 0);
});

Deno.test("credit: what a lost request leaves behind does not shrink later ones for ever", () => {
  const requests = new PullRequests();
  requests.ask(64, 1_000, 0);
  for (let now = 500; now < 20_000; now += 500) {
    const id = requests.ask(32, 1_000, now);
    for (let i = 0; i < 16; i++) requests.received();
    requests.ended(id, 16, false);
    requests.expire(now);
  }
  assert.equal(requests.credit, 0);
});

Deno.test("credit: more than was asked for does no harm", () => {
  const requests = new PullRequests();
  const id = requests.ask(1, 1_000, 0);
  requests.received();
  requests.received();
  assert.equal(requests.credit, 0);
  requests.ended(id, 1, false);
  assert.equal(requests.credit, 0);
});

Deno.test("each status of the broker has its reaction", () => {
  const cases: [number, string, string][] = [
    [100, "Idle Heartbeat", "alive"],
    [404, "No Messages", "ask_again"],
    [408, "Request Timeout", "ask_again"],
    [409, "Batch Completed", "ask_again"],
    [409, "Leadership Change", "ask_later"],
    [409, "Server Shutdown", "ask_later"],
    [409, "Exceeded MaxWaiting", "ask_later"],
    [409, "Exceeded MaxRequestBatch of 32", "ask_less"],
    [409, "Exceeded MaxRequestExpires of 1s", "ask_shorter"],
    [409, "Consumer Deleted", "rebuild"],
    [503, "", "rebuild"],
    [409, "Consumer is push based", "refused"],
    [400, "Bad Request", "refused"],
    [409, "Message Size Exceeds MaxBytes", "ask_later"],
    [499, "Something New", "ask_later"],
  ];
  for (const [code, text, reaction] of cases) {
    assert.equal(reactionTo(new PullStatus(code, text)), reaction, `${code} ${text}`);
  }
});

Deno.test("healing goes from mild to strong, and only while something is owed", () => {
  const seen = { heardAt: 0, askedAt: 0, credit: 1, heartbeatMs: 1_000, stepsTried: 0 };
  assert.equal(nextStep({ ...seen, now: 2_999 }), "none");
  assert.equal(nextStep({ ...seen, now: 3_000 }), "repull");
  assert.equal(nextStep({ ...seen, now: 9_000, credit: 0 }), "none");
  assert.equal(nextStep({ ...seen, now: 9_000, askedAt: 8_000 }), "none");
  assert.equal(nextStep({ ...seen, now: 9_000, stepsTried: 1 }), "rebuild");
  assert.equal(nextStep({ ...seen, now: 9_000, stepsTried: 2 }), "reconnect");
  assert.equal(nextStep({ ...seen, now: 9_000, stepsTried: 9 }), "reconnect");
});

Deno.test("the heartbeat is one that the broker takes: at most half of the expiry", () => {
  for (const expiresMs of [1_000, 2_000, 5_000, 29_000]) {
    const heartbeat = heartbeatFor(expiresMs);
    assert.ok(heartbeat * 2 <= expiresMs, `${heartbeat} of ${expiresMs}`);
    assert.ok(heartbeat <= 1_250);
  }
});

Deno.test("ACK subjects: short and long form, and what is none", () => {
  const short = "$JS.ACK.WORK_POOL_default.default_l4_default.3.17.20.1700000000000000000.42";
  const long = "$JS.ACK.hub.AHASH.WORK_POOL_default.default_l4_default.3.17.20.1700000000000000000.42.rnd";
  for (const subject of [short, long]) {
    assert.deepEqual(parseAckSubject(subject), { attempt: 3, streamSequence: 17, pending: 42 });
    assert.equal(attemptOf(subject, "$JS.ACK.WORK_POOL_default.default_l4_default."), 3);
  }
  for (
    const subject of [
      "",
      "_INBOX.a.b.c.1.2.3.4.5",
      "$JS.ACK.S.c.1.2.3",
      "$JS.ACK.S.c.x.2.3.4.5",
      "$JS.ACK.S.c.1.2.3.4.-",
    ]
  ) {
    assert.equal(parseAckSubject(subject), undefined, subject);
    assert.equal(attemptOf(subject, "$JS.ACK.other."), 0, subject);
  }
  assert.equal(attemptOf("$JS.ACK.S.c.12", "$JS.ACK.S.c."), 0, "the count is followed by more");
});

/** Batches with an intake that takes until it is told. */
function collecting(options: { size?: number; inflight?: number; quantumMs?: number } = {}) {
  const clock = new VirtualClock();
  const taken: number[] = [];
  const finish: (() => void)[] = [];
  const batches = new LaneBatches({
    clock,
    size: options.size ?? 4,
    inflight: options.inflight ?? 2,
    quantumMs: () => options.quantumMs ?? 10,
    intake: {
      accept(arrivals: readonly Arrival[]) {
        taken.push(arrivals.length);
        return new Promise<void>((resolve) => finish.push(resolve));
      },
    },
  });
  const add = (count: number) => {
    for (let i = 0; i < count; i++) batches.add({} as JetStreamDelivery);
  };
  return { clock, taken, finish, batches, add };
}

Deno.test("batches: the first delivery waits for the quantum and not longer", async () => {
  const { clock, taken, add } = collecting();
  add(1);
  await clock.advance(5);
  add(2);
  await clock.advance(4.9);
  assert.deepEqual(taken, []);
  await clock.advance(0.1);
  assert.deepEqual(taken, [3]);
});

Deno.test("batches: a full one goes at once, and so does one that nothing can follow", async () => {
  const { clock, taken, finish, batches, add } = collecting();
  add(4);
  assert.deepEqual(taken, [4]);
  add(1);
  batches.complete();
  assert.deepEqual(taken, [4, 1]);
  finish.splice(0).forEach((end) => end());
  await clock.advance(50);
  assert.deepEqual(taken, [4, 1], "nothing is handed over twice");
});

Deno.test("batches: no more than inflight at once; what waits is handed over as soon as there is a place, grown meanwhile", async () => {
  const { clock, taken, finish, add } = collecting({ inflight: 1 });
  add(4);
  add(2);
  await clock.advance(10);
  add(1);
  assert.deepEqual(taken, [4]);
  finish.shift()?.();
  await clock.advance(0);
  assert.deepEqual(taken, [4, 3]);
  add(9);
  finish.shift()?.();
  await clock.advance(0);
  finish.shift()?.();
  await clock.advance(0);
  assert.deepEqual(taken, [4, 3, 4, 4]);
  finish.shift()?.();
  await clock.advance(10);
  assert.deepEqual(taken, [4, 3, 4, 4, 1]);
});

Deno.test("batches: what has not been handed over is given back, and running ones are waited for", async () => {
  const { clock, taken, finish, batches, add } = collecting({ inflight: 1 });
  add(4);
  add(3);
  assert.equal(batches.takeBack().length, 3);
  const joined = batches.join(1_000);
  finish.shift()?.();
  assert.equal(await joined, true);
  await clock.advance(100);
  assert.deepEqual(taken, [4]);
  add(4);
  const late = batches.join(1_000);
  await clock.advance(1_000);
  assert.equal(await late, false);
  finish.shift()?.();
});
