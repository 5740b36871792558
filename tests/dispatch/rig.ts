/** A whole dispatch, from intake to settlement, on virtual time, with a scripted backend and a recording sender. */
import { type DeliverySource, SettlementLedger } from "../../src/dispatch/delivery.ts";
import { Dispatcher } from "../../src/dispatch/dispatcher.ts";
import type { BatchTimes } from "../../src/dispatch/batch_time.ts";
import { UnitPreparer } from "../../src/dispatch/prepare_unit.ts";
import type { Refusal } from "../../src/dispatch/refusals.ts";
import type { ResultSender, Sent } from "../../src/dispatch/result_sender.ts";
import { BatchRunner } from "../../src/dispatch/run_formed_batch.ts";
import { Settler } from "../../src/dispatch/settle.ts";
import type { AudioPreparer, Checkpoint, PayloadResolver, TokenPreparer } from "../../src/dispatch/views.ts";
import type { WorkUnit } from "../../src/dispatch/work_unit.ts";
import type { Arrival } from "../../src/dispatch/intake.ts";
import type { Delivery } from "../../src/dispatch/delivery.ts";
import { NatsGeneration } from "../../src/generate/nats_generation.ts";
import type { ModelReadiness } from "../../src/ipc/backend.ts";
import { AppliedConfig } from "../../src/live_config/applied_config.ts";
import { ExecutionLock } from "../../src/live_config/execution_lock.ts";
import { ResultPublisher } from "../../src/publish/result_sender.ts";
import type { TraceEvent } from "../../src/runtime/trace.ts";
import { DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import type { FitsShape } from "../../src/scheduler/batch_shape.ts";
import { SchedulerRegistry } from "../../src/scheduler/registry.ts";
import type { BatchOutcome, ItemOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import { decodeWorkItem, type WorkItem } from "../../src/wire/work_item.ts";
import { type Value, workItemBytes } from "../harness/work_items.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";
import { RecordingDelivery, ScriptedBackend } from "./doubles.ts";

/** What a {@link RecordingSender} was asked to send. */
export type SentRecord =
  | { readonly kind: "outcome"; readonly item: string; readonly disposition: string; readonly executedHash: string }
  | { readonly kind: "refusal"; readonly item: string; readonly refusal: Refusal };

/** Records what would be published; can be told to fail for some items. */
export class RecordingSender implements ResultSender {
  readonly sent: SentRecord[] = [];
  /** Items whose results cannot be published. */
  readonly failing = new Set<string>();
  /** Items whose publication throws. */
  readonly throwing = new Set<string>();

  outcome(unit: WorkUnit, _answer: BatchOutcome, outcome: ItemOutcome, executedHash: string): Sent {
    const item = unit.work.workItemId;
    this.sent.push({ kind: "outcome", item, disposition: outcome.disposition, executedHash });
    return this.#result(item);
  }

  refusal(_delivery: Delivery, work: WorkItem, refusal: Refusal): Promise<Sent> {
    this.sent.push({ kind: "refusal", item: work.workItemId, refusal });
    return Promise.resolve().then(() => this.#result(work.workItemId));
  }

  #result(item: string): Sent {
    if (this.throwing.has(item)) throw new Error("the transport broke");
    return !this.failing.has(item);
  }
}

/** Choices of a rig that differ from the defaults. */
export interface RigOptions {
  readonly referenceCompatible?: boolean;
  readonly fetchBudget?: number;
  readonly hash?: string;
  readonly payloads?: PayloadResolver;
  readonly tokens?: TokenPreparer;
  readonly audio?: AudioPreparer;
  /** Makes real results in place of records of them. */
  readonly realResults?: boolean;
  /** Runs generations in place of collecting them. */
  readonly realGeneration?: boolean;
  /** Predicts and learns; may shorten batches. */
  readonly batchTimes?: BatchTimes & { readonly fits?: FitsShape | undefined };
}

/** Everything that a test looks at or moves. */
export class Rig {
  readonly clock = new VirtualClock();
  readonly backend = new ScriptedBackend();
  readonly sender = new RecordingSender();
  readonly ledger = new SettlementLedger();
  readonly config: AppliedConfig;
  readonly barrier = new ExecutionLock();
  readonly shutdown = new AbortController();
  readonly trace: TraceEvent[] = [];
  /** Generations, unless they are run. */
  readonly generated: Arrival[] = [];
  readonly generation: NatsGeneration;
  readonly settler: Settler;
  /** Requests that are dropped at every checkpoint from now on. */
  readonly cancelled = new Set<string>();
  /** `item checkpoint` pairs that are dropped, with their reason. */
  readonly drops = new Map<string, "completed" | "deadline_exceeded">();
  /** Checkpoints looked at, by item. */
  readonly checkpoints = new Map<string, Checkpoint[]>();
  readonly admitted = new Set<string>();
  readonly dispatcher: Dispatcher;
  readonly schedulers: SchedulerRegistry<WorkUnit>;

  constructor(options: RigOptions = {}) {
    this.config = new AppliedConfig(options.hash ?? "");
    const clock = this.clock;
    const trace = { emit: (event: TraceEvent) => void this.trace.push(event) };
    const settler = this.settler = new Settler(clock, 5000, trace);
    const drops = {
      dropReason: (work: WorkItem, _delivery: Delivery, checkpoint: Checkpoint) => {
        const id = work.workItemId;
        this.checkpoints.set(id, [...this.checkpoints.get(id) ?? [], checkpoint]);
        if (this.cancelled.has(work.requestId)) return "completed";
        return this.drops.get(`${id} ${checkpoint}`);
      },
      remainingMs: (work: WorkItem) => work.deadline === undefined ? undefined : work.deadline * 1000 - clock.unixMs(),
    };
    const sender = options.realResults === true ? new ResultPublisher({ workerId: "worker-0", clock }) : this.sender;
    const shared = { backend: this.backend, sender, settler, drops, config: this.config, clock, trace };
    const referenceCompatible = options.referenceCompatible ?? false;
    const { barrier } = this;
    this.generation = new NatsGeneration({ ...shared, barrier, payloads: options.payloads, referenceCompatible });
    const runner = new BatchRunner({
      ...shared,
      barrier,
      referenceCompatible,
      wantsFeedback: true,
      onSuccess: undefined,
      batchTimes: options.batchTimes,
    });
    this.schedulers = new SchedulerRegistry<WorkUnit>({
      clock,
      config: DEFAULT_BATCH_CONFIG,
      pipelineDepth: 2,
      idleBypass: true,
      waveCadence: true,
      run: (batch) => runner.run(batch),
      fits: options.batchTimes?.fits,
      onFault: (_batch, thrown) => {
        throw thrown;
      },
    });
    this.dispatcher = new Dispatcher({
      ...shared,
      schedulers: this.schedulers,
      preparer: new UnitPreparer({
        drops,
        settler,
        clock,
        payloads: options.payloads,
        tokens: options.tokens,
        audio: options.audio,
      }),
      admission: { admits: (pool) => pool === "" || this.admitted.has(pool) },
      generation: options.realGeneration === true
        ? this.generation
        : { start: (arrival) => void this.generated.push(arrival) },
      maxConcurrentGroups: 4,
      fetchBudget: options.fetchBudget ?? 64,
      longestHoldMs: referenceCompatible ? 600_000 : 1_800_000,
      referenceCompatible,
      shutdown: this.shutdown.signal,
    });
  }

  /** An arrival; `fields` are those of the work item. */
  arrival(fields: { readonly [key: string]: Value } = {}, source: DeliverySource = "pool"): Arrival & {
    readonly delivery: RecordingDelivery;
  } {
    return { delivery: new RecordingDelivery(this.ledger, source), work: decodeWorkItem(workItemBytes(fields)) };
  }

  /** `count` arrivals of one request. */
  arrivals(count: number, fields: { readonly [key: string]: Value } = {}): ReturnType<Rig["arrival"]>[] {
    return Array.from(
      { length: count },
      (_, index) => this.arrival({ item_index: index, total_items: count, ...fields }),
    );
  }

  /** Lets virtual time pass until nothing is set to happen any more, at most `mostMs`. */
  async run(mostMs = 60_000): Promise<void> {
    await this.clock.advance(mostMs);
  }
}

/** The answer of a model that is there. */
export const READY: ModelReadiness = { state: "ready", batchBudget: undefined, descriptor: undefined };

/** Settlements as {@link settlements} lists them. */
export const ACK = { did: "ack", reason: "completed" };
export const NAK_BASE = { did: "nak", delayMs: 5000, reason: "retry" };
export const NAK_HAND_OVER = { did: "nak", delayMs: 100, reason: "retry" };

/** Takes arrivals and lets everything happen that follows within `ms`. */
export async function take(rig: Rig, arrivals: readonly ReturnType<Rig["arrival"]>[], ms = 60_000): Promise<void> {
  const accepted = rig.dispatcher.accept(arrivals);
  await rig.run(ms);
  await accepted;
}

/** How each delivery ended, undefined for one that has not. */
export function settlements(arrivals: readonly { readonly delivery: RecordingDelivery }[]): unknown[] {
  return arrivals.map(({ delivery }) => delivery.settlement);
}
