/** Running one formed batch on the backend and settling each of its items (spec/scheduler.md 7, spec/queue.md 5.3). */
import { getLogger } from "@logtape/logtape";
import type { Backend } from "../ipc/backend.ts";
import { IpcError } from "../ipc/errors.ts";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { TraceSink } from "../runtime/trace.ts";
import type { BatchFeedback, FormedBatch } from "../scheduler/batch.ts";
import type { BatchOutcome, ItemOutcome } from "../wire/ipc/batch_outcome.ts";
import { WorkItemField } from "../wire/work_item.ts";
import { type BatchTimes, sentShape, type TimedBatch } from "./batch_time.ts";
import { bindOutcomes } from "./bind_outcomes.ts";
import { remoteRouteRefused } from "./refusals.ts";
import type { ResultSender, Sent } from "./result_sender.ts";
import type { Settler } from "./settle.ts";
import { type ConfigView, dropSituation, type DropView, type ExecutionBarrier } from "./views.ts";
import { splitByBytes } from "./split_batch.ts";
import type { WorkUnit } from "./work_unit.ts";

const logger = getLogger(["worker-sidecar", "dispatch"]);

/** `retry_after_s` of a result holds no more. */
const U32_MAX = 0xffffffff;

/** What running batches needs. */
export interface BatchRunnerParts {
  readonly backend: Backend;
  readonly sender: ResultSender;
  readonly settler: Settler;
  readonly drops: DropView;
  readonly config: ConfigView;
  readonly barrier: ExecutionBarrier;
  readonly clock: Clock;
  readonly trace: TraceSink | undefined;
  /** `SIE_COMPAT=reference`: one foreign hash sends the whole batch back. */
  readonly referenceCompatible: boolean;
  /** Whether an adaptive controller wants {@link BatchFeedback}; without one it is not worth making. */
  readonly wantsFeedback: boolean;
  /** Told the milliseconds of each item that succeeded, for the pull loops' quantum (spec/queue.md 6). */
  readonly onSuccess: ((unit: WorkUnit, outcome: ItemOutcome) => void) | undefined;
  /** Predicts the time of each batch and is told what it was. */
  readonly batchTimes?: BatchTimes | undefined;
}

/** Runs formed batches. Settles every unit whatever happens; never rejects. */
export class BatchRunner {
  readonly #parts: BatchRunnerParts;
  #nextBatchId = 0;

  constructor(parts: BatchRunnerParts) {
    this.#parts = parts;
  }

  /** Runs one batch until all of its units are settled. */
  async run(batch: FormedBatch<WorkUnit>): Promise<BatchFeedback | undefined> {
    const { settler, barrier } = this.#parts;
    try {
      let live = this.#withoutDropped(batch.items);
      if (live.length === 0) return undefined;
      if (!barrier.tryEnterShared()) {
        await barrier.enterShared();
        // A change of the configuration can take long enough to lose interest in the result.
        live = this.#withoutDropped(live);
      }
      try {
        return await this.#runParts(batch, splitByBytes(this.#withCurrentHash(live)));
      } finally {
        barrier.leaveShared();
      }
    } catch (thrown) {
      logger.error("a batch of {model} failed unexpectedly; its unsettled items are left to redelivery: {error}", {
        model: batch.modelId,
        error: errorText(thrown),
      });
      settler.settleAll(batch.items, "crashed");
      return undefined;
    }
  }

  /** Runs the parts one after another; a batch has several only when it does not fit one request. */
  async #runParts(
    batch: FormedBatch<WorkUnit>,
    parts: readonly (readonly WorkUnit[])[],
  ): Promise<BatchFeedback | undefined> {
    let feedback: BatchFeedback | undefined;
    for (const [index, part] of parts.entries()) {
      const live = index === 0 ? part : this.#withoutDropped(part);
      feedback = await this.#runPart(batch, live) ?? feedback;
    }
    return feedback;
  }

  #withoutDropped(units: readonly WorkUnit[]): readonly WorkUnit[] {
    const { drops, settler } = this.#parts;
    let kept: WorkUnit[] | undefined;
    for (let i = 0; i < units.length; i++) {
      const unit = units[i] as WorkUnit;
      const reason = drops.dropReason(unit.work, unit.delivery, "before_ipc");
      if (reason === undefined) kept?.push(unit);
      else {
        kept ??= units.slice(0, i);
        settler.settle(unit, dropSituation(reason));
      }
    }
    return kept ?? units;
  }

  /** Sends back items of another configuration: each alone, or all of the batch where the reference does so. */
  #withCurrentHash(units: readonly WorkUnit[]): readonly WorkUnit[] {
    const { config, settler, referenceCompatible } = this.#parts;
    const mayRun = ({ work }: WorkUnit) => config.accepts(work.bundleConfigHash) && !config.isUnsupported(work.modelId);
    if (units.every(mayRun)) return units;
    const refused = referenceCompatible ? units : units.filter((unit) => !mayRun(unit));
    for (const unit of refused) {
      settler.settle(unit, config.isUnsupported(unit.work.modelId) ? "model_unsupported" : "hash_refused");
    }
    return referenceCompatible ? [] : units.filter(mayRun);
  }

  async #runPart(batch: FormedBatch<WorkUnit>, units: readonly WorkUnit[]): Promise<BatchFeedback | undefined> {
    if (units.length === 0) return undefined;
    const { backend, clock, settler, config } = this.#parts;
    const batchId = this.#nextBatchId++;
    const timed = this.#parts.batchTimes?.begin(sentShape(batch, units));
    this.#traceBatch(batch, batchId, units, timed?.predictedMs);
    const startedAt = clock.now();
    // The hash held now is the hash of this execution: the barrier keeps changes out until the batch has ended.
    const executedHash = config.currentHash;
    let answer: BatchOutcome;
    try {
      answer = await backend.runBatch({
        modelId: batch.modelId,
        operation: batch.key.operation,
        batchId,
        loraKey: batch.key.lora,
        totalCost: units.reduce((sum, unit) => sum + unit.cost, 0),
        entries: units,
      }, this.#callOptions(units));
    } catch (thrown) {
      const draining = thrown instanceof IpcError && thrown.draining;
      logger.warn("batch {batchId} of {count} items for {model} failed and is sent back: {error}", {
        batchId,
        count: units.length,
        model: batch.modelId,
        error: errorText(thrown),
      });
      settler.settleAll(units, draining ? "backend_draining" : "batch_failed");
      return undefined;
    }
    const binding = bindOutcomes(units, answer);
    if (binding.unmatched > 0) {
      logger.warn("batch {batchId}: {count} outcomes belong to no item of it and are ignored", {
        batchId,
        count: binding.unmatched,
      });
    }
    if (timed !== undefined) this.#tellTime(timed, batchId, binding.outcomes, clock.now() - startedAt);
    const sending = this.#settleAll(units, answer, binding.outcomes, batchId, executedHash);
    if (sending.length > 0) await Promise.all(sending);
    return this.#parts.wantsFeedback ? this.#feedback(units, binding.outcomes, startedAt) : undefined;
  }

  #callOptions(units: readonly WorkUnit[]): { atLeastMs: number } | undefined {
    let latest: number | undefined;
    for (const unit of units) {
      if (unit.work.deadline === undefined) continue;
      const remaining = this.#parts.drops.remainingMs(unit.work, unit.delivery);
      if (remaining !== undefined && (latest === undefined || remaining > latest)) latest = remaining;
    }
    return latest === undefined ? undefined : { atLeastMs: latest };
  }

  /** Starts settling all items in order; returns those that take longer than this call. */
  #settleAll(
    units: readonly WorkUnit[],
    answer: BatchOutcome,
    outcomes: readonly (ItemOutcome | undefined)[],
    batchId: number,
    executedHash: string,
  ): Promise<void>[] {
    const waiting: Promise<void>[] = [];
    for (let i = 0; i < units.length; i++) {
      const unit = units[i] as WorkUnit;
      const outcome = outcomes[i];
      this.#traceOutcome(unit, outcome, batchId);
      const pending = outcome === undefined
        ? this.#parts.settler.settle(unit, "outcome_missing")
        : this.#settleOutcome(unit, answer, outcome, executedHash);
      if (pending !== undefined) waiting.push(pending);
    }
    return waiting;
  }

  #settleOutcome(
    unit: WorkUnit,
    answer: BatchOutcome,
    outcome: ItemOutcome,
    executedHash: string,
  ): Promise<void> | undefined {
    const { sender, settler } = this.#parts;
    const isRetry = outcome.disposition === "nak_retry";
    if (isRetry && !standsInForRoute(unit)) {
      settler.settle(unit, "outcome_retry", true, outcome.nakDelayMs);
      return undefined;
    }
    const itemHash = unit.work.bundleConfigHash;
    let sent: Sent | Promise<Sent>;
    try {
      sent = isRetry
        ? this.#refuseRoute(unit, outcome)
        : sender.outcome(unit, answer, outcome, itemHash !== "" && itemHash === executedHash ? executedHash : "");
    } catch (thrown) {
      sent = this.#sendFailed(unit, thrown);
    }
    if (typeof sent === "boolean") {
      this.#settleSent(unit, outcome, sent);
      return undefined;
    }
    return sent.then(
      (done) => this.#settleSent(unit, outcome, done),
      (thrown) => this.#settleSent(unit, outcome, this.#sendFailed(unit, thrown)),
    );
  }

  #settleSent(unit: WorkUnit, outcome: ItemOutcome, sent: boolean): void {
    const isRetry = outcome.disposition === "nak_retry";
    this.#parts.settler.settle(unit, isRetry ? "outcome_remote_refused" : "outcome", sent);
    if (sent && outcome.disposition === "publish_and_ack") this.#parts.onSuccess?.(unit, outcome);
  }

  /** The retry of an item that stands in for a refused local route is an answer (spec/queue.md 5.3). */
  #refuseRoute(unit: WorkUnit, outcome: ItemOutcome): Sent | Promise<Sent> {
    const delayMs = outcome.nakDelayMs ?? this.#parts.settler.baseDelayMs;
    const seconds = outcome.retryAfterS ?? Math.min(Math.ceil(delayMs / 1000), U32_MAX);
    const refusal = remoteRouteRefused(outcome.errorCode, seconds);
    return this.#parts.sender.refusal(unit.delivery, unit.work, refusal);
  }

  #sendFailed(unit: WorkUnit, thrown: unknown): false {
    logger.warn("the result of {item} could not be published: {error}", {
      item: unit.work.workItemId,
      error: errorText(thrown),
    });
    return false;
  }

  #feedback(
    units: readonly WorkUnit[],
    outcomes: readonly (ItemOutcome | undefined)[],
    startedAt: number,
  ): BatchFeedback | undefined {
    const settledAt = this.#parts.clock.now();
    const latencies = new Map<string, number>();
    let inferenceMs: number | undefined;
    outcomes.forEach((outcome, index) => {
      const unit = units[index];
      if (outcome === undefined || unit === undefined) return;
      inferenceMs ??= outcome.inferenceMs;
      if (outcome.disposition !== "publish_and_ack" || settledAt <= unit.submittedAt) return;
      const request = unit.work.requestId;
      if (!latencies.has(request)) latencies.set(request, settledAt - unit.submittedAt);
    });
    if (latencies.size === 0) return undefined;
    return { inferenceMs: inferenceMs ?? settledAt - startedAt, latenciesMs: [...latencies.values()] };
  }

  /** The backend's own figure where it gives one: the time on the way includes waiting for the batch before. */
  #tellTime(
    timed: TimedBatch,
    batchId: number,
    outcomes: readonly (ItemOutcome | undefined)[],
    roundTripMs: number,
  ): void {
    // A batch of errors alone says nothing about the time of work.
    if (!outcomes.some((outcome) => outcome?.disposition === "publish_and_ack")) return;
    const measuredMs = outcomes.find((outcome) => outcome?.inferenceMs !== undefined)?.inferenceMs ?? roundTripMs;
    const { predictedMs } = timed;
    timed.ended(measuredMs);
    this.#parts.trace?.emit({
      kind: "batch_time",
      at: this.#parts.clock.now(),
      batch: batchId,
      measuredMs,
      ...(predictedMs === undefined ? {} : { predictedMs }),
    });
  }

  #traceBatch(
    batch: FormedBatch<WorkUnit>,
    batchId: number,
    units: readonly WorkUnit[],
    predictedMs: number | undefined,
  ): void {
    this.#parts.trace?.emit({
      kind: "batch",
      at: this.#parts.clock.now(),
      batch: batchId,
      key: keyText(batch),
      reason: batch.reason,
      cost: batch.totalCost,
      deliveries: units.map((unit) => unit.delivery.number),
      ...(predictedMs === undefined ? {} : { predictedMs }),
    });
  }

  #traceOutcome(unit: WorkUnit, outcome: ItemOutcome | undefined, batchId: number): void {
    if (this.#parts.trace === undefined) return;
    const kind = outcome === undefined || outcome.disposition === "nak_retry"
      ? "retry"
      : outcome.disposition === "publish_and_ack"
      ? "success"
      : "error";
    const code = outcome === undefined ? "no_outcome" : outcome.errorCode;
    this.#parts.trace.emit({
      kind: "outcome",
      at: this.#parts.clock.now(),
      delivery: unit.delivery.number,
      batch: batchId,
      outcome: kind,
      ...(kind === "success" || code === undefined ? {} : { code }),
    });
  }
}

function standsInForRoute({ work }: WorkUnit): boolean {
  return work.has(WorkItemField.fallbackReason) || work.has(WorkItemField.numericalAdmissionSha256);
}

/** Text of a batch key for traces: `model operation` and the LoRA name where there is one. */
export function keyText(
  batch: { readonly modelId: string; readonly key: { operation: string; lora: string } },
): string {
  const { operation, lora } = batch.key;
  return lora === "" ? `${batch.modelId} ${operation}` : `${batch.modelId} ${operation} ${lora}`;
}
