/**
 * The loop as it is wired: dispatch on virtual time with a simulated backend, whose time is linear in the padded cost, and a real
 * trainer behind its socket.
 */
import assert from "node:assert/strict";
import { sleep, systemClock } from "../../src/runtime/clock.ts";
import type { TraceEvent } from "../../src/runtime/trace.ts";
import { openBatchTimes, SidecarBatchTimes } from "../../src/serve/batch_time.ts";
import { BATCH_FEATURES } from "../../src/training/batch_features.ts";
import { pearson } from "../../src/training/gate.ts";
import { BatchTimeService } from "../../src/training/batch_time_service.ts";
import { batchAnswer, success } from "../dispatch/doubles.ts";
import { Rig, take } from "../dispatch/rig.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { openStore, TestLog, TestService } from "../training/support.ts";

const MODELS = ["small", "large"] as const;
const MAX_MS = 25;

/** The trainer that docs/training.md recommends for batch times. */
const TRAINER = {
  VMAFX_SIDECAR_N_FEATURES: `${BATCH_FEATURES}`,
  VMAFX_SIDECAR_BATCH_SIZE: "16",
  VMAFX_SIDECAR_REPLAY_MIX: "0.75",
  VMAFX_SIDECAR_LR: "0.05",
  VMAFX_SIDECAR_EMA_DECAY: "0.95",
  VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "100",
};

/** What the backend takes for so many items of at most so many characters, in milliseconds. */
function timeOf(model: string, items: number, longest: number): number {
  return model === "small" ? 2 + 0.004 * items * longest : 4 + 0.006 * items * longest;
}

/** A sidecar's dispatch with its predictor. */
class World implements AsyncDisposable {
  readonly log = new TestLog();
  readonly rig: Rig;
  readonly times: SidecarBatchTimes;
  /** What the backend says it took, from what it really took. */
  reported: (ms: number) => number = (ms) => ms;
  readonly #random: SeededRandom;
  /** Characters of each document, by work item. */
  readonly #lengths = new Map<string, number>();
  #requests = 0;

  constructor(seed: number, paths: { feedbackSocket?: string; versionsDir?: string }, maxMs?: number) {
    this.#random = new SeededRandom(seed);
    const service = new BatchTimeService({
      feedbackSocket: undefined,
      versionsDir: undefined,
      ...paths,
      policy: "latest-stable",
      clock: systemClock,
      log: this.log,
    });
    this.times = new SidecarBatchTimes(service, maxMs);
    const rig = this.rig = new Rig({ batchTimes: this.times });
    rig.backend.answer = async (body) => {
      const lengths = body.entries.map(({ work }) => this.#lengths.get(work.workItemId) ?? 0);
      const ms = timeOf(body.modelId, lengths.length, Math.max(...lengths));
      await sleep(rig.clock, ms);
      const inference_ms = this.reported(ms);
      return batchAnswer(body.entries.map(({ work }) => success(work.workItemId, { inference_ms })));
    };
    service.start();
  }

  get service(): BatchTimeService {
    return this.times.service;
  }

  /** Runs work of mixed lengths until the backend has had `count` more batches, and lets the trainer have what was measured. */
  async run(count: number, afterEach: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    const { rig, service } = this, random = this.#random;
    const until = rig.backend.batches.length + count;
    const delivered = async () => {
      await eventually("the trainer has what was measured", () => (service.report().feedback?.outstanding ?? 0) === 0);
      await afterEach();
    };
    let looked = rig.backend.batches.length;
    while (rig.backend.batches.length < until) {
      const model_id = random.pick(MODELS), request_id = `r${this.#requests++}`;
      const arrivals = Array.from({ length: random.integer(1, 24) }, (_, item_index) => {
        const text = "x".repeat(16 + Math.floor(1300 * random.next() * random.next()));
        this.#lengths.set(`${request_id}.${item_index}`, text.length);
        return rig.arrival({
          ...{ request_id, item_index, total_items: 24, model_id, operation: "score", item: null },
          query_item: { text: "q" },
          score_items: [{ text }],
        });
      });
      await take(rig, arrivals, 1000);
      assert.ok(arrivals.every(({ delivery }) => delivery.settlement?.did === "ack"));
      if (rig.backend.batches.length - looked < 100) continue;
      looked = rig.backend.batches.length;
      await delivered();
    }
    await delivered();
  }

  /** Predictions and times of the newest batches, by their events. */
  newest(count: number): { items: number; predictedMs: number | undefined; measuredMs: number }[] {
    const batches = new Map<number, TraceEvent & { kind: "batch" }>();
    for (const event of this.rig.trace) if (event.kind === "batch") batches.set(event.batch, event);
    return this.rig.trace.filter((event) => event.kind === "batch_time").slice(-count).map((event) => ({
      items: batches.get(event.batch)?.deliveries.length ?? 0,
      predictedMs: event.predictedMs,
      measuredMs: event.measuredMs,
    }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.service.close();
  }
}

Deno.test("the error falls below 10 % within 2000 batches, the limit holds, and a poisoned stream never serves", async () => {
  const folder = new TestFolder();
  // Fixtures as an operator gets them: an even sample of what was measured.
  {
    await using before = new World(1, { versionsDir: folder.file("versions") });
    await before.run(300);
    assert.equal(before.service.report().version, null);
    assert.ok(before.newest(300).every(({ predictedMs }) => predictedMs === undefined));
    assert.ok(before.newest(300).some(({ measuredMs }) => measuredMs > 2 * MAX_MS));
    Deno.writeTextFileSync(folder.file("fixtures.json"), JSON.stringify(before.service.fixtures()));
  }
  await using trainer = await TestService.start(
    { ...TRAINER, VMAFX_SIDECAR_GATE_FIXTURES: folder.file("fixtures.json") },
    folder,
  );
  const store = await openStore(folder.file("versions"), { nFeatures: BATCH_FEATURES, readOnly: true });
  await using world = new World(2, { feedbackSocket: trainer.socket, versionsDir: folder.file("versions") }, MAX_MS);
  /** Follows the trainer as the poll does, and holds what serves against what the gate said. */
  const follow = async () => {
    await trainer.service.settled();
    await world.service.poll();
    const { version } = world.service.report();
    if (version === null) return;
    const number = Number(version.replace("online.", ""));
    assert.equal((await store.record(number))?.metadata.state, "stable", version);
  };
  await world.run(2000, follow);
  const learnt = world.service.report();
  assert.ok(learnt.version !== null && learnt.predictions > 1000, JSON.stringify(learnt));
  assert.ok((learnt.mean_relative_error ?? 1) < 0.1, JSON.stringify(learnt));
  assert.ok((learnt.mean_absolute_error_ms ?? 100) < 0.1 * MAX_MS, JSON.stringify(learnt));
  assert.deepEqual(learnt.feedback, { delivered: learnt.feedback?.delivered, dropped: 0, rejected: 0, outstanding: 0 });

  const shared = world.newest(300).filter(({ items }) => items > 1);
  assert.ok(shared.length > 100, `${shared.length} batches of several items`);
  for (const { predictedMs } of shared) assert.ok(predictedMs !== undefined && predictedMs <= MAX_MS, `${predictedMs}`);
  const late = shared.filter(({ measuredMs }) => measuredMs > 1.2 * MAX_MS).length;
  assert.ok(late <= 0.02 * shared.length, `${late} of ${shared.length} took more than 20 % beyond the limit`);

  // Long batches are said to be short, and the other way round.
  const mean = world.newest(300).reduce((sum, { measuredMs }) => sum + measuredMs / 300, 0);
  world.reported = (ms) => Math.max(0.5, 2 * mean - ms);
  await world.run(1500, follow);
  assert.equal(trainer.service.status().last_gate, "failed");
  const newest = await store.record(trainer.service.status().checkpoint_counter);
  assert.equal(newest?.metadata.state, "unstable");
  const poisoned = world.times.report() as { limits_batches: boolean; version: string };
  assert.notEqual(poisoned.version, newest?.metadata.model_version);
  assert.equal(poisoned.limits_batches, false, "predictions that measurements contradict limit nothing");

  world.reported = (ms) => ms;
  await world.run(200);
  const after = world.newest(200);
  const agreement = pearson(after.map((one) => one.predictedMs ?? NaN), after.map((one) => one.measuredMs)) ?? NaN;
  assert.ok(
    agreement > 0.95,
    `what serves is still of the good stream: its correlation with the truth is ${agreement}`,
  );
});

Deno.test("nothing is asked for: nothing is made, and no part of the trainer is loaded", async () => {
  const off = { feedbackSocket: undefined, versionsDir: undefined, policy: "latest-stable", maxMs: undefined };
  assert.equal(await openBatchTimes(off, systemClock), undefined);
  const root = fromFileUrl(new URL("../../src/", import.meta.url));
  let looked = 0;
  const look = (folder: string) => {
    for (const { name, isDirectory } of Deno.readDirSync(folder)) {
      if (isDirectory) {
        if (name !== "training") look(`${folder}${name}/`);
        continue;
      }
      looked++;
      // A type leaves nothing behind; a call of `import()` is made late.
      const text = Deno.readTextFileSync(folder + name);
      assert.doesNotMatch(text, /^(?:import|export) (?!type )[^;]*?from "[^"]*\/training\//m, folder + name);
    }
  };
  look(root);
  assert.ok(looked > 100);
});
