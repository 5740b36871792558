/**
 * Latency with and without a limit on the predicted time of batches, on a backend that pads: most texts are short, some are long,
 * and one long text in a batch makes every short one in it as expensive. Load comes at the same times in both runs, whether answers
 * come or not.
 */
import { seededRandom } from "../../src/training/random.ts";
import { startPaddingBackend, startTrain, TimedSidecar } from "../../tests/harness/batch_time_processes.ts";
import { TestFolder } from "../../tests/harness/process.ts";
import type { BenchOptions, BenchPart } from "../lib/part.ts";

const BACKEND = { baseMs: 2, usPerCharacter: 2 } as const;
/** A long text alone fits; with anything else in its batch it does not. */
const MAX_MS = 14;
const SHORT = { least: 50, most: 350 } as const, LONG = { least: 3000, most: 5000 } as const;
const LONG_SHARE = 0.08;
/** Timers are a millisecond coarse, and short batches take few of them. */
const GOOD_ERROR = 0.15;
/** Items per second that are offered. */
const RATES = [60, 120, 180] as const;

interface Figures {
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly short_p99_ms: number;
  readonly long_p99_ms: number;
  readonly mean_batch: number;
}

interface Prediction {
  readonly version: string | null;
  readonly predictions: number;
  readonly mean_relative_error: number | null;
  readonly mean_absolute_error_ms: number | null;
  readonly limits_batches: boolean;
}

/** See the head of this file. */
export const batchTime: BenchPart = {
  name: "batch-time",
  async run(options: BenchOptions) {
    using folder = new TestFolder();
    await using _backend = await startPaddingBackend(folder, BACKEND);
    await using trainer = startTrain(folder);
    await trainer.line("it listens", (line) => line.includes("vmafx-sidecar listening on"));
    const lines = [row("batch time", "items/s", "p50 ms", "p99 ms", "short p99", "long p99", "batch")];
    const result: Record<string, Figures> = {};
    const predictions: Record<string, Prediction> = {};
    for (
      const [name, limit] of [["no limit", {}], [`at most ${MAX_MS} ms`, {
        SIE_BATCH_TIME_MAX_MS: `${MAX_MS}`,
      }]] as const
    ) {
      const isLimited = "SIE_BATCH_TIME_MAX_MS" in limit;
      await using sidecar = await start(folder, limit);
      options.progress(`batch time: ${name}, learning`);
      predictions[isLimited ? "limit" : "no_limit"] = await learn(sidecar, options.quick ? 300 : 2000);
      for (const rate of RATES) {
        options.progress(`batch time: ${name}, ${rate} items/s`);
        const figures = await measure(sidecar, folder, rate, options.quick ? 5 : 15);
        result[`${isLimited ? "limit" : "no_limit"}_at_${rate}`] = figures;
        const { p50_ms, p99_ms, short_p99_ms, long_p99_ms, mean_batch } = figures;
        lines.push(row(name, rate, p50_ms, p99_ms, short_p99_ms, long_p99_ms, mean_batch));
      }
      await sidecar.sidecar.stop();
    }
    const { limit } = predictions;
    lines.push(
      "",
      `${limit?.version} predicts, ${percent(limit?.mean_relative_error)} off (${
        limit?.mean_absolute_error_ms?.toFixed(2)
      } ms)`,
    );
    return { result: JSON.parse(JSON.stringify({ ...result, predictions })), lines };
  },
};

function start(folder: TestFolder, limit: Readonly<Record<string, string>>): Promise<TimedSidecar> {
  return TimedSidecar.start(folder, {
    SIE_BATCH_TIME_FEEDBACK_SOCKET: folder.file("train.sock"),
    SIE_BATCH_TIME_VERSIONS_DIR: folder.file("versions"),
    // There are no fixtures here, so nothing becomes stable.
    SIE_BATCH_TIME_POLICY: "latest",
    SIE_TRACE_FILE: folder.file("trace.jsonl"),
    RUST_LOG: "warn",
    ...limit,
  });
}

function lengthOf(random: () => number): number {
  const { least, most } = random() < LONG_SHARE ? LONG : SHORT;
  return least + Math.floor(random() * (most - least + 1));
}

/** Runs work of the same kind until so many batches were measured and the predictions are good. */
async function learn(sidecar: TimedSidecar, batches: number): Promise<Prediction> {
  const random = seededRandom(7);
  for (;;) {
    await Promise.all(Array.from({ length: 8 }, async () => {
      for (let i = 0; i < 20; i++) await sidecar.score(lengthOf(random));
    }));
    const { batch_times } = await sidecar.debug("/debug/batches") as {
      batch_times: Prediction & { feedback: { delivered: number } };
    };
    const error = batch_times.mean_relative_error ?? 1;
    if (batch_times.feedback.delivered >= batches && error < GOOD_ERROR) return batch_times;
    if (batch_times.feedback.delivered > 10 * batches) {
      throw new Error(`nothing is learnt: ${JSON.stringify(batch_times)}`);
    }
  }
}

/** Offers single items at random moments that are the same in each run. */
async function measure(sidecar: TimedSidecar, folder: TestFolder, rate: number, seconds: number): Promise<Figures> {
  const random = seededRandom(11), calls: Promise<void>[] = [];
  const short: number[] = [], long: number[] = [];
  const traced = (await batchSizes(folder)).length;
  const startedAt = performance.now();
  for (let at = 0; at < seconds * 1000; at += -Math.log(1 - random()) * 1000 / rate) {
    const length = lengthOf(random), dueAt = startedAt + at;
    const early = dueAt - performance.now();
    if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
    calls.push(
      sidecar.score(length).then(() => {
        // From the moment it was due: a sender that falls behind would hide what callers wait.
        (length >= LONG.least ? long : short).push(performance.now() - dueAt);
      }),
    );
  }
  await Promise.all(calls);
  const sizes = await untilTraced(folder, traced, calls.length);
  const all = [...short, ...long];
  return {
    p50_ms: percentile(all, 0.5),
    p99_ms: percentile(all, 0.99),
    short_p99_ms: percentile(short, 0.99),
    long_p99_ms: percentile(long, 0.99),
    mean_batch: Math.round(10 * calls.length / sizes.length) / 10,
  };
}

/** Sizes of the batches after the first `from`, once they hold `items` together; the trace is written a little later. */
async function untilTraced(folder: TestFolder, from: number, items: number): Promise<number[]> {
  for (;;) {
    const sizes = (await batchSizes(folder)).slice(from);
    if (sizes.reduce((sum, size) => sum + size, 0) >= items) return sizes;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function batchSizes(folder: TestFolder): Promise<number[]> {
  const lines = (await Deno.readTextFile(folder.file("trace.jsonl"))).split("\n").slice(0, -1);
  const batches = lines.filter((line) => line.startsWith('{"kind":"batch",'));
  return batches.map((line) => (JSON.parse(line) as { deliveries: unknown[] }).deliveries.length);
}

function percentile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return Math.round(10 * (sorted[Math.floor(part * (sorted.length - 1))] ?? NaN)) / 10;
}

function percent(part: number | null | undefined): string {
  return `${(100 * (part ?? NaN)).toFixed(1)} %`;
}

function row(name: string, ...cells: readonly (string | number)[]): string {
  return name.padEnd(18) + cells.map((cell) => String(cell).padStart(11)).join("");
}
