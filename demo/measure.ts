/** Figures of a run: how long calls took as their callers saw it, and how the sidecar batched them by its own event trace. */
import { sleep, systemClock } from "../src/runtime/clock.ts";
import type { TraceEvent, TraceGap, TraceHeader } from "../src/runtime/trace.ts";
import { DemoFailure } from "./failure.ts";

/** Longest wait for the trace to be complete; the sidecar writes it every 200 ms. */
const TRACE_LIMIT_MS = 10_000;
const LOOK_EVERY_MS = 20;

/** Many calls of one operation. */
export interface Timing {
  /** Milliseconds of each call, in no particular order. */
  readonly latenciesMs: readonly number[];
  /** From the first call to the last answer. */
  readonly totalMs: number;
}

/** Smallest, middle and largest of some numbers. */
export interface Spread {
  readonly count: number;
  readonly min: number;
  readonly median: number;
  readonly max: number;
}

/**
 * Calls `call` once for each input, with `callers` calls on their way at a time.
 *
 * @param onDone told after each answer how many have come
 * @returns answers in the order of the inputs
 */
export async function callAll<I, O>(
  inputs: readonly I[],
  callers: number,
  call: (input: I) => Promise<O>,
  onDone: (done: number) => void,
): Promise<{ readonly answers: O[]; readonly timing: Timing }> {
  const answers = new Array<O>(inputs.length);
  const latenciesMs: number[] = [];
  const queue = inputs.entries();
  const start = systemClock.now();
  const caller = async () => {
    for (const [index, input] of queue) {
      const sent = systemClock.now();
      answers[index] = await call(input);
      latenciesMs.push(systemClock.now() - sent);
      onDone(latenciesMs.length);
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return { answers, timing: { latenciesMs, totalMs: systemClock.now() - start } };
}

/** The smallest value that at least `percent` percent of the values do not exceed. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const value = sorted[Math.max(0, Math.ceil(sorted.length * percent / 100) - 1)];
  if (value === undefined) throw new RangeError("no percentile of nothing");
  return value;
}

/** Sizes of the batches of each operation, from the lines of a trace. A line that is not written to its end is left out. */
export function batchSizes(trace: string): Map<string, number[]> {
  const operations = new Map<number, string>();
  const sizes = new Map<string, number[]>();
  for (const line of trace.split("\n").slice(0, -1)) {
    const event = JSON.parse(line) as TraceEvent | TraceHeader | TraceGap;
    if (event.kind === "arrival") operations.set(event.delivery, event.operation);
    if (event.kind !== "batch") continue;
    const operation = operations.get(event.deliveries[0] ?? -1) ?? "unknown";
    const known = sizes.get(operation) ?? [];
    sizes.set(operation, known);
    known.push(event.deliveries.length);
  }
  return sizes;
}

/** Reads the trace as soon as `items` items have been batched in it: all that were sent. */
export async function readBatchSizes(path: string, items: number, signal: AbortSignal): Promise<Map<string, number[]>> {
  const giveUpAt = systemClock.now() + TRACE_LIMIT_MS;
  for (;;) {
    signal.throwIfAborted();
    const sizes = batchSizes(await Deno.readTextFile(path));
    const batched = [...sizes.values()].flat().reduce((sum, size) => sum + size, 0);
    if (batched >= items) return sizes;
    if (systemClock.now() > giveUpAt) throw new DemoFailure(`the trace tells of ${batched} items, ${items} were sent`);
    await sleep(systemClock, LOOK_EVERY_MS, signal);
  }
}

/** Smallest, middle and largest. */
export function spread(values: readonly number[]): Spread {
  return {
    count: values.length,
    min: percentile(values, 0),
    median: percentile(values, 50),
    max: percentile(values, 100),
  };
}
