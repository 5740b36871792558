/**
 * The online trainer: takes admitted samples, runs a step when a window is full, and exports checkpoints when due
 * (online-training.md, sections 2.6 to 2.8). One step at a time has one owner; every failure restores the window and
 * releases the ownership.
 */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { IngestOutcome } from "./ack.ts";
import type { BatchSplit } from "./batch_split.ts";
import type { TrainingLog } from "./log.ts";
import type { TrainingMetrics } from "./metrics.ts";
import { OncePerChange } from "./once_per_change.ts";
import { PendingWindow, type ReservedStep } from "./pending_window.ts";
import type { Random } from "./random.ts";
import { ReplayBuffer } from "./replay_buffer.ts";
import type { Sample } from "./sample.ts";
import { TRAINING_SETTINGS } from "./settings.ts";
import type { RunStep, StepReport } from "./step_runner.ts";

/** Exports checkpoints. */
export interface Checkpointer {
  /**
   * Called after each successful step, by the owner of the step. Returns null when nothing was exported, a promise while
   * files are written. Never throws: a failed export does not fail the step.
   */
  afterStep(newRows: number, step: number, samplesTotal: number): null | Promise<string | null>;
  /** Newest version number. */
  readonly counter: number;
}

/** What a trainer is made of. */
export interface TrainerOptions {
  readonly nFeatures: number;
  readonly split: BatchSplit;
  readonly pendingCapacity: number;
  readonly replayCapacity: number;
  /** Failures in a row of one window after which it is dropped; 0: never. */
  readonly poisonRetries: number;
  /** Samples admitted by earlier processes, as far as checkpoints tell. */
  readonly samplesBefore: number;
  readonly runStep: RunStep;
  readonly checkpointer: Checkpointer;
  readonly random: Random;
  readonly clock: Clock;
  readonly log: TrainingLog;
  readonly metrics: TrainingMetrics;
}

/** What embedders of the reference see (section 2.8). */
export interface TrainerStatus {
  readonly step_count: number;
  readonly buffer_size: number;
  readonly buffer_capacity: number;
  readonly total_pushed: number;
  readonly total_evicted: number;
  readonly checkpoint_counter: number;
  readonly n_features: number;
  readonly pending_size: number;
  readonly pending_capacity: number;
  readonly training_active: boolean;
}

/** Failed steps in a row from which on the trainer calls itself failed. */
const FAILED_STEPS_IN_A_ROW = 10;

/** See the file's comment. */
export class OnlineTrainer {
  readonly #options: TrainerOptions;
  readonly #pending: PendingWindow<Sample>;
  readonly #drawn: Sample[] = [];
  #steps = 0;
  /** Failures in a row of the window at the front of the queue, and of steps at all: the same until a window is dropped. */
  #windowFailures = 0;
  #failuresInARow = 0;
  #paused = false;
  /** A window that fails is tried again with each sample, thousands of times a second. */
  #failureLog: OncePerChange;

  constructor(options: TrainerOptions) {
    this.#options = options;
    const replay = new ReplayBuffer<Sample>(options.replayCapacity);
    this.#pending = new PendingWindow(options.split, options.pendingCapacity, replay);
    this.#failureLog = new OncePerChange(options.log);
  }

  /** Successful steps of this process. */
  get steps(): number {
    return this.#steps;
  }
  /** Admitted samples, continued over restarts. */
  get samplesTotal(): number {
    return this.#options.samplesBefore + this.#pending.replay.totalPushed;
  }
  /** True when so many steps failed in a row that something is wrong. */
  get failing(): boolean {
    return this.#failuresInARow >= FAILED_STEPS_IN_A_ROW;
  }
  get paused(): boolean {
    return this.#paused;
  }

  /** While paused, every sample is refused as retryable. */
  setPaused(paused: boolean): void {
    if (paused !== this.#paused) this.#options.log.info(paused ? "training paused" : "training resumed");
    this.#paused = paused;
  }

  /** Takes one sample. The outcome comes at once unless this call runs a long step or writes a checkpoint. */
  ingest(sample: Sample): IngestOutcome | Promise<IngestOutcome> {
    const { metrics } = this.#options;
    if (this.#paused) {
      metrics.samplesRefused++;
      return { kind: "refused", error: "training paused", retryable: true };
    }
    const before = this.#pending.replay.totalPushed;
    const admission = this.#pending.offer(sample);
    metrics.samplesAdmitted += this.#pending.replay.totalPushed - before;
    switch (admission.kind) {
      case "full":
        metrics.samplesRefused++;
        return {
          kind: "refused",
          error: `pending training queue is full (${this.#pending.capacity} samples); retry later`,
          retryable: true,
        };
      case "queued":
        return { kind: "admitted", step: this.#steps };
      case "reserved":
        return this.#train(admission.step);
    }
  }

  /** The numbers of section 2.8. */
  status(): TrainerStatus {
    const { replay } = this.#pending;
    return {
      step_count: this.#steps,
      buffer_size: replay.size,
      buffer_capacity: replay.capacity,
      total_pushed: replay.totalPushed,
      total_evicted: replay.totalEvicted,
      checkpoint_counter: this.#options.checkpointer.counter,
      n_features: this.#options.nFeatures,
      pending_size: this.#pending.backlog,
      pending_capacity: this.#pending.capacity,
      training_active: this.#pending.active,
    };
  }

  /** Samples that wait outside the window in flight, oldest first; for tests and embedders. */
  waiting(): Sample[] {
    return this.#pending.waiting();
  }

  #train(step: ReservedStep<Sample>): IngestOutcome | Promise<IngestOutcome> {
    const { clock, random, runStep, split } = this.#options;
    const started = clock.now();
    let report: StepReport | Promise<StepReport>;
    try {
      this.#drawn.length = this.#pending.replay.draw(split.replayRows, random, this.#drawn, 0);
      report = runStep(step.window, this.#drawn);
    } catch (thrown) {
      return this.#failed(step, thrown);
    }
    if (!(report instanceof Promise)) return this.#trained(step, report, started);
    return report.then((done) => this.#trained(step, done, started), (thrown) => this.#failed(step, thrown));
  }

  #trained(step: ReservedStep<Sample>, report: StepReport, started: number): IngestOutcome | Promise<IngestOutcome> {
    const { clock, metrics, checkpointer } = this.#options;
    this.#steps++;
    if (this.#failuresInARow > 0) this.#recovered();
    metrics.stepCompleted(this.#steps, report.loss, (clock.now() - started) / 1000);
    const exported = checkpointer.afterStep(step.window.length, this.#steps, this.samplesTotal);
    if (exported === null) return this.#commit(step, report.loss, null);
    return exported.then((path) => this.#commit(step, report.loss, path));
  }

  #recovered(): void {
    const { log } = this.#options;
    log.info("training steps succeed again");
    this.#failureLog = new OncePerChange(log);
    this.#windowFailures = 0;
    this.#failuresInARow = 0;
  }

  #commit(step: ReservedStep<Sample>, loss: number, checkpoint: string | null): IngestOutcome {
    this.#release(step, "commit");
    return { kind: "trained", step: this.#steps, loss, checkpoint };
  }

  #failed(step: ReservedStep<Sample>, thrown: unknown): IngestOutcome {
    const { log, metrics, poisonRetries } = this.#options;
    const error = errorText(thrown);
    metrics.stepsFailed++;
    this.#failuresInARow++;
    this.#windowFailures++;
    if (poisonRetries > 0 && this.#windowFailures >= poisonRetries) {
      const dropped = `window of ${step.window.length} samples dropped after ${this.#windowFailures} failed steps`;
      log.error(`${dropped}: ${error}`);
      metrics.samplesDropped += step.window.length;
      this.#windowFailures = 0;
      this.#release(step, "discard");
      return { kind: "retry_queued", step: this.#steps, error: `${error}; ${dropped}` };
    }
    this.#failureLog.error(
      `training step failed, its ${step.window.length} samples are kept for the next try: ${error}`,
    );
    if (this.#failuresInARow === FAILED_STEPS_IN_A_ROW && poisonRetries === 0) {
      log.error(
        `${FAILED_STEPS_IN_A_ROW} training steps failed in a row; the oldest window blocks all others, ` +
          `${TRAINING_SETTINGS.poisonRetries.name} can drop it`,
      );
    }
    this.#release(step, "restore");
    if (!step.deferred) return { kind: "retry_queued", step: this.#steps, error };
    metrics.samplesRefused++;
    return { kind: "refused", error, retryable: true };
  }

  #release(step: ReservedStep<Sample>, how: "commit" | "restore" | "discard"): void {
    const before = this.#pending.replay.totalPushed;
    step[how]();
    this.#options.metrics.samplesAdmitted += this.#pending.replay.totalPushed - before;
  }
}
