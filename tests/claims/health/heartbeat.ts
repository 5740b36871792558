/** `heartbeats.json`, `readiness.json`, `saturation.json` and `loading_models.json`. */
import assert from "node:assert/strict";
import {
  type HealthFacts,
  healthMessage,
  healthSubject,
  type NumericalInventory,
} from "../../../src/health/health_message.ts";
import { Readiness, readinessText, staleWindowMs } from "../../../src/health/readiness.ts";
import { Residency } from "../../../src/health/residency.ts";
import { capacityOf, isSaturated } from "../../../src/health/saturation.ts";
import { IpcError } from "../../../src/ipc/errors.ts";
import { type ChildPing, judgeRound } from "../../../src/ipc/heartbeat.ts";
import type { VectorClaim } from "../../harness/vectors.ts";
import { VirtualClock } from "../../sim/virtual_clock.ts";

interface Heartbeat {
  readonly case: string;
  readonly state: {
    readonly ready?: boolean;
    readonly terminated?: boolean;
    readonly children?: number;
    readonly ready_children?: number;
    readonly gpu_count?: number;
    readonly digest?: string;
    readonly loaded?: string[];
    readonly loading?: string[];
    readonly unsupported?: string[];
    readonly queue_depth?: number;
    readonly pending_cost?: number;
    readonly inflight?: number;
    readonly saturated?: boolean;
    readonly exec_children?: boolean;
    readonly exec_consumer?: boolean;
    readonly num_children?: boolean;
    readonly num_consumer?: boolean;
    readonly inventory?: NumericalInventory;
  };
  readonly subject: string;
  readonly payload: string;
}

/** The texts that are published, with the defaults that the file's generator leaves out of `state`. */
export const heartbeatClaim: VectorClaim = {
  files: ["health/heartbeats.json"],
  *cases(data) {
    for (const row of (data as { cases: Heartbeat[] }).cases) {
      yield {
        name: row.case,
        check() {
          const facts = factsOf(row.state);
          assert.equal(healthSubject(facts.workerId), row.subject);
          assert.equal(healthMessage(facts, row.state.terminated ?? false), row.payload);
        },
      };
    }
  },
};

function factsOf(state: Heartbeat["state"]): HealthFacts {
  return {
    workerId: "worker-0",
    machineProfile: "l4-spot",
    pool: "default",
    bundle: "default",
    gpuCount: state.gpu_count ?? 1,
    children: state.children ?? 1,
    ready: state.ready ?? true,
    readyChildren: state.ready_children ?? 1,
    bundleConfigHash: state.digest ?? "",
    loadedModels: state.loaded ?? [],
    loadingModels: state.loading ?? [],
    unsupportedModels: state.unsupported ?? [],
    queueDepth: state.queue_depth ?? 0,
    pendingCost: state.pending_cost ?? 0,
    inflightBatches: state.inflight ?? 0,
    saturated: state.saturated ?? false,
    versioned: {
      authorityChildren: state.exec_children ?? false,
      authorityConsumer: state.exec_consumer ?? false,
      admissionChildren: state.num_children ?? false,
      admissionConsumer: state.num_consumer ?? false,
      ...(state.inventory === undefined ? {} : { inventory: state.inventory }),
    },
  };
}

/** One row of `readyz` in `readiness.json`. */
export interface ReadyzRow {
  readonly case: string;
  readonly ping_interval_ms: number;
  readonly stale_multiplier: number;
  readonly now_ms: number;
  readonly last_successful_ping_ms: number | null;
  readonly draining: boolean;
  readonly window_ms: number;
  readonly ready: boolean;
  readonly status: number;
  readonly body: string;
}

interface PingRoundRow {
  readonly case: string;
  readonly answers: { readonly ok: boolean; readonly ready?: boolean }[];
  readonly pool_quarantined: boolean;
  readonly counts_as_successful_ping: boolean;
  readonly ready_gpu_slots: number;
}

/** Brings a {@link Readiness} into the state of a row. The clock stands at the row's `now_ms` afterwards. */
export async function readinessAt(row: ReadyzRow): Promise<Readiness> {
  const clock = new VirtualClock();
  const readiness = new Readiness(clock, staleWindowMs(row.ping_interval_ms, row.stale_multiplier));
  if (row.last_successful_ping_ms !== null) {
    await clock.runUntil(row.last_successful_ping_ms);
    readiness.pingSucceeded();
  }
  await clock.runUntil(row.now_ms);
  if (row.draining) readiness.drain();
  return readiness;
}

/** Readiness as an object with time passing, and the judgement on heartbeat rounds. */
export const readinessClaim: VectorClaim = {
  files: ["health/readiness.json"],
  *cases(data) {
    const { readyz, ping_round } = data as { readyz: ReadyzRow[]; ping_round: PingRoundRow[] };
    for (const row of readyz) {
      yield {
        name: row.case,
        async check() {
          const readiness = await readinessAt(row);
          assert.equal(readiness.windowMs, row.window_ms);
          assert.equal(readiness.ready, row.ready);
          assert.equal(readinessText(readiness.state()), row.body);
        },
      };
    }
    for (const row of ping_round) {
      yield {
        name: row.case,
        check() {
          const { successful, readyChildren } = judgeRound(row.answers.map(childPing), row.pool_quarantined);
          assert.equal(successful, row.counts_as_successful_ping);
          assert.equal(readyChildren, row.ready_gpu_slots);
        },
      };
    }
  },
};

function childPing({ ok, ready }: PingRoundRow["answers"][number]): ChildPing {
  if (!ok) return { answer: undefined, error: new IpcError("timeout", "no answer"), capabilities: undefined };
  const answer = {
    timestampMs: 0,
    workerId: "",
    ready: ready ?? false,
    bundleConfigHash: "",
    loadedModels: [],
    loadingModels: [],
  };
  return { answer, error: undefined, capabilities: undefined };
}

interface SaturationStep {
  readonly queue_depth: number;
  readonly inflight_batches: number;
  readonly ready_gpu_slots: number;
  readonly capacity: number;
  readonly saturated: boolean;
}

/** The state carries over from step to step; each step is a case that replays those before it. */
export const saturationClaim: VectorClaim = {
  files: ["health/saturation.json"],
  *cases(data) {
    const { max_concurrent_batches, steps } = data as { max_concurrent_batches: number; steps: SaturationStep[] };
    const loads = steps.map((step) => ({
      queueDepth: step.queue_depth,
      inflightBatches: step.inflight_batches,
      readySlots: step.ready_gpu_slots,
      maxConcurrentBatches: max_concurrent_batches,
    }));
    for (const [at, step] of steps.entries()) {
      yield {
        name: `step ${at + 1}`,
        check() {
          const states = loads.slice(0, at + 1);
          const last = states.at(-1);
          assert.ok(last !== undefined);
          assert.equal(capacityOf(last), step.capacity);
          assert.equal(states.reduce(isSaturated, false), step.saturated);
        },
      };
    }
  },
};

interface LoadingCase {
  readonly case: string;
  readonly ticks: {
    readonly at_ms: number;
    readonly answers: Record<string, string[]>;
    readonly loading_models: string[];
    readonly publish_at_once: boolean;
  }[];
}

/** Lists over time, and when a message is due at once. */
export const loadingModelsClaim: VectorClaim = {
  files: ["health/loading_models.json"],
  *cases(data) {
    for (const row of (data as { cases: LoadingCase[] }).cases) {
      yield {
        name: row.case,
        check() {
          const residency = new Residency();
          for (const tick of row.ticks) {
            const answers = Object.entries(tick.answers).map(([child, loadingModels]) => ({
              child: Number(child),
              ready: false,
              loadedModels: [],
              loadingModels,
            }));
            const changed = residency.update(tick.at_ms, answers);
            assert.deepEqual(residency.loadingModels, tick.loading_models, `at ${tick.at_ms} ms`);
            assert.equal(changed, tick.publish_at_once, `at ${tick.at_ms} ms`);
          }
        },
      };
    }
  },
};
