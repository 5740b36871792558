/** The trainer's rules that the traces do not show: other failures, poison, pause, export in the owner's time. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import type { IngestOutcome } from "../../src/training/ack.ts";
import { splitBatch } from "../../src/training/batch_split.ts";
import { TrainingMetrics } from "../../src/training/metrics.ts";
import { seededRandom } from "../../src/training/random.ts";
import type { RunStep, StepReport } from "../../src/training/step_runner.ts";
import { OnlineTrainer, type TrainerOptions } from "../../src/training/trainer.ts";
import { TestLog } from "./support.ts";

const NO_CHECKPOINTS = { afterStep: () => null, counter: 0 };

function newTrainer(runStep: RunStep, more: Partial<TrainerOptions> = {}) {
  const log = new TestLog(), metrics = new TrainingMetrics();
  const trainer = new OnlineTrainer({
    nFeatures: 1,
    split: splitBatch(2, 0),
    pendingCapacity: 4,
    replayCapacity: 100,
    poisonRetries: 0,
    samplesBefore: 0,
    runStep,
    checkpointer: NO_CHECKPOINTS,
    random: seededRandom(1),
    clock: systemClock,
    log,
    metrics,
    ...more,
  });
  const ingest = (score: number) => trainer.ingest({ features: new Float32Array(1), score });
  return { trainer, ingest, log, metrics };
}

Deno.test("any thrown value restores the window and frees the ownership", async () => {
  for (const thrown of [new RangeError("range"), "a string", undefined, { odd: true }]) {
    for (const later of [false, true]) {
      let broken = true;
      const { trainer, ingest } = newTrainer(() => {
        if (!broken) return { loss: 1 };
        if (later) return Promise.reject(thrown);
        throw thrown;
      });
      ingest(1);
      const outcome = await ingest(2);
      assert.equal(outcome.kind, "retry_queued");
      assert.equal(trainer.status().training_active, false);
      assert.deepEqual(trainer.waiting().map((sample) => sample.score), [1, 2]);
      broken = false;
      assert.equal((await ingest(3)).kind, "trained");
    }
  }
});

Deno.test("a window that keeps failing blocks for ever by default and is dropped when told so", async () => {
  const fail = () => {
    throw new Error("boom");
  };
  const stuck = newTrainer(fail, { pendingCapacity: 2 });
  for (let i = 0; i < 50; i++) await stuck.ingest(i);
  assert.deepEqual(stuck.trainer.waiting().map((sample) => sample.score), [0, 1]);
  assert.equal(stuck.trainer.failing, true);

  const { trainer, ingest, metrics, log } = newTrainer(fail, { poisonRetries: 3, pendingCapacity: 2 });
  ingest(1);
  assert.equal((await ingest(2)).kind, "retry_queued");
  assert.deepEqual(await ingest(3), { kind: "refused", error: "boom", retryable: true });
  assert.deepEqual(await ingest(3), {
    kind: "retry_queued",
    step: 0,
    error: "boom; window of 2 samples dropped after 3 failed steps",
  });
  assert.deepEqual(trainer.waiting().map((sample) => sample.score), [3]);
  assert.equal(metrics.samplesDropped, 2);
  assert.equal(metrics.samplesAdmitted, 3);
  assert.ok(log.has("ERROR window of 2 samples dropped"));
});

Deno.test("a step that fails again and again is told once, and so is its end", async () => {
  let broken = true;
  const { ingest, log } = newTrainer(() => {
    if (broken) throw new Error("boom");
    return { loss: 1 };
  });
  for (let i = 0; i < 30; i++) await ingest(i);
  assert.deepEqual(log.lines, [
    "ERROR training step failed, its 2 samples are kept for the next try: boom",
    "ERROR 10 training steps failed in a row; the oldest window blocks all others, VMAFX_SIDECAR_POISON_RETRIES can drop it",
  ]);
  broken = false;
  for (let i = 0; i < 30; i++) await ingest(i);
  assert.deepEqual(log.lines.slice(2), ["INFO training steps succeed again"]);
});

Deno.test("while paused every sample is refused as retryable", () => {
  const { trainer, ingest, metrics } = newTrainer(() => ({ loss: 1 }));
  trainer.setPaused(true);
  assert.deepEqual(ingest(1), { kind: "refused", error: "training paused", retryable: true });
  assert.equal(trainer.status().total_pushed, 0);
  trainer.setPaused(false);
  assert.deepEqual(ingest(1), { kind: "admitted", step: 0 });
  assert.deepEqual([metrics.samplesRefused, metrics.samplesAdmitted], [1, 1]);
});

Deno.test("an export happens while the step is still owned; others queue meanwhile", async () => {
  const exporting = Promise.withResolvers<string | null>();
  const { trainer, ingest } = newTrainer(() => ({ loss: 2 }), {
    checkpointer: { ...NO_CHECKPOINTS, afterStep: () => exporting.promise },
  });
  ingest(1);
  const owner = ingest(2);
  assert.equal(trainer.status().training_active, true);
  assert.deepEqual(ingest(3), { kind: "admitted", step: 1 });
  assert.deepEqual(ingest(4), { kind: "admitted", step: 1 });
  assert.equal((ingest(5) as IngestOutcome).kind, "refused");
  exporting.resolve("/versions/model_v000001.onnx");
  assert.deepEqual(await owner, { kind: "trained", step: 1, loss: 2, checkpoint: "/versions/model_v000001.onnx" });
  assert.equal(trainer.status().training_active, false);
});

Deno.test("many callers at once never start a second step and lose no sample", async () => {
  const windows: number[][] = [];
  let running = 0;
  const { trainer, ingest } = newTrainer((window) => {
    assert.equal(++running, 1);
    windows.push(window.map((sample) => sample.score));
    return Promise.resolve().then((): StepReport => {
      running--;
      return { loss: 1 };
    });
  }, { pendingCapacity: 1000 });
  await Promise.all(Array.from({ length: 200 }, async (_, i) => {
    for (let turn = 0; turn < i % 7; turn++) await Promise.resolve();
    await ingest(i);
  }));
  const seen = [...windows.flat(), ...trainer.waiting().map((sample) => sample.score)];
  assert.deepEqual(seen.toSorted((a, b) => a - b), Array.from({ length: 200 }, (_, i) => i));
});

Deno.test("the number of samples goes on where earlier processes stopped", () => {
  const { trainer, ingest } = newTrainer(() => ({ loss: 1 }), { samplesBefore: 1000 });
  ingest(1);
  assert.equal(trainer.samplesTotal, 1001);
});
