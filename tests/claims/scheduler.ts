/** Claims on the vectors of costs, batch forming, the drain loop and the pull quantum. */
import assert from "node:assert/strict";
import type { BatchConfig } from "../../src/scheduler/batch_config.ts";
import { BatchFormer, type TakenItems } from "../../src/scheduler/batch_former.ts";
import { extractCost, scoreCost, tokenCost, UNIT_COST } from "../../src/scheduler/cost.ts";
import { ModelScheduler } from "../../src/scheduler/model_scheduler.ts";
import { DEFAULT_PULL_QUANTUM, pullQuantumMs } from "../../src/scheduler/pull_quantum.ts";
import type { BatchKey, Operation, Schedulable } from "../../src/scheduler/schedulable.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { fromHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { SerialBackend } from "../sim/serial_backend.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

interface VectorItem {
  readonly name: string;
  readonly cost: number;
  readonly hard_cap?: number | null;
  readonly alone?: boolean;
}

interface VectorConfig {
  readonly max_batch_cost: number;
  readonly max_batch_requests: number;
  readonly max_batch_wait_ms: number;
  readonly coalesce_ms: number;
  readonly coalesce_ratio: number;
}

interface Named extends Schedulable {
  readonly name: string;
}

function toItem(item: VectorItem): Named {
  return {
    name: item.name,
    cost: item.cost,
    hardCostCap: item.hard_cap ?? Infinity,
    runsAlone: item.alone ?? false,
    queueEntry: undefined,
  };
}

function toConfig(config: VectorConfig): BatchConfig {
  return {
    maxBatchCost: config.max_batch_cost,
    maxBatchRequests: config.max_batch_requests,
    maxBatchWaitMs: config.max_batch_wait_ms,
    coalesceMs: config.coalesce_ms,
    coalesceRatio: config.coalesce_ratio,
  };
}

interface FormerStep {
  readonly op: string;
  readonly t: number;
  readonly items?: readonly VectorItem[];
  readonly immediate?: boolean;
  readonly max_items?: number;
  readonly expected?: unknown;
  readonly after: unknown;
}

interface FormerCase {
  readonly name: string;
  readonly config: VectorConfig;
  readonly steps: readonly FormerStep[];
}

/** What a step takes out of the former, in the form of the vectors. */
function takeStep(former: BatchFormer<Named>, step: FormerStep): unknown {
  const form = (reason: string, taken: TakenItems<Named> | undefined) =>
    taken === undefined
      ? null
      : { flush_reason: reason, items: taken.items.map((item) => item.name), total_cost: taken.totalCost };
  if (step.op === "drain") return form("drain", former.take(step.max_items));
  assert.equal(step.op, "try_get");
  const reason = former.dueReason(step.t, step.immediate ?? false);
  return reason === undefined ? null : form(reason, former.take());
}

function runFormerCase({ config, steps }: FormerCase): void {
  const key: BatchKey = { operation: "encode", lora: "" };
  const former = new BatchFormer<Named>(key, { current: toConfig(config) }, {});
  let sequence = 0;
  for (const [index, step] of steps.entries()) {
    if (step.op === "submit") {
      const items = (step.items ?? []).map(toItem);
      former.submit(items, step.t, sequence);
      sequence += items.length;
    } else {
      assert.deepEqual(takeStep(former, step), step.expected, `step ${index}`);
    }
    const after = {
      pending_count: former.count,
      pending_cost: former.cost,
      first: former.firstArrival ?? null,
      last: former.lastArrival ?? null,
      next_deadline: former.dueAt ?? null,
    };
    assert.deepEqual(after, step.after, `after step ${index}`);
  }
}

interface DrainLoopCase {
  readonly name: string;
  readonly config: VectorConfig;
  readonly pipeline_depth: number;
  readonly backend: string;
  readonly idle_bypass: boolean;
  readonly arrivals: readonly { readonly t: number; readonly key: string; readonly items: readonly VectorItem[] }[];
  readonly expected_batches: readonly unknown[];
}

/** "encode" or "encode/lora-name". */
function toKey(text: string): BatchKey {
  const [operation, lora = ""] = text.split("/");
  assert.ok(operation === "encode" || operation === "score" || operation === "extract", text);
  const known: Operation = operation;
  return { operation: known, lora };
}

function serviceMsOf(backend: string): number {
  const match = /^serial, (\d+) ms per batch$/.exec(backend);
  assert.ok(match !== null, `unknown backend: ${backend}`);
  return Number(match[1]);
}

async function runDrainLoopCase(vector: DrainLoopCase): Promise<void> {
  const clock = new VirtualClock();
  const backend = new SerialBackend(clock, serviceMsOf(vector.backend));
  const batches: unknown[] = [];
  const scheduler = new ModelScheduler<Named>("model", {
    clock,
    config: toConfig(vector.config),
    pipelineDepth: vector.pipeline_depth,
    idleBypass: vector.idle_bypass,
    waveCadence: true,
    onFault: (_batch, thrown) => {
      throw thrown;
    },
    run: async (batch) => {
      const { start, end, done } = backend.run();
      const { operation, lora } = batch.key;
      batches.push({
        t: batch.formedAt,
        key: lora === "" ? operation : `${operation}/${lora}`,
        role: batch.role,
        flush_reason: batch.reason,
        items: batch.items.map((item) => item.name),
        total_cost: batch.totalCost,
        backend_start: start,
        backend_end: end,
      });
      await done;
      return undefined;
    },
  });
  for (const { t, key, items } of vector.arrivals) clock.at(t, () => scheduler.submit(toKey(key), items.map(toItem)));
  await clock.runToEnd();
  assert.deepEqual(batches, vector.expected_batches);
  assert.equal(scheduler.pendingItems + scheduler.inflightBatches, 0);
}

interface QuantumCase {
  readonly name: string;
  readonly current_ms: number;
  readonly observed_p50_ms: number | null;
  readonly expected_ms: number;
}

interface ScoreCostCase {
  readonly name: string;
  readonly query_msgpack_hex: string;
  readonly documents_msgpack_hex: readonly string[];
  /** How often the documents are repeated. */
  readonly documents_repeat?: number;
  readonly expected_cost: number;
}

function runScoreCostCase(vector: ScoreCostCase): void {
  const once = vector.documents_msgpack_hex.map(fromHex);
  const documents = Array.from({ length: vector.documents_repeat ?? 1 }, () => once).flat();
  const array = new MsgpackWriter();
  array.arrayHeader(documents.length);
  for (const document of documents) array.raw(document);
  const query = new MsgpackReader(fromHex(vector.query_msgpack_hex));
  assert.equal(scoreCost(query, new MsgpackReader(array.copy())), vector.expected_cost);
}

interface ItemCostCase {
  readonly name: string;
  readonly op: string;
  readonly prepared_tokens?: { readonly input_ids: readonly (readonly number[])[] } | null;
  readonly estimate?: number;
  readonly prepared_audio?: { readonly duration_ms: number; readonly sample_count: number } | null;
  readonly expected_cost: number;
  readonly expected_hard_cap?: number | null;
  readonly expected_runs_alone?: boolean;
}

function runItemCostCase(vector: ItemCostCase): void {
  if (vector.op === "extract") {
    const audio = vector.prepared_audio ?? undefined;
    const cost = extractCost(audio && { durationMs: audio.duration_ms, sampleCount: audio.sample_count });
    assert.deepEqual(cost, {
      cost: vector.expected_cost,
      hardCostCap: vector.expected_hard_cap ?? Infinity,
      runsAlone: vector.expected_runs_alone,
    });
  } else {
    const estimate = vector.op === "score" ? vector.estimate : UNIT_COST;
    assert.ok(estimate !== undefined, "a score case has an estimate");
    assert.equal(tokenCost(vector.prepared_tokens?.input_ids, estimate), vector.expected_cost);
  }
}

function casesOf<C extends { readonly name: string }>(
  data: unknown,
  check: (vector: C) => void | Promise<void>,
): VectorCase[] {
  const { cases } = data as { readonly cases: readonly C[] };
  return cases.map((vector) => ({ name: vector.name, check: () => check(vector) }));
}

export const schedulerClaims: VectorClaim[] = [
  { files: ["prep/item_cost.json"], cases: (data) => casesOf<ItemCostCase>(data, runItemCostCase) },
  { files: ["prep/scheduler_batch_former.json"], cases: (data) => casesOf<FormerCase>(data, runFormerCase) },
  { files: ["prep/scheduler_drain_loop.json"], cases: (data) => casesOf<DrainLoopCase>(data, runDrainLoopCase) },
  { files: ["prep/score_cost.json"], cases: (data) => casesOf<ScoreCostCase>(data, runScoreCostCase) },
  {
    files: ["prep/scheduler_pull_quantum.json"],
    cases: (data) =>
      casesOf<QuantumCase>(data, (vector) => {
        const quantum = pullQuantumMs(DEFAULT_PULL_QUANTUM, vector.observed_p50_ms ?? undefined, vector.current_ms);
        assert.equal(quantum, vector.expected_ms);
      }),
  },
];
