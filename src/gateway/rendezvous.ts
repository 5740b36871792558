/**
 * Which worker gets a direct copy (spec/queue.md 9): the one under the least pressure, and among equals the one whose hash together
 * with the request's is the largest, so that equal requests meet at the same worker as long as its load allows. Pure.
 */
import { Buffer } from "node:buffer";
import { xxh3, xxh3OfText } from "./xxh3.ts";

/** What a gateway knows of an eligible worker, from its heartbeat and from what it has sent there itself. */
export interface WorkerLoad {
  /** Also the worker's id in subjects and streams. */
  readonly name: string;
  readonly readyGpuSlots: number;
  /** Whole numbers; negative ones count as 0. */
  readonly pendingCost: number;
  readonly queueDepth: number;
  readonly inflight: number;
}

/** Cost, queue and items in work for each slot, rounded up; then the same three as they are. Compared from the left, less is better. */
export type Pressure = readonly [number, number, number, number, number, number];

/** The pressure that a worker is under. */
export function pressureOf(load: WorkerLoad): Pressure {
  const slots = Math.max(load.readyGpuSlots, 1);
  const cost = Math.max(load.pendingCost, 0),
    depth = Math.max(load.queueDepth, 0),
    inflight = Math.max(load.inflight, 0);
  return [
    ceilDivided(cost, slots),
    ceilDivided(depth, slots),
    ceilDivided(inflight, slots),
    cost,
    depth,
    inflight,
  ];
}

/** How well a worker and a request fit; larger is better. */
export function rendezvousScore(worker: string, requestHash: bigint): bigint {
  const workerHash = xxh3OfText(worker);
  const rotated = BigInt.asUintN(64, workerHash << 32n) | workerHash >> 32n;
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, rotated ^ requestHash, true);
  return xxh3(bytes);
}

/**
 * The worker to send to.
 *
 * @param requestHash undefined when the request has no routing key
 * @returns undefined when the work belongs to the pool: no worker, or no key
 */
export function pickWorker<Worker extends WorkerLoad>(
  workers: Iterable<Worker>,
  requestHash: bigint | undefined,
): Worker | undefined {
  if (requestHash === undefined) return undefined;
  let best: Candidate<Worker> | undefined;
  for (const worker of workers) {
    const candidate = { worker, pressure: pressureOf(worker), score: rendezvousScore(worker.name, requestHash) };
    if (best === undefined || isBetter(candidate, best)) best = candidate;
  }
  return best?.worker;
}

interface Candidate<Worker> {
  readonly worker: Worker;
  readonly pressure: Pressure;
  readonly score: bigint;
}

function isBetter(one: Candidate<WorkerLoad>, other: Candidate<WorkerLoad>): boolean {
  for (const [index, value] of one.pressure.entries()) {
    const against = other.pressure[index] ?? value;
    if (value !== against) return value < against;
  }
  if (one.score !== other.score) return one.score > other.score;
  return Buffer.compare(Buffer.from(one.worker.name), Buffer.from(other.worker.name)) > 0;
}

/** Exact for whole numbers, where `Math.ceil` of the quotient is not. */
function ceilDivided(count: number, by: number): number {
  const rest = count % by;
  return (count - rest) / by + (rest > 0 ? 1 : 0);
}
