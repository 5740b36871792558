/** The sidecar, a trainer and a backend that pads, as programs: measurements go out, versions come back, predictions are made. */
import assert from "node:assert/strict";
import { BATCH_FEATURES } from "../../src/training/batch_features.ts";
import { startPaddingBackend, startTrain, TimedSidecar } from "../harness/batch_time_processes.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { SeededRandom } from "../sim/seeded_random.ts";

interface Shown {
  readonly batch_times?: {
    readonly version: string | null;
    readonly predictions: number;
    readonly mean_relative_error: number | null;
    readonly limits_batches: boolean;
    readonly feedback: { readonly delivered: number; readonly dropped: number; readonly rejected: number };
  };
}

async function shown(sidecar: TimedSidecar): Promise<NonNullable<Shown["batch_times"]>> {
  const { batch_times } = await sidecar.debug("/debug/batches") as Shown;
  assert.ok(batch_times !== undefined);
  return batch_times;
}

Deno.test("batch times: a trainer learns from the sidecar, and what an operator promotes predicts", async () => {
  using folder = new TestFolder();
  await using _backend = await startPaddingBackend(folder, { baseMs: 2, usPerCharacter: 1 });
  // The sidecar is first: it does not wait for a trainer, nor for its folder.
  await using sidecar = await TimedSidecar.start(folder, {
    SIE_BATCH_TIME_FEEDBACK_SOCKET: folder.file("train.sock"),
    SIE_BATCH_TIME_VERSIONS_DIR: folder.file("versions"),
    SIE_BATCH_TIME_MAX_MS: "8",
    SIE_TRACE_FILE: folder.file("trace.jsonl"),
  });
  const random = new SeededRandom(5);
  const work = (batches: number) =>
    Promise.all(Array.from({ length: 4 }, async () => {
      for (let i = 0; i < batches; i++) await sidecar.score(1 + Math.floor(2000 * random.next()));
    }));
  await work(10);
  const before = await shown(sidecar);
  assert.deepEqual([before.version, before.predictions, before.feedback.delivered], [null, 0, 0]);

  await using trainer = startTrain(folder);
  await trainer.line("it listens", (line) => line.includes("vmafx-sidecar listening on"));
  await eventually("there are three versions", async () => {
    await work(5);
    try {
      return [...Deno.readDirSync(folder.file("versions"))].some(({ name }) => name === "model_v000003.onnx.sha256");
    } catch (thrown) {
      if (thrown instanceof Deno.errors.NotFound) return false;
      throw thrown;
    }
  });
  assert.equal((await shown(sidecar)).version, null, "nothing is stable without fixtures");

  await using promoted = startTrain(folder, ["promote", "3"]);
  assert.equal((await promoted.end()).code, 0, promoted.output());
  await eventually("version 3 predicts", async () => (await shown(sidecar)).version === "online.3");
  await eventually("predictions are measured", async () => {
    await work(5);
    return (await shown(sidecar)).predictions >= 20;
  });
  const after = await shown(sidecar);
  assert.ok(after.mean_relative_error !== null && after.mean_relative_error < 2, JSON.stringify(after));
  assert.deepEqual([after.feedback.dropped, after.feedback.rejected], [0, 0]);

  const fixtures = await sidecar.debug("/debug/batch-fixtures") as { n_features: number; pairs: unknown[] };
  assert.deepEqual([fixtures.n_features, fixtures.pairs.length], [BATCH_FEATURES, 20]);

  // The trainer dies; work goes on.
  await trainer.stop("SIGKILL");
  await work(5);
  await sidecar.sidecar.stop();
  const lines = sidecar.sidecar.process.output();
  assert.equal(lines.match(/cannot connect to/g)?.length, 2, "once before the trainer came, once after it went");
  assert.equal(lines.match(/the trainer takes measurements/g)?.length, 1, lines);
  const trace = Deno.readTextFileSync(folder.file("trace.jsonl")).trim().split("\n").map((line) => JSON.parse(line));
  const times = trace.filter(({ kind }) => kind === "batch_time");
  assert.ok(times.every(({ measuredMs }) => measuredMs >= 2));
  assert.ok(times.some(({ predictedMs }) => predictedMs > 0));
});
