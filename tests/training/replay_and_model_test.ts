/** The replay buffer, the initial weights and the optimiser's safeguards: what no vector can pin. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import { HIDDEN, Params } from "../../src/training/params.ts";
import { seededRandom } from "../../src/training/random.ts";
import { ReplayBuffer } from "../../src/training/replay_buffer.ts";
import { scoreRows } from "../../src/training/scoring.ts";
import { NON_FINITE, SGD_DEFAULTS, SgdEma } from "../../src/training/sgd.ts";
import { sgdStepRunner } from "../../src/training/step_runner.ts";
import { someParams } from "./support.ts";

function filled(capacity: number, count: number): ReplayBuffer<number> {
  const buffer = new ReplayBuffer<number>(capacity);
  for (let i = 0; i < count; i++) buffer.push(i);
  return buffer;
}

function drawn(buffer: ReplayBuffer<number>, count: number, seed: number): number[] {
  const into: number[] = [];
  assert.equal(buffer.draw(count, seededRandom(seed), into, 0), count);
  return into;
}

Deno.test("replay buffer: a capacity must be positive", () => {
  for (const capacity of [0, -1, NaN]) {
    assert.throws(() => new ReplayBuffer(capacity), { message: `capacity must be positive, got ${capacity}` });
  }
});

Deno.test("replay buffer: the oldest goes first and is counted", () => {
  const buffer = filled(3, 3);
  assert.equal(buffer.push(3), true);
  assert.equal(buffer.push(4), true);
  assert.deepEqual(buffer.toArray(), [2, 3, 4]);
  assert.deepEqual([buffer.size, buffer.totalPushed, buffer.totalEvicted], [3, 5, 2]);
  buffer.toArray().push(9);
  assert.deepEqual(buffer.toArray(), [2, 3, 4]);
});

Deno.test("replay buffer: no repeats when enough is held, a full batch when not, none when empty", () => {
  for (let seed = 0; seed < 200; seed++) {
    assert.equal(new Set(drawn(filled(50, 20), 20, seed)).size, 20);
    const few = drawn(filled(50, 3), 16, seed);
    assert.equal(few.length, 16);
    assert.ok(few.every((value) => value >= 0 && value < 3));
  }
  assert.equal(filled(5, 0).draw(4, seededRandom(1), [], 0), 0);
});

Deno.test("replay buffer: the same seed draws the same", () => {
  assert.deepEqual(drawn(filled(50, 40), 10, 8), drawn(filled(50, 40), 10, 8));
  assert.notDeepEqual(drawn(filled(50, 40), 10, 8), drawn(filled(50, 40), 10, 9));
});

Deno.test("replay buffer: draws are uniform, also after evictions and earlier draws", () => {
  const buffer = filled(40, 100);
  const random = seededRandom(11), counts = new Array<number>(40).fill(0), into: number[] = [];
  const rounds = 8000;
  for (let round = 0; round < rounds; round++) {
    buffer.draw(10, random, into, 0);
    for (const value of into) counts[value - 60] = (counts[value - 60] as number) + 1;
  }
  const expected = rounds * 10 / 40;
  const chiSquare = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  // 39 degrees of freedom: 80 is passed by chance once in about ten thousand runs, and the seed is fixed.
  assert.ok(chiSquare < 80, `chi-square ${chiSquare}`);
});

Deno.test("initial weights stay within their bounds and fill them", () => {
  for (const n of [1, 6, 16, 80]) {
    const params = Params.random(n, seededRandom(n));
    for (
      const [tensor, bound] of [[params.w0, 1 / Math.sqrt(n)], [params.b0, 1 / Math.sqrt(n)], [params.w1, 1 / 8], [
        params.b1,
        1 / 8,
      ]] as const
    ) {
      assert.ok(tensor.every((value) => Math.abs(value) <= Math.fround(bound)));
    }
    assert.ok(Math.max(...params.w0) > 0.9 / Math.sqrt(n) && Math.min(...params.w0) < -0.9 / Math.sqrt(n));
    assert.equal(params.flat.length, HIDDEN * n + 2 * HIDDEN + 1);
  }
  assert.equal(new Params(80).flat.length, 5249);
});

Deno.test("a step with a number that is not finite changes nothing, and the next one works", () => {
  const sgd = new SgdEma(someParams(1), 2, SGD_DEFAULTS);
  sgd.features.fill(0.5);
  sgd.targets.fill(50);
  sgd.step(2);
  const live = sgd.live.flat.slice(), ema = sgd.ema.flat.slice();
  for (const [features, target] of [[0.5, 1e38], [3e38, 50], [NaN, 50], [0.5, Infinity]] as const) {
    sgd.features.fill(features);
    sgd.targets.fill(target);
    assert.throws(() => sgd.step(2), { code: "step_failed", message: NON_FINITE });
    assert.deepEqual(sgd.live.flat, live);
    assert.deepEqual(sgd.ema.flat, ema);
    assert.equal(sgd.steps, 1);
  }
  const untouched = new SgdEma(someParams(1), 2, SGD_DEFAULTS);
  for (const trainer of [sgd, untouched]) {
    trainer.features.fill(0.5);
    trainer.targets.fill(50);
  }
  untouched.step(2);
  sgd.step(2);
  untouched.step(2);
  assert.deepEqual(sgd.live.flat, untouched.live.flat);
});

Deno.test("parameters that would overflow are not applied", () => {
  const sgd = new SgdEma(someParams(1), 1, { ...SGD_DEFAULTS, learningRate: 3e38, warmupSteps: 0, maxGradNorm: 1e9 });
  sgd.features.fill(1);
  sgd.targets.fill(1000);
  const before = sgd.live.flat.slice();
  assert.throws(() => sgd.step(1), { message: NON_FINITE });
  assert.deepEqual(sgd.live.flat, before);
});

Deno.test("a batch outside its limits, and a step within a step, are refused", () => {
  const sgd = new SgdEma(someParams(1), 2, SGD_DEFAULTS);
  assert.throws(() => sgd.begin(0), { message: "a batch must have 1 to 2 rows, got 0" });
  assert.throws(() => sgd.begin(3), { message: "a batch must have 1 to 2 rows, got 3" });
  assert.throws(() => sgd.advance(1), { message: "no training step is under way" });
  sgd.begin(2);
  assert.throws(() => sgd.begin(2), { message: "a training step is already under way" });
});

Deno.test("a wide step is cut into slices and comes to the same as a whole one", async () => {
  const n = 4000, rows = 32;
  const initial = someParams(2, n), random = seededRandom(3);
  const samples = Array.from(
    { length: rows },
    () => ({ features: Float32Array.from({ length: n }, random), score: 100 * random() }),
  );
  const sliced = new SgdEma(initial, rows, SGD_DEFAULTS), whole = new SgdEma(initial, rows, SGD_DEFAULTS);
  let turns = 0;
  const clock = {
    ...systemClock,
    after: (delay: number, action: () => void) => (turns++, systemClock.after(delay, action)),
  };
  const report = sgdStepRunner(sliced, clock)(samples, []);
  assert.ok(report instanceof Promise, "a step of this width does not fit one slice");
  await report;
  samples.forEach((sample, row) => {
    whole.features.set(sample.features, row * n);
    whole.targets[row] = sample.score;
  });
  whole.step(rows);
  assert.ok(turns >= 2);
  assert.deepEqual(sliced.live.flat, whole.live.flat);
  assert.deepEqual(sliced.ema.flat, whole.ema.flat);
  // The sum of squares is taken slice by slice, so its last digits may differ.
  assert.ok(Math.abs(sliced.loss - whole.loss) < 1e-9 * whole.loss);
  const features = new Float32Array(samples.flatMap((sample) => [...sample.features]));
  const scores = await scoreRows(initial, features, rows, clock);
  for (let row = 0; row < rows; row++) {
    assert.deepEqual(
      scores.subarray(row, row + 1),
      await scoreRows(initial, samples[row]?.features ?? features, 1, clock),
    );
  }
});
