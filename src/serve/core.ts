/** The part of the sidecar that does not depend on where work comes from: backend, scheduler, dispatch, results. */
import { SettlementLedger } from "../dispatch/delivery.ts";
import { Dispatcher } from "../dispatch/dispatcher.ts";
import { UnitPreparer } from "../dispatch/prepare_unit.ts";
import { BatchRunner } from "../dispatch/run_formed_batch.ts";
import { Settler } from "../dispatch/settle.ts";
import type { AdmissionView, DropView, GenerationLane } from "../dispatch/views.ts";
import type { WorkUnit } from "../dispatch/work_unit.ts";
import { NatsGeneration } from "../generate/nats_generation.ts";
import { type BackendPool, createBackend } from "../ipc/backend_pool.ts";
import { AppliedConfig } from "../live_config/applied_config.ts";
import { ExecutionLock } from "../live_config/execution_lock.ts";
import { ResultPublisher } from "../publish/result_sender.ts";
import { ByteBudget } from "../runtime/byte_budget.ts";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";
import type { TraceSink } from "../runtime/trace.ts";
import { LatencyWindow } from "../scheduler/latency_window.ts";
import { SchedulerRegistry } from "../scheduler/registry.ts";
import type { Settings } from "../settings/settings.ts";
import { queueMilliseconds } from "../wire/work_result.ts";
import type { SidecarBatchTimes } from "./batch_time.ts";

const logger = logFor("serve");

/** Longest hold of work for a loading model with `SIE_COMPAT=reference`: the redelivery envelope of 30 s times max_deliver. */
const REFERENCE_HOLD_PER_DELIVERY_MS = 30_000;

/** Choices that differ between the two ingests. */
export interface CoreParts {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly trace: TraceSink | undefined;
  readonly drops: DropView;
  readonly admission: AdmissionView;
  /** Aborted when the process begins to drain. */
  readonly shutdown: AbortSignal;
  /** Learns and predicts what batches take; absent: nobody does. */
  readonly batchTimes?: SidecarBatchTimes | undefined;
}

/** Everything between a source of work and the backend. */
export interface Core {
  readonly backend: BackendPool;
  readonly config: AppliedConfig;
  readonly barrier: ExecutionLock;
  readonly schedulers: SchedulerRegistry<WorkUnit>;
  readonly dispatcher: Dispatcher;
  readonly settler: Settler;
  readonly sender: ResultPublisher;
  readonly ledger: SettlementLedger;
  readonly generation: NatsGeneration;
  /** Counts pulled messages and requests of local ingest, process-wide. */
  readonly budget: ByteBudget;
  /** Milliseconds of published successes, of all models, for the pull loops' quantum. */
  readonly latencies: LatencyWindow;
  readonly batchTimes: SidecarBatchTimes | undefined;
}

/** Nothing is ever dropped: local ingest has neither tombstones nor enforced deadlines (spec/queue.md 2.4). */
export const KEEP_ALL: DropView = { dropReason: () => undefined, remainingMs: () => undefined };

/** Every pool is served: where there is no gateway to ask, and for local ingest, which checks for itself. */
export const ADMIT_ALL: AdmissionView = { admits: () => true };

/** Builds the core. Nothing is connected yet. */
export function assembleCore(parts: CoreParts): Core {
  const { settings, clock, trace, drops, admission, shutdown, batchTimes } = parts;
  const backend = createBackend({
    sockets: settings.ipc.socketPaths,
    poolSize: settings.ipc.poolSize,
    requestTimeoutMs: settings.ipc.requestTimeoutMs,
    modelReadyTimeoutMs: settings.ipc.modelReadyTimeoutMs,
    generateFrameTimeoutMs: settings.ipc.generateFrameTimeoutMs,
    mux: settings.ipc.mux,
    clock,
    // The schedulers need the backend and are made after it; nothing is placed before the first item.
    waitingWork: (modelId) => schedulers.waiting(modelId),
  });
  const config = new AppliedConfig(settings.config.bundleConfigHash);
  const barrier = new ExecutionLock();
  const settler = new Settler(clock, settings.dispatch.nakDelayMs, trace);
  const sender = new ResultPublisher({ workerId: settings.lane.workerId, clock });
  const latencies = new LatencyWindow();
  const referenceCompatible = settings.compat.reference;
  const shared = { backend, sender, settler, drops, config, clock, trace, referenceCompatible };
  const runner = new BatchRunner({
    ...shared,
    barrier,
    wantsFeedback: false,
    onSuccess: latencySample(settings, clock, latencies),
    batchTimes,
  });
  const schedulers = new SchedulerRegistry<WorkUnit>({
    clock,
    config: settings.batcher,
    pipelineDepth: settings.scheduler.pipelineDepth,
    idleBypass: settings.scheduler.idleBypass,
    waveCadence: settings.scheduler.waveCadence,
    run: (batch) => runner.run(batch),
    fits: batchTimes?.fits,
    onFault: (batch, thrown) =>
      logger.error("a batch of {model} was lost in the scheduler: {error}", {
        model: batch.modelId,
        error: errorText(thrown),
      }),
  });
  const generation = new NatsGeneration({ ...shared, barrier, payloads: undefined });
  const dispatcher = new Dispatcher({
    ...shared,
    schedulers,
    preparer: new UnitPreparer({ drops, settler, clock, payloads: undefined, tokens: undefined, audio: undefined }),
    admission,
    generation: generation satisfies GenerationLane,
    maxConcurrentGroups: settings.dispatch.maxConcurrentBatches,
    fetchBudget: settings.pull.fetchBudget,
    longestHoldMs: longestHoldMs(settings),
    shutdown,
  });
  const ledger = new SettlementLedger();
  const budget = new ByteBudget({ limit: settings.dispatch.byteBudget });
  return {
    backend,
    config,
    barrier,
    schedulers,
    dispatcher,
    settler,
    sender,
    ledger,
    generation,
    budget,
    latencies,
    batchTimes,
  };
}

function longestHoldMs(settings: Settings): number {
  return settings.compat.reference
    ? REFERENCE_HOLD_PER_DELIVERY_MS * settings.nats.maxDeliver
    : settings.nats.streamMaxAgeMs;
}

/** Feeds the pull quantum (spec/queue.md 6): backend time of each published success, with its queue time when so configured. */
function latencySample(settings: Settings, clock: Clock, latencies: LatencyWindow) {
  if (settings.ingest.mode !== "nats") return undefined;
  const { quantumIncludesQueue } = settings.pull;
  return (unit: WorkUnit, outcome: { inferenceMs: number | undefined; postprocessingMs: number | undefined }): void => {
    if (outcome.inferenceMs === undefined) return;
    const queueMs = quantumIncludesQueue ? queueMilliseconds(clock.unixMs(), unit.work.timestamp) : 0;
    latencies.record(outcome.inferenceMs + (outcome.postprocessingMs ?? 0) + queueMs);
  };
}

/** What may be asked of {@link Core} in `/debug/batches`. */
export function batchReport(core: Core): unknown {
  const models: Record<string, unknown> = {};
  for (const scheduler of core.schedulers.schedulers()) {
    models[scheduler.modelId] = {
      pending_items: scheduler.pendingItems,
      pending_cost: scheduler.pendingCost,
      inflight_batches: scheduler.inflightBatches,
      pipeline_depth: scheduler.pipelineDepth,
    };
  }
  const { counts, outstanding } = core.ledger;
  return {
    models,
    waiting_for_models: core.dispatcher.waitingForModels(),
    generations: core.generation.running,
    deliveries: { ...counts, outstanding },
    ...(core.batchTimes === undefined ? {} : { batch_times: core.batchTimes.report() }),
  };
}
