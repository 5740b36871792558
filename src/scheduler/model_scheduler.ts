/**
 * The scheduler of one model (spec/scheduler.md 6): what waits, a number of permits, and the drain loop.
 *
 * The loop is a state machine without a task of its own. It advances when something happened that can move it: items came (once
 * per turn of the microtask queue, so that everything submitted in one go is seen together), a batch ended, or the one timer
 * fired. Nothing is allocated per item except its entry in the former.
 */
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import type { BatchFeedback, BatchRole, FlushReason, FormedBatch, RunBatch } from "./batch.ts";
import type { BatchConfig, BatchLimits } from "./batch_config.ts";
import type { BatchController } from "./batch_controller.ts";
import type { TakenItems } from "./batch_former.ts";
import type { FitsPrefix, FitsShape } from "./batch_shape.ts";
import { SchedulerClosedError } from "./errors.ts";
import { KeyQueues } from "./key_queues.ts";
import { LatencyWindow } from "./latency_window.ts";
import type { BatchKey, Schedulable } from "./schedulable.ts";

/**
 * A timer may fire this much before its time, in milliseconds, and what it was set for still counts as due: waiting again would
 * cost a whole tick of the runtime's timers (about 1 ms).
 */
const TIMER_SLACK_MS = 0.5;

/** Largest concurrency that an engine may ask for (6.3). */
const MAX_ENGINE_CONCURRENCY = 1024;

/** What all schedulers of a process have in common. */
export interface SchedulerOptions<T> {
  readonly clock: Clock;
  /** Limits to start with. */
  readonly config: BatchConfig;
  /** Most batches of one model in flight, at least 1. Two hide the time between the end of a batch and the next request. */
  readonly pipelineDepth: number;
  /** Whether the first items after an idle phase leave at once. */
  readonly idleBypass: boolean;
  /** True: the controller steps once per wave (after primary batches only). False: after every batch. */
  readonly waveCadence: boolean;
  readonly run: RunBatch<T>;
  /**
   * Called when `run` breaks its promise and throws or rejects, or the controller throws: a bug, to be logged. The permit comes
   * back all the same; the items of a batch whose `run` failed are the callee's business.
   */
  readonly onFault: (batch: FormedBatch<T>, thrown: unknown) => void;
  /** Makes the adaptive controller of a model; absent, the limits stay as configured. */
  readonly createController?: ((modelId: string) => BatchController) | undefined;
  /** Shortens batches that would take too long; absent, the limits of the configuration alone count. */
  readonly fits?: FitsShape | undefined;
}

/**
 * Where the loop stands (6.3). `primary`: it waits for a batch that is due. `continuation`: a primary left, it waits for a
 * permit to drain the same key with. `draining`: it takes what was there when it got that permit. `closing`: it takes everything
 * whether due or not. `closed`: nothing is taken any more.
 */
type Phase = "primary" | "continuation" | "draining" | "closing" | "closed";

/** A primary batch and the batches of the same key that follow it at once. */
interface Wave {
  readonly key: BatchKey;
  readonly primarySize: number;
  /** How many more items may be drained; set when the continuation permit is there. */
  budget: number;
  drained: boolean;
}

/** Queue, permits and drain loop of one model. */
export class ModelScheduler<T extends Schedulable> {
  readonly modelId: string;
  readonly #options: SchedulerOptions<T>;
  readonly #clock: Clock;
  readonly #controller: BatchController | undefined;
  readonly #latencies = new LatencyWindow();
  readonly #queues: KeyQueues<T>;
  readonly #fits: FitsPrefix | undefined;

  #depth: number;
  #inflight = 0;

  #phase: Phase = "primary";
  #wave: Wave | undefined = undefined;
  #wasIdle = true;

  #wakeQueued = false;
  #timerAt = Infinity;
  #cancelTimer: CancelTimer | undefined = undefined;
  #drainEnd: { readonly promise: Promise<T[]>; finish(leftovers: T[]): void } | undefined = undefined;

  /** @throws BatchConfigError or RangeError for options that cannot be used */
  constructor(modelId: string, options: SchedulerOptions<T>) {
    if (!Number.isSafeInteger(options.pipelineDepth) || options.pipelineDepth < 1) {
      throw new RangeError(`pipelineDepth must be a whole number of at least 1, got ${options.pipelineDepth}`);
    }
    this.modelId = modelId;
    this.#options = options;
    this.#clock = options.clock;
    this.#queues = new KeyQueues(options.config);
    this.#depth = options.pipelineDepth;
    this.#controller = options.createController?.(modelId);
    const { fits } = options;
    this.#fits = fits && (({ operation }, items, cost, longest) => {
      // While a batch is taken, its items still count as waiting.
      const queueDepth = this.#queues.pendingItems - items;
      return fits({ modelId, operation, items, cost, longest, queueDepth, inFlight: this.#inflight });
    });
  }

  /** Items that wait; those in flight are not among them. */
  get pendingItems(): number {
    return this.#queues.pendingItems;
  }

  /** Sum of the costs of the items that wait. */
  get pendingCost(): number {
    return this.#queues.pendingCost;
  }

  /** Batches that have been handed to `run` and have not ended. */
  get inflightBatches(): number {
    return this.#inflight;
  }

  /** Most batches in flight at once. */
  get pipelineDepth(): number {
    return this.#depth;
  }

  /** Limits in force. */
  get limits(): BatchLimits {
    return this.#queues.config("encode");
  }

  /** Number of batch keys held in memory. */
  get keyCount(): number {
    return this.#queues.keyCount;
  }

  /**
   * Queues items of one key in one step. Returns at once; the batches leave through `run`.
   *
   * @throws SchedulerClosedError after the end of {@link drain}; UnschedulableItemError. Either way none was queued.
   */
  submit(key: BatchKey, items: readonly T[]): void {
    if (this.#phase === "closed") throw new SchedulerClosedError(this.modelId);
    if (items.length === 0) return;
    this.#queues.submit(key, items, this.#clock.now());
    this.#wake();
  }

  /** Everything that waits, in no particular order of the keys; a list of its own. */
  waiting(): T[] {
    return this.#queues.pendingItems === 0 ? [] : this.#queues.list();
  }

  /**
   * Takes out an item that waits (cancellation).
   *
   * @returns false when it does not wait here: never submitted, or already in flight
   */
  remove(item: T): boolean {
    if (!this.#queues.remove(item)) return false;
    // The oldest key may be another one now, with an earlier time than the timer's.
    this.#wake();
    return true;
  }

  /**
   * Tells that the engine forms batches itself and takes `concurrency` requests at once (`max_concurrent_dispatch`, 6.3): more
   * batches may be in flight, and each extract item goes alone and does not wait for company. The depth only grows.
   */
  setEngineConcurrency(concurrency: number): void {
    const wanted = Math.min(Math.trunc(concurrency), MAX_ENGINE_CONCURRENCY);
    if (!(wanted > 1)) return;
    this.#depth = Math.max(this.#depth, wanted);
    this.#queues.separate("extract");
    this.#wake();
  }

  /** Replaces the limits that may move at run time, also for what waits already. Throws BatchConfigError for unusable ones. */
  setLimits(limits: BatchLimits): void {
    this.#queues.setLimits(limits);
    this.#wake();
  }

  /**
   * Ends the scheduler (6.4): whatever waits leaves at once, as permits come free, and whatever is in flight is waited for, for
   * at most `deadlineMs` milliseconds in all.
   *
   * @returns the items that were still waiting then; the caller settles them. A second call gets the same.
   */
  drain(deadlineMs: number): Promise<T[]> {
    if (this.#drainEnd !== undefined) return this.#drainEnd.promise;
    const { promise, resolve } = Promise.withResolvers<T[]>();
    const cancelDeadline = this.#clock.after(deadlineMs, () => this.#close());
    this.#drainEnd = {
      promise,
      finish(leftovers) {
        cancelDeadline();
        resolve(leftovers);
      },
    };
    this.#disarmTimer();
    this.#wave = undefined;
    this.#phase = "closing";
    this.#advance(false);
    return promise;
  }

  /** Goes as far as permits and time allow. */
  #advance(timerFired: boolean): void {
    let goesOn = true;
    while (goesOn && this.#phase !== "closed") {
      if (this.#phase === "closing" && this.#queues.pendingItems === 0) {
        if (this.#inflight === 0) this.#close();
        return;
      }
      if (this.#inflight >= this.#depth) return;
      goesOn = this.#step(timerFired);
    }
  }

  /** One step of the loop, with a permit free. Returns false when it has to wait for something. */
  #step(timerFired: boolean): boolean {
    const wave = this.#wave;
    if (this.#phase === "closing") return this.#takeAny();
    if (wave === undefined) return this.#takePrimary(timerFired);
    if (this.#phase === "continuation") {
      // The snapshot: what comes later waits for the next wave, so that one busy key cannot hold the loop.
      wave.budget = this.#queues.countOf(wave.key);
      this.#phase = "draining";
    }
    this.#takeDrain(wave);
    return true;
  }

  /** The key with the oldest item is served next, and waited for if it is not due yet (6.2). */
  #takePrimary(timerFired: boolean): boolean {
    const former = this.#queues.oldest;
    const dueAt = former?.dueAt;
    if (former === undefined || dueAt === undefined) return false;
    const now = this.#clock.now();
    const isAlmostDue = timerFired && dueAt > now && dueAt - now <= TIMER_SLACK_MS;
    const reason = former.dueReason(isAlmostDue ? dueAt : now, this.#wasIdle && this.#options.idleBypass);
    if (reason === undefined) {
      this.#armTimer(dueAt, now);
      return false;
    }
    const { key } = former;
    const taken = this.#queues.take(key, Infinity, this.#fits);
    if (taken === undefined) return false;
    this.#wave = { key, primarySize: taken.items.length, budget: 0, drained: false };
    this.#phase = "continuation";
    this.#dispatch(key, taken, "primary", reason, now);
    return true;
  }

  /** A further batch of the wave, or its end. */
  #takeDrain(wave: Wave): void {
    const taken = this.#queues.take(wave.key, wave.budget, this.#fits);
    if (taken !== undefined) {
      wave.budget -= taken.items.length;
      wave.drained = true;
    }
    if (taken === undefined || wave.budget <= 0) {
      this.#wave = undefined;
      this.#wasIdle = !wave.drained && wave.primarySize <= 1;
      this.#phase = "primary";
    }
    if (taken !== undefined) this.#dispatch(wave.key, taken, "drain", "drain", this.#clock.now());
  }

  #takeAny(): boolean {
    const key = this.#queues.oldest?.key;
    const taken = key === undefined ? undefined : this.#queues.take(key, Infinity, this.#fits);
    if (key === undefined || taken === undefined) return false;
    this.#dispatch(key, taken, "drain", "drain", this.#clock.now());
    return true;
  }

  #dispatch(key: BatchKey, taken: TakenItems<T>, role: BatchRole, reason: FlushReason, formedAt: number): void {
    const { items, totalCost } = taken;
    const batch: FormedBatch<T> = {
      modelId: this.modelId,
      key,
      items,
      totalCost,
      role,
      reason,
      formedAt,
      queueDepth: this.#queues.pendingItems,
      inFlight: this.#inflight++,
    };
    let running: Promise<BatchFeedback | undefined>;
    try {
      running = this.#options.run(batch);
    } catch (thrown) {
      running = Promise.reject(thrown);
    }
    running.then(
      (feedback) => this.#settled(batch, feedback),
      (thrown) => {
        this.#options.onFault(batch, thrown);
        this.#settled(batch, undefined);
      },
    );
  }

  #settled(batch: FormedBatch<T>, feedback: BatchFeedback | undefined): void {
    this.#inflight--;
    if (feedback !== undefined && this.#controller !== undefined) {
      try {
        this.#learn(this.#controller, batch, feedback);
      } catch (thrown) {
        this.#options.onFault(batch, thrown);
      }
    }
    this.#advance(false);
  }

  /** Passes a batch's feedback to the controller (7.10) and the controller's answer to the formers. */
  #learn(controller: BatchController, batch: FormedBatch<T>, feedback: BatchFeedback): void {
    if (feedback.inferenceMs !== undefined) controller.recordInference(feedback.inferenceMs);
    for (const latencyMs of feedback.latenciesMs) this.#latencies.record(latencyMs);
    if (batch.role !== "primary" && this.#options.waveCadence) return;
    const limits = controller.recordCompletion({
      batchCost: batch.totalCost,
      batchSize: batch.items.length,
      costCap: this.limits.maxBatchCost,
      latencyP50Ms: this.#latencies.percentile(50),
    });
    if (limits !== undefined) this.#queues.setLimits(limits);
  }

  /** Ends the drain: nothing moves any more, and whatever waits goes to the caller. */
  #close(): void {
    this.#phase = "closed";
    this.#drainEnd?.finish(this.#queues.removeAll());
  }

  /** Advances the loop once the caller has done everything it does in one go. Nothing to do while no permit is free. */
  #wake(): void {
    if (this.#wakeQueued || this.#inflight >= this.#depth) return;
    this.#wakeQueued = true;
    queueMicrotask(this.#onWake);
  }

  readonly #onWake = () => {
    this.#wakeQueued = false;
    this.#advance(false);
  };

  /** One timer serves all keys. One that fires too early is cheaper than one that is set anew for every arrival. */
  #armTimer(dueAt: number, now: number): void {
    if (this.#timerAt <= dueAt) return;
    this.#cancelTimer?.();
    this.#timerAt = dueAt;
    this.#cancelTimer = this.#clock.after(dueAt - now, this.#onTimer);
  }

  #disarmTimer(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#timerAt = Infinity;
  }

  readonly #onTimer = () => {
    this.#cancelTimer = undefined;
    this.#timerAt = Infinity;
    this.#advance(true);
  };
}
