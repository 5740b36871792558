/** When held deliveries are kept alive, on virtual time (spec/queue.md 2.4). */
import assert from "node:assert/strict";
import type { Held } from "../../src/consumer/held_list.ts";
import { type KeptDelivery, progressIntervalMs, ProgressKeeper } from "../../src/consumer/progress_keeper.ts";
import { decodeWorkItem, type WorkItem } from "../../src/wire/work_item.ts";
import { type Value, workItemBytes } from "../harness/work_items.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

class Kept implements KeptDelivery {
  readonly work: WorkItem;
  readonly arrivedAt: number;
  readonly #clock: VirtualClock;
  dueAt = 0;
  previous: Held | undefined = undefined;
  next: Held | undefined = undefined;
  held = false;
  /** Times of progress. */
  readonly at: number[] = [];

  constructor(clock: VirtualClock, fields: { readonly [key: string]: Value } = {}) {
    this.#clock = clock;
    this.work = decodeWorkItem(workItemBytes(fields));
    this.arrivedAt = clock.now();
  }

  progress(): boolean {
    this.at.push(this.#clock.now());
    return true;
  }
}

interface Choices {
  readonly enforce?: boolean;
  readonly longestMs?: number;
  readonly mayProgress?: () => boolean;
  readonly ackWaitMs?: number;
}

function keeper(clock: VirtualClock, choices: Choices = {}): ProgressKeeper {
  return new ProgressKeeper(clock, {
    deadlines: { skewToleranceS: 0, maxBudgetS: 180 },
    enforce: choices.enforce ?? false,
    longestMs: choices.longestMs ?? 1_800_000,
    mayProgress: choices.mayProgress ?? (() => true),
  }, choices.ackWaitMs ?? 30_000);
}

Deno.test("the interval is a third of the ack wait, never more than 15 s", () => {
  assert.equal(progressIntervalMs(30_000), 10_000);
  assert.equal(progressIntervalMs(300_000), 15_000);
  assert.equal(progressIntervalMs(600), 200);
  assert.equal(progressIntervalMs(3), 50);
});

Deno.test("every held delivery is seen to once an interval, until it is released", async () => {
  const clock = new VirtualClock();
  const keep = keeper(clock);
  const first = new Kept(clock);
  keep.hold(first);
  await clock.advance(4_000);
  const second = new Kept(clock);
  keep.hold(second);
  await clock.advance(30_000);
  assert.deepEqual(first.at, [10_000, 20_000, 30_000]);
  assert.deepEqual(second.at, [14_000, 24_000, 34_000]);
  keep.release(first);
  await clock.advance(20_000);
  assert.equal(first.at.length, 3);
  assert.equal(second.at.length, 5);
  keep.release(second);
  assert.equal(keep.size, 0);
  await clock.advance(20_000);
  assert.equal(clock.timerCount, 0, "a timer runs for nobody");
});

Deno.test("a thousand deliveries cost one timer", async () => {
  const clock = new VirtualClock();
  const keep = keeper(clock);
  const all = Array.from({ length: 1_000 }, () => new Kept(clock));
  for (const delivery of all) keep.hold(delivery);
  assert.equal(clock.timerCount, 1);
  await clock.advance(10_000);
  assert.ok(all.every(({ at }) => at.length === 1));
  assert.equal(clock.timerCount, 1);
});

Deno.test("nothing is sent while it may not be; afterwards it goes on", async () => {
  const clock = new VirtualClock();
  let may = false;
  const keep = keeper(clock, { mayProgress: () => may });
  const delivery = new Kept(clock);
  keep.hold(delivery);
  await clock.advance(25_000);
  assert.deepEqual(delivery.at, []);
  may = true;
  await clock.advance(10_000);
  assert.deepEqual(delivery.at, [30_000]);
});

Deno.test("the horizon: without a deadline the life of a cancellation, with one what the rules say", async () => {
  const clock = new VirtualClock();
  const now = clock.unixMs() / 1000;
  const keep = keeper(clock, { longestMs: 100_000 });
  const unbounded = new Kept(clock);
  const shadow = new Kept(clock, { timestamp: now - 170, deadline: now + 5 });
  for (const delivery of [unbounded, shadow]) keep.hold(delivery);
  await clock.advance(200_000);
  assert.equal(unbounded.at.at(-1), 90_000);
  assert.equal(shadow.at.at(-1), 90_000, "live now, worth one more budget: the cap comes first");
  assert.equal(keep.size, 0);

  const enforcing = keeper(clock, { enforce: true });
  const later = clock.unixMs() / 1000;
  const bounded = new Kept(clock, { timestamp: later, deadline: later + 35 });
  const generation = new Kept(clock, { operation: "generate", timestamp: later, deadline: later + 35 });
  for (const delivery of [bounded, generation]) enforcing.hold(delivery);
  const started = clock.now();
  await clock.advance(60_000);
  assert.deepEqual(bounded.at.map((at) => at - started), [10_000, 20_000, 30_000]);
  assert.equal(generation.at.length, 6, "generation is never judged by a deadline");
});

Deno.test("another ack wait counts from now on, for all", async () => {
  const clock = new VirtualClock();
  const keep = keeper(clock, { ackWaitMs: 30_000 });
  const [a, b] = [new Kept(clock), new Kept(clock)];
  keep.hold(a);
  keep.hold(b);
  await clock.advance(1_000);
  keep.setAckWait(3_000);
  await clock.advance(2_000);
  assert.deepEqual(a.at, [2_000, 3_000]);
  assert.deepEqual(b.at, [2_000, 3_000]);
});

Deno.test("after an absence of the connection all are seen to at once", async () => {
  const clock = new VirtualClock();
  const keep = keeper(clock);
  const delivery = new Kept(clock);
  keep.hold(delivery);
  await clock.advance(3_000);
  keep.refreshAll();
  assert.deepEqual(delivery.at, [3_000]);
  await clock.advance(10_000);
  assert.deepEqual(delivery.at, [3_000, 13_000]);
  keep.close();
  await clock.advance(60_000);
  assert.equal(delivery.at.length, 2);
  assert.equal(clock.timerCount, 0);
});
