/** The producer of this product on a simulated backend: features, prediction, learning, and a poisoned stream. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import {
  BATCH_FEATURE_NAMES,
  BATCH_FEATURES,
  BATCH_SCALE,
  type DispatchedBatch,
  ERROR_WINDOW,
  LearnedBatchTime,
  MODEL_SLOTS,
  modelSlots,
  scoreOfMs,
  SLOTS_OF_MODEL,
  writeBatchFeatures,
} from "../../src/training/batch_features.ts";
import { FeedbackClient } from "../../src/training/feedback_client.ts";
import type { FeedbackMessage } from "../../src/training/feedback_message.ts";
import { type Random, seededRandom } from "../../src/training/random.ts";
import { TestFolder } from "../harness/process.ts";
import { TestLog, TestService } from "./support.ts";

const SCALE = BATCH_SCALE;

/** A trainer for batch times, as docs/training.md recommends it. */
const SETTINGS = {
  VMAFX_SIDECAR_N_FEATURES: `${BATCH_FEATURES}`,
  VMAFX_SIDECAR_BATCH_SIZE: "16",
  VMAFX_SIDECAR_REPLAY_MIX: "0.75",
  VMAFX_SIDECAR_LR: "0.05",
  VMAFX_SIDECAR_EMA_DECAY: "0.95",
  VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "100",
};

function someBatch(random: Random): DispatchedBatch {
  const items = 1 + Math.floor(64 * random()), longest = Math.round(16 + 240 * random() * random());
  return {
    operation: "encode",
    modelId: random() < 0.6 ? "small" : "large",
    items,
    cost: Math.round(items * longest * (0.4 + 0.6 * random())),
    longest,
    paddedCost: items * longest,
    queueDepth: Math.floor(200 * random()),
    inFlight: Math.floor(4 * random()),
    recentMs: 40 * random(),
  };
}

/** A backend whose time is linear in the padded cost, with two models. */
function timeOf(batch: DispatchedBatch): number {
  return batch.modelId === "small" ? 2 + 0.004 * batch.paddedCost : 4 + 0.006 * batch.paddedCost;
}

Deno.test("features have their places, are of order one and name every place", () => {
  const batch: DispatchedBatch = {
    operation: "score",
    modelId: "m",
    items: 32,
    cost: 4096,
    longest: 256,
    paddedCost: 8192,
    queueDepth: 16,
    inFlight: 4,
    recentMs: 50,
  };
  const features = new Float32Array(BATCH_FEATURES).fill(9);
  writeBatchFeatures(batch, SCALE, features);
  const named = Object.fromEntries(BATCH_FEATURE_NAMES.map((name, i) => [name, features[i]]));
  assert.equal(Object.keys(named).length, BATCH_FEATURES);
  assert.deepEqual(Object.fromEntries(Object.entries(named).filter(([, value]) => value !== 0)), {
    operation_score: 1,
    items: 0.5,
    cost: 0.25,
    longest: 0.015625,
    padded_cost: 0.5,
    queue_depth: 0.25,
    in_flight: 0.25,
    recent_ms: 0.5,
    ...Object.fromEntries(
      modelSlots("m").flatMap((slot) => [
        [`model_slot_${slot}`, 1],
        [`padded_cost_slot_${slot}`, 0.5],
      ]),
    ),
  });
  assert.equal(scoreOfMs(50, SCALE), 50);
});

Deno.test("a model's places are its own matter: different ones, spread evenly, seldom those of another model", () => {
  const names = Array.from({ length: 4000 }, (_, i) => `org/model-${i}`);
  const places = names.map(modelSlots);
  const counts = new Array<number>(MODEL_SLOTS).fill(0);
  for (const slots of places) {
    assert.equal(new Set(slots).size, SLOTS_OF_MODEL);
    for (const slot of slots) counts[slot] = (counts[slot] ?? NaN) + 1;
  }
  // Expected 750 each.
  assert.ok(counts.every((count) => Math.abs(count - 750) < 150), counts.join());
  const sets = new Map<string, number>();
  for (const slots of places) {
    const text = slots.toSorted().join();
    sets.set(text, (sets.get(text) ?? 0) + 1);
  }
  // There are 560; two names in 1000 would meet if each was as likely.
  const meeting = [...sets.values()].reduce((sum, n) => sum + n * (n - 1), 0) / (names.length * (names.length - 1));
  assert.ok(meeting < 0.004, `${meeting}`);
});

Deno.test("nothing is predicted without a model, without a positive score, or from odd numbers; odd times are not sent", () => {
  const sent: FeedbackMessage[] = [];
  let score: number | undefined;
  const predictor = new LearnedBatchTime(
    {
      scoreOne(_, into) {
        into[0] = score ?? NaN;
        return score === undefined ? undefined : { version: 1, modelVersion: "online.1", params: null as never };
      },
    },
    { send: (message) => sent.push(message) > 0 },
    SCALE,
  );
  const batch = someBatch(seededRandom(1));
  assert.equal(predictor.predictMs(batch), undefined);
  score = -3;
  assert.equal(predictor.predictMs(batch), undefined);
  score = 40;
  assert.equal(predictor.predictMs(batch), 40);
  assert.equal(predictor.predictMs({ ...batch, cost: NaN }), undefined);
  for (const ms of [NaN, Infinity, 0, -1]) predictor.observe(batch, ms, 40);
  predictor.observe({ ...batch, longest: Infinity }, 50, 40);
  assert.deepEqual([sent.length, predictor.error.count], [0, 0]);
  predictor.observe(batch, 50, 40);
  predictor.observe(batch, 32, 40);
  predictor.observe(batch, 10, undefined);
  assert.deepEqual(sent.map((message) => message.trueScore), [50, 32, 10]);
  assert.deepEqual(predictor.error, { count: 2, relative: (0.2 + 0.25) / 2, absoluteMs: 9 });
  for (let i = 0; i < ERROR_WINDOW; i++) predictor.observe(batch, 20, 21);
  const { count, relative, absoluteMs } = predictor.error;
  assert.deepEqual([count, absoluteMs], [2 + ERROR_WINDOW, 1]);
  assert.ok(Math.abs(relative - 0.05) < 1e-12, `${relative}`);
});

/** Sends `count` measured batches through the predictor and waits until the trainer has them. */
async function run(
  predictor: LearnedBatchTime,
  client: FeedbackClient,
  random: Random,
  count: number,
  time: (batch: DispatchedBatch) => number,
): Promise<void> {
  for (let i = 0; i < count; i++) {
    const batch = someBatch(random);
    predictor.observe(batch, time(batch), predictor.predictMs(batch));
    // The backend's own pace: the trainer is far ahead of it.
    while (client.outstanding > 4) await client.changed();
  }
  while (client.outstanding > 0) await client.changed();
}

function fixturesText(random: Random): string {
  const pairs = Array.from({ length: 20 }, (_, i) => {
    const batch = someBatch(random), features = new Float32Array(BATCH_FEATURES);
    writeBatchFeatures(batch, SCALE, features);
    return { id: `batch ${i}`, features: [...features], score: scoreOfMs(timeOf(batch), SCALE) };
  });
  return JSON.stringify({ version: 1, n_features: BATCH_FEATURES, pairs });
}

Deno.test("time linear in padded cost: the error falls below 10 % within 2000 batches; a poisoned stream never serves", async () => {
  const folder = new TestFolder();
  const random = seededRandom(17);
  Deno.writeTextFileSync(folder.file("fixtures.json"), fixturesText(random));
  await using trainer = await TestService.start({
    ...SETTINGS,
    VMAFX_SIDECAR_GATE_FIXTURES: folder.file("fixtures.json"),
  }, folder);
  const client = new FeedbackClient({ socketPath: trainer.socket, clock: systemClock, log: new TestLog() });
  client.start();
  const predictor = new LearnedBatchTime(trainer.service.scorer, client, SCALE);
  await run(predictor, client, random, 2000, timeOf);
  await trainer.service.settled();
  assert.ok(predictor.error.count >= 200);
  assert.ok(predictor.error.relative < 0.1, `error ${predictor.error.relative}`);

  const trusted = trainer.service.scorer.active?.version ?? 0;
  assert.ok(trusted > 0);
  // Negated targets: long batches are told to be short.
  await run(predictor, client, random, 1500, (batch) => Math.max(1, 100 - timeOf(batch)));
  await trainer.service.settled();
  const status = trainer.service.status();
  assert.equal(status.last_gate, "failed");
  assert.ok((trainer.service.scorer.active?.version ?? 0) < status.checkpoint_counter);
  let worst = 0;
  for (let i = 0; i < 200; i++) {
    const batch = someBatch(random);
    worst += Math.abs((predictor.predictMs(batch) ?? 0) - timeOf(batch)) / timeOf(batch) / 200;
  }
  assert.ok(worst < 0.25, `what serves is still of the good stream: error ${worst}`);
  assert.deepEqual([client.dropped, client.rejected], [0, 0]);
  await client.close();
});
