/** The one path of encode, score and extract work: intake → group by model → ready → prepare → schedule (design.md, Layout). */
import { getLogger } from "@logtape/logtape";
import type { Backend } from "../ipc/backend.ts";
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { Semaphore } from "../runtime/semaphore.ts";
import type { TraceSink } from "../runtime/trace.ts";
import type { BatchKey } from "../scheduler/schedulable.ts";
import { SchedulerClosedError } from "../scheduler/errors.ts";
import type { ModelScheduler } from "../scheduler/model_scheduler.ts";
import type { SchedulerRegistry } from "../scheduler/registry.ts";
import type { Arrival, WorkIntake } from "./intake.ts";
import { LoadingModels, type ReadyModel, type UnreadyState } from "./loading_models.ts";
import { modelLoadFailed } from "./refusals.ts";
import type { ResultSender } from "./result_sender.ts";
import type { Settler } from "./settle.ts";
import type { FinalSituation } from "./settle_by.ts";
import { batchKeyOf, type Preparation, type RefusedUnit, type UnitPreparer } from "./prepare_unit.ts";
import { keyText } from "./run_formed_batch.ts";
import {
  type AdmissionView,
  type Checkpoint,
  type ConfigView,
  dropSituation,
  type DropView,
  type GenerationLane,
} from "./views.ts";
import { WorkUnit } from "./work_unit.ts";

const logger = getLogger(["worker-sidecar", "dispatch"]);

/** How long cancellations are collected before the queues are looked through, in milliseconds. */
const SWEEP_AFTER_MS = 20;

/** What the dispatcher needs. */
export interface DispatcherParts {
  readonly backend: Backend;
  readonly schedulers: SchedulerRegistry<WorkUnit>;
  readonly preparer: UnitPreparer;
  readonly sender: ResultSender;
  readonly settler: Settler;
  readonly drops: DropView;
  readonly admission: AdmissionView;
  readonly config: ConfigView;
  readonly generation: GenerationLane;
  readonly clock: Clock;
  readonly trace: TraceSink | undefined;
  /** Groups that prepare and enqueue at once, process-wide (`SIE_MAX_CONCURRENT_BATCHES`). */
  readonly maxConcurrentGroups: number;
  /** Items of a model taken per group when it names no budget, and the number of parking places (`SIE_NATS_FETCH_BUDGET`). */
  readonly fetchBudget: number;
  readonly longestHoldMs: number;
  /** `SIE_COMPAT=reference`: one foreign hash sends its whole group back. */
  readonly referenceCompatible: boolean;
  /** Aborted when the process drains. */
  readonly shutdown: AbortSignal;
}

/** Takes arrivals from every source. */
export class Dispatcher implements WorkIntake {
  readonly #parts: DispatcherParts;
  readonly #groupPermits: Semaphore;
  readonly #loading: LoadingModels;
  #sweep: CancelTimer | undefined = undefined;

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
    this.#groupPermits = new Semaphore(parts.maxConcurrentGroups);
    this.#loading = new LoadingModels({
      backend: parts.backend,
      settler: parts.settler,
      clock: parts.clock,
      parkingPlaces: parts.fetchBudget,
      longestHoldMs: parts.longestHoldMs,
      shutdown: parts.shutdown,
      keepLive: (units) => this.#withoutDropped(units, "model_readiness"),
      onReady: (modelId, units, model) => this.#guarded(modelId, units, () => this.#enqueue(modelId, units, model)),
      onRefused: (modelId, units, state) => this.#guarded(modelId, units, () => this.#refuse(modelId, units, state)),
    });
  }

  async accept(arrivals: readonly Arrival[]): Promise<void> {
    const groups = this.#groups(arrivals);
    if (groups.size === 1) {
      for (const [modelId, units] of groups) {
        return await this.#guarded(modelId, units, () => this.#runGroup(modelId, units));
      }
    }
    const sorted = [...groups].sort(([a], [b]) => a < b ? -1 : 1);
    await Promise.all(
      sorted.map(([modelId, units]) => this.#guarded(modelId, units, () => this.#runGroup(modelId, units))),
    );
  }

  /**
   * Tells that something was cancelled: what waits in the schedulers is looked through, a little later and for all cancellations of
   * that time together. What is cancelled leaves at once, so that it holds no permit and counts towards no cap and no timer.
   */
  somethingCancelled(): void {
    this.#sweep ??= this.#parts.clock.after(SWEEP_AFTER_MS, () => {
      this.#sweep = undefined;
      for (const scheduler of this.#parts.schedulers.schedulers()) this.#dropWaiting(scheduler);
    });
  }

  #dropWaiting(scheduler: ModelScheduler<WorkUnit>): void {
    const { drops, settler } = this.#parts;
    for (const unit of scheduler.waiting()) {
      const reason = drops.dropReason(unit.work, unit.delivery, "after_payload_fetch");
      if (reason !== undefined && scheduler.remove(unit)) settler.settle(unit, dropSituation(reason));
    }
  }

  /** Models being loaded and the number of items that wait for each, for `/debug/ready`. */
  waitingForModels(): Record<string, number> {
    return this.#loading.waiting();
  }

  /** Resolves when no group waits for a model any more (shutdown, queue.md 10). */
  parkedGroupsSettled(): Promise<void> {
    return this.#loading.idle();
  }

  /** Admits each arrival and groups by model. An unforeseen failure is the arrival's own. */
  #groups(arrivals: readonly Arrival[]): Map<string, WorkUnit[]> {
    const groups = new Map<string, WorkUnit[]>();
    for (const arrival of arrivals) {
      const unit = new WorkUnit(arrival);
      try {
        this.#admit(unit, arrival, groups);
      } catch (thrown) {
        this.#crashed(unit, "taking in", thrown);
      }
    }
    return groups;
  }

  /** Puts one unit into its group. A refused one is settled here; generation goes its own way. */
  #admit(unit: WorkUnit, arrival: Arrival, groups: Map<string, WorkUnit[]>): void {
    const { drops, admission, config, settler, generation } = this.#parts;
    const { work, delivery } = unit;
    this.#traceArrival(unit);
    const isGenerate = work.operation === "generate";
    const dropped = isGenerate ? undefined : drops.dropReason(work, delivery, "intake");
    if (dropped !== undefined) settler.settle(unit, dropSituation(dropped));
    else if (delivery.source !== "local" && !admission.admits(work.admissionPool)) {
      this.#sendBack(unit, "pool_not_assigned");
    } else if (config.isUnsupported(work.modelId)) this.#sendBack(unit, "model_unsupported");
    else if (isGenerate) generation.start(arrival);
    else {
      const group = groups.get(work.modelId);
      if (group === undefined) groups.set(work.modelId, [unit]);
      else group.push(unit);
    }
  }

  #sendBack(unit: WorkUnit, reason: FinalSituation): void {
    this.#parts.trace?.emit({ kind: "refused", at: this.#parts.clock.now(), delivery: unit.delivery.number, reason });
    this.#parts.settler.settle(unit, reason);
  }

  async #runGroup(modelId: string, arrived: WorkUnit[]): Promise<void> {
    const { settler } = this.#parts;
    const units = this.#withCurrentHash(this.#withoutDropped(arrived, "before_model_readiness"));
    if (units.length === 0) return;
    if (this.#loading.isWaitedFor(modelId)) return this.#loading.park(modelId, units, "loading_in_progress");
    let answer;
    try {
      answer = await this.#loading.ask(modelId);
    } catch (thrown) {
      logger.warn("asking for {model} failed; {count} items are sent back: {error}", {
        model: modelId,
        count: units.length,
        error: errorText(thrown),
      });
      return settler.settleAll(units, "readiness_call_failed");
    }
    if (answer === undefined) return settler.settleAll(units, "shutdown_waiting");
    if (answer.state === "ready") return await this.#enqueue(modelId, units, answer);
    return await this.#refuse(modelId, units, answer.state);
  }

  async #refuse(modelId: string, units: readonly WorkUnit[], state: UnreadyState): Promise<void> {
    switch (state) {
      case "loading_started":
      case "loading_in_progress":
        return this.#loading.park(modelId, units, state);
      case "retry_later":
        return this.#parts.settler.settleAll(units, "model_retry_later");
      case "failed":
        await Promise.all(
          units.map((unit) => this.#answer(unit, { situation: "model_failed", refusal: modelLoadFailed(modelId) })),
        );
    }
  }

  /** Prepares the items of a ready model and hands them to its scheduler, under one of the group permits. */
  async #enqueue(modelId: string, arrived: WorkUnit[], model: ReadyModel): Promise<void> {
    if (!this.#groupPermits.tryAcquire()) await this.#groupPermits.acquire();
    try {
      const live = this.#withoutDropped(arrived, "after_model_readiness");
      const units = this.#withinBudget(live, model.batchBudget);
      const scheduler = this.#schedulerFor(modelId);
      if (scheduler === undefined) return this.#parts.settler.settleAll(units, "shutdown_queued");
      const concurrency = model.descriptor?.maxConcurrentDispatch;
      if (concurrency !== undefined) scheduler.setEngineConcurrency(concurrency);
      const prepared: WorkUnit[] = [];
      const waiting: Promise<void>[] = [];
      for (const unit of units) {
        const pending = this.#prepare(unit, modelId, prepared);
        if (pending !== undefined) waiting.push(pending);
      }
      this.#submit(scheduler, prepared);
      if (waiting.length === 0) return;
      // Slow preparation (a fetch, audio) holds up nobody else of its group.
      prepared.length = 0;
      await Promise.all(waiting);
      this.#submit(scheduler, prepared);
    } finally {
      this.#groupPermits.release();
    }
  }

  /** The model's scheduler; undefined when the drain has begun and the model has none: another worker takes what came too late. */
  #schedulerFor(modelId: string): ModelScheduler<WorkUnit> | undefined {
    try {
      return this.#parts.schedulers.getOrCreate(modelId);
    } catch (thrown) {
      if (thrown instanceof SchedulerClosedError) return undefined;
      throw thrown;
    }
  }

  /**
   * Prepares one unit: at once into `prepared`, or through the promise; refused units are answered. An unforeseen failure is the
   * unit's own. Never rejects.
   */
  #prepare(unit: WorkUnit, modelId: string, prepared: WorkUnit[]): Promise<void> | undefined {
    const { preparer, settler } = this.#parts;
    if (unit.work.operation === "load") return settler.settle(unit, "load_done"), undefined;
    try {
      const result = preparer.prepare(unit, modelId);
      if (!(result instanceof Promise)) return this.#prepared(unit, result, prepared);
      return result.then((outcome) => this.#prepared(unit, outcome, prepared))
        .catch((thrown: unknown) => this.#crashed(unit, "preparing", thrown));
    } catch (thrown) {
      return this.#crashed(unit, "preparing", thrown), undefined;
    }
  }

  #prepared(unit: WorkUnit, outcome: Preparation, prepared: WorkUnit[]): Promise<void> | undefined {
    if (outcome === "ready") prepared.push(unit);
    else if (outcome !== "dropped") return this.#answer(unit, outcome);
    return undefined;
  }

  #submit(scheduler: ModelScheduler<WorkUnit>, units: readonly WorkUnit[]): void {
    const now = this.#parts.clock.now();
    let key: BatchKey | undefined;
    let run: WorkUnit[] = [];
    // Items of one key are submitted in one step, so that no batch is cut between them.
    const byKey = new Map<string, { key: BatchKey; units: WorkUnit[] }>();
    for (const unit of units) {
      unit.submittedAt = now;
      const own = batchKeyOf(unit);
      if (key === undefined || own.operation !== key.operation || own.lora !== key.lora) {
        const name = `${own.operation} ${own.lora}`;
        const known = byKey.get(name);
        run = known?.units ?? [];
        if (known === undefined) byKey.set(name, { key: own, units: run });
        key = own;
      }
      run.push(unit);
      this.#traceCost(unit, scheduler.modelId, own);
    }
    for (const entry of byKey.values()) {
      try {
        scheduler.submit(entry.key, entry.units);
        for (const unit of entry.units) unit.scheduled = true;
      } catch (thrown) {
        if (!(thrown instanceof SchedulerClosedError)) throw thrown;
        // The drain of this model has ended: another worker takes what came too late.
        this.#parts.settler.settleAll(entry.units, "shutdown_queued");
      }
    }
  }

  #withinBudget(units: WorkUnit[], batchBudget: number | undefined): WorkUnit[] {
    const budget = batchBudget !== undefined && batchBudget > 0 ? batchBudget : this.#parts.fetchBudget;
    if (units.length <= budget) return units;
    this.#parts.settler.settleAll(units.slice(budget), "over_budget");
    return units.slice(0, budget);
  }

  #withoutDropped(units: readonly WorkUnit[], checkpoint: Checkpoint): WorkUnit[] {
    return units.filter((unit) => {
      const reason = this.#parts.drops.dropReason(unit.work, unit.delivery, checkpoint);
      if (reason !== undefined) this.#parts.settler.settle(unit, dropSituation(reason));
      return reason === undefined;
    });
  }

  #withCurrentHash(units: WorkUnit[]): WorkUnit[] {
    const { config, settler, referenceCompatible } = this.#parts;
    const accepted = units.filter((unit) => config.accepts(unit.work.bundleConfigHash));
    if (accepted.length === units.length) return units;
    if (referenceCompatible) {
      settler.settleAll(units, "hash_refused");
      return [];
    }
    settler.settleAll(units.filter((unit) => !config.accepts(unit.work.bundleConfigHash)), "hash_refused");
    return accepted;
  }

  /** Answers an item with an error and settles it: ACK when the answer is out, NAK when it could not be published. */
  async #answer(unit: WorkUnit, { situation, refusal }: RefusedUnit): Promise<void> {
    const { sender, settler, trace, clock } = this.#parts;
    trace?.emit({
      kind: "outcome",
      at: clock.now(),
      delivery: unit.delivery.number,
      outcome: "error",
      code: refusal.code,
    });
    let sent = false;
    try {
      sent = await sender.refusal(unit.delivery, unit.work, refusal);
    } catch (thrown) {
      logger.warn("the refusal of {item} could not be published: {error}", {
        item: unit.work.workItemId,
        error: errorText(thrown),
      });
    }
    settler.settle(unit, situation, sent);
  }

  #crashed(unit: WorkUnit, what: string, thrown: unknown): void {
    logger.error("{what} {item} failed unexpectedly; it is left to redelivery: {error}", {
      what,
      item: unit.work.workItemId,
      error: errorText(thrown),
    });
    this.#parts.settler.settleAll([unit], "crashed");
  }

  /** Runs a step that settles or queues `units`; an unforeseen failure leaves what is still unsettled to redelivery. */
  async #guarded(modelId: string, units: readonly WorkUnit[], step: () => Promise<void>): Promise<void> {
    try {
      await step();
    } catch (thrown) {
      logger.error("a group of {model} failed unexpectedly; its unsettled items are left to redelivery: {error}", {
        model: modelId,
        error: errorText(thrown),
      });
      this.#parts.settler.settleAll(units.filter((unit) => !unit.scheduled), "crashed");
    }
  }

  #traceArrival(unit: WorkUnit): void {
    const { trace, clock } = this.#parts;
    if (trace === undefined) return;
    const { delivery, work } = unit;
    trace.emit({
      kind: "arrival",
      at: clock.now(),
      delivery: delivery.number,
      source: delivery.source === "local" ? "local" : delivery.source === "pool" ? "nats_pool" : "nats_direct",
      operation: work.operation,
      model: work.modelId,
      bytes: work.bytes.length,
      attempt: delivery.attempt,
      workItemId: work.workItemId,
    });
  }

  #traceCost(unit: WorkUnit, modelId: string, key: BatchKey): void {
    this.#parts.trace?.emit({
      kind: "cost",
      at: this.#parts.clock.now(),
      delivery: unit.delivery.number,
      key: keyText({ modelId, key }),
      cost: unit.cost,
    });
  }
}
