/** The drain loop against the plain model of it, and the properties that hold for any course of events. */
import assert from "node:assert/strict";
import { type BatchConfig, DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import { ModelScheduler } from "../../src/scheduler/model_scheduler.ts";
import type { BatchKey } from "../../src/scheduler/schedulable.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { SerialBackend } from "../sim/serial_backend.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";
import { type LoggedBatch, type LoopEvent, runNaiveLoop, type TestItem, testItem } from "./naive_model.ts";
import { logged } from "./scheduler_rig.ts";

const KEYS: readonly BatchKey[] = [
  { operation: "encode", lora: "" },
  { operation: "encode", lora: "fine" },
  { operation: "extract", lora: "" },
];

/** A fraction of a millisecond that adds up exactly and meets no quarter for a thousand batches. */
const ODD = 1 / 4096;

interface Course {
  readonly config: BatchConfig;
  readonly depth: number;
  readonly idleBypass: boolean;
  readonly serviceMs: number;
  readonly events: readonly LoopEvent[];
  readonly keys: ReadonlyMap<string, BatchKey>;
  readonly items: ReadonlyMap<string, TestItem>;
}

/**
 * A random course of events. Submissions come at whole milliseconds, removals between them, batches end at odd fractions: no two
 * things of different kind happen at the same instant, for which there is no rule.
 */
function randomCourse(seed: number): Course {
  const random = new SeededRandom(seed);
  const config = {
    ...DEFAULT_BATCH_CONFIG,
    maxBatchCost: random.pick([60, 300, 16384]),
    maxBatchRequests: random.pick([1, 4, 12]),
    maxBatchWaitMs: random.pick([6, 15]),
  };
  const keys = new Map(
    KEYS.slice(0, random.integer(1, 3)).map((key) => [`${key.operation}${key.lora && "/"}${key.lora}`, key]),
  );
  const items = new Map<string, TestItem>();
  const events: LoopEvent[] = [];
  const usual = random.pick([1, 3, 8]);
  let t = 0;
  for (let i = 0; i < 60; i++) {
    t += random.chance(0.1) ? 80 : random.integer(0, usual);
    const key = random.pick([...keys.keys()]);
    const isExtract = key === "extract";
    const batch = Array.from(
      { length: random.chance(0.1) ? 15 : random.integer(1, 3) },
      (_, j) =>
        testItem(`i${i}-${j}`, {
          cost: random.integer(1, 90),
          runsAlone: isExtract && random.chance(0.2),
          hardCostCap: isExtract && random.chance(0.2) ? 70 : Infinity,
        }),
    );
    for (const item of batch) items.set(item.name, item);
    events.push({ t, kind: "submit", key, items: batch });
    const name = random.pick([...items.keys()]);
    if (random.chance(0.2)) events.push({ t: t + 0.75, kind: "remove", name });
  }
  events.sort((a, b) => a.t - b.t);
  return {
    config,
    depth: random.integer(1, 3),
    idleBypass: random.chance(0.7),
    serviceMs: random.pick([3 + ODD, 20 + ODD]),
    events,
    keys,
    items,
  };
}

function schedulerFor(course: Course, clock: VirtualClock, log: LoggedBatch[]): ModelScheduler<TestItem> {
  const backend = new SerialBackend(clock, course.serviceMs);
  return new ModelScheduler<TestItem>("model", {
    clock,
    config: course.config,
    pipelineDepth: course.depth,
    idleBypass: course.idleBypass,
    waveCadence: true,
    onFault: (_batch, thrown) => {
      throw thrown;
    },
    run: async (batch) => {
      log.push(logged(batch));
      await backend.run().done;
      return undefined;
    },
  });
}

function keyOf(course: Course, name: string): BatchKey {
  const key = course.keys.get(name);
  assert.ok(key !== undefined);
  return key;
}

Deno.test("the loop sends the same batches at the same times as the plain model", async () => {
  for (let seed = 1; seed <= 150; seed++) {
    const course = randomCourse(seed);
    const expected = runNaiveLoop(course, course.events);
    const clock = new VirtualClock();
    const actual: LoggedBatch[] = [];
    const scheduler = schedulerFor(course, clock, actual);
    for (const event of course.events) {
      clock.at(event.t, () => {
        if (event.kind === "submit") return scheduler.submit(keyOf(course, event.key), event.items);
        const item = course.items.get(event.name);
        if (item !== undefined) scheduler.remove(item);
      });
    }
    await clock.runToEnd();
    assert.deepEqual(actual, expected, `seed ${seed}`);
    assert.equal(scheduler.pendingItems + scheduler.pendingCost + scheduler.inflightBatches, 0, `seed ${seed}`);
  }
});

Deno.test("nothing is lost or sent twice, permits hold, and what a drain leaves over is given back", async () => {
  let leftOver = 0;
  for (let seed = 1; seed <= 150; seed++) {
    const random = new SeededRandom(seed);
    const course = randomCourse(seed + 1000);
    const clock = new VirtualClock();
    const log: LoggedBatch[] = [];
    const scheduler = schedulerFor(course, clock, log);
    const gone: string[] = [];
    const submitted: string[] = [];
    let drained: readonly TestItem[] | undefined;
    const drainAt = random.integer(0, course.events.at(-1)?.t ?? 0) + 0.5;
    const deadlineMs = random.pick([1, 30, 10_000]);
    for (const event of course.events.filter(({ t }) => t < drainAt)) {
      clock.at(event.t, () => {
        if (event.kind === "submit") {
          scheduler.submit(keyOf(course, event.key), event.items);
          submitted.push(...event.items.map((item) => item.name));
        } else {
          const item = course.items.get(event.name);
          if (item !== undefined && scheduler.remove(item)) gone.push(item.name);
        }
        assert.ok(scheduler.inflightBatches <= course.depth);
      });
    }
    clock.at(drainAt, () => void scheduler.drain(deadlineMs).then((items) => (drained = items)));
    await clock.runUntil(drainAt + deadlineMs);
    assert.ok(drained !== undefined, "the deadline holds");
    leftOver += drained.length;
    const seen = [...log.flatMap((batch) => batch.items), ...gone, ...drained.map((item) => item.name)];
    assert.deepEqual(seen.sort(), submitted.sort(), `seed ${seed}`);
    assert.equal(scheduler.pendingItems, 0);
    await clock.runToEnd();
    assert.equal(scheduler.inflightBatches, 0);
    assert.throws(() => scheduler.submit(keyOf(course, "encode"), [testItem("late")]), { code: "scheduler_closed" });
  }
  assert.ok(leftOver > 0, "some deadlines were too short, or the test shows nothing about leftovers");
});
