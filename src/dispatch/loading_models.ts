/**
 * Models that are being loaded, and the work that waits for them (spec/queue.md 5.2). Work of a loading model leaves the path that
 * other models use: it holds no batch permit, gives its pull permit back, and takes one of a fixed number of parking places.
 */
import { getLogger } from "@logtape/logtape";
import type { Backend, ModelReadiness } from "../ipc/backend.ts";
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { Semaphore } from "../runtime/semaphore.ts";
import { PROGRESS_CLAMP_MS, type Settler } from "./settle.ts";
import type { FinalSituation } from "./settle_by.ts";
import type { WorkUnit } from "./work_unit.ts";

const logger = getLogger(["worker-sidecar", "dispatch"]);

/** A ready answer, with what the model tells about itself. */
export type ReadyModel = Extract<ModelReadiness, { state: "ready" }>;

/** Any other answer. */
export type UnreadyState = Exclude<ModelReadiness["state"], "ready">;

/** What waiting for models needs. */
export interface LoadingModelsParts {
  readonly backend: Backend;
  readonly settler: Settler;
  readonly clock: Clock;
  /** Items of loading models that may wait at once, local ones not counted (`SIE_NATS_FETCH_BUDGET`). */
  readonly parkingPlaces: number;
  /**
   * Longest time that work is held while the backend keeps saying that the model is loading, in milliseconds: the stream's max_age,
   * or 600 s with `SIE_COMPAT=reference`.
   */
  readonly longestHoldMs: number;
  /** Aborted when the process drains: waiting work is handed over. */
  readonly shutdown: AbortSignal;
  /** Removes cancelled and expired units from a waiting group, ACKing them. */
  readonly keepLive: (units: readonly WorkUnit[]) => WorkUnit[];
  /** Takes a group whose model is ready. Never rejects. */
  readonly onReady: (modelId: string, units: WorkUnit[], model: ReadyModel) => Promise<void>;
  /** Settles a group whose model answered with a state that is not worth waiting for. */
  readonly onRefused: (modelId: string, units: readonly WorkUnit[], state: "retry_later" | "failed") => Promise<void>;
}

interface WaitingModel {
  /** Groups in order of arrival; each keeps its own batch budget. */
  groups: WorkUnit[][];
}

/** How long to wait before the backend is asked again. */
export function loadingDelayMs(state: "loading_started" | "loading_in_progress", baseDelayMs: number): number {
  return Math.min(state === "loading_started" ? baseDelayMs : 2 * baseDelayMs, PROGRESS_CLAMP_MS);
}

/** Asks for models, and holds the work of those that are loading. */
export class LoadingModels {
  readonly #parts: LoadingModelsParts;
  readonly #places: Semaphore;
  readonly #waiting = new Map<string, WaitingModel>();
  readonly #asking = new Map<string, Promise<ModelReadiness>>();
  readonly #tasks = new Set<Promise<void>>();

  constructor(parts: LoadingModelsParts) {
    this.#parts = parts;
    this.#places = new Semaphore(parts.parkingPlaces);
  }

  /** Models being waited for, with the number of items each, for `/debug/ready`. */
  waiting(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const [model, { groups }] of this.#waiting) {
      counts[model] = groups.reduce((sum, group) => sum + group.length, 0);
    }
    return counts;
  }

  /** Asks the backend for a model. Calls for the same model at the same time share one question. */
  ask(modelId: string): Promise<ModelReadiness> {
    const running = this.#asking.get(modelId);
    if (running !== undefined) return running;
    const call = this.#parts.backend.ensureModelReady(modelId).finally(() => this.#asking.delete(modelId));
    this.#asking.set(modelId, call);
    return call;
  }

  /** Whether work already waits for this model: then more of it joins at once, without a question. */
  isWaitedFor(modelId: string): boolean {
    return this.#waiting.has(modelId);
  }

  /** Parks a group of a loading model. What finds no place is sent back. */
  park(modelId: string, units: readonly WorkUnit[], state: "loading_started" | "loading_in_progress"): void {
    const parked: WorkUnit[] = [];
    for (const unit of units) {
      if (unit.delivery.source === "local") parked.push(unit);
      else if (this.#places.tryAcquire()) {
        unit.delivery.releasePermit();
        parked.push(unit);
      } else this.#parts.settler.settle(unit, "parking_full");
    }
    if (parked.length === 0) return;
    const known = this.#waiting.get(modelId);
    if (known !== undefined) {
      known.groups.push(parked);
      this.#progress(parked);
      return;
    }
    logger.info("{model} is loading; its work is held until it is ready", { model: modelId });
    const waiting: WaitingModel = { groups: [parked] };
    this.#waiting.set(modelId, waiting);
    const task = this.#wait(modelId, waiting, state).finally(() => this.#tasks.delete(task));
    this.#tasks.add(task);
  }

  /** Resolves when no work waits any more. */
  async idle(): Promise<void> {
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
  }

  async #wait(modelId: string, waiting: WaitingModel, first: "loading_started" | "loading_in_progress"): Promise<void> {
    const { clock, settler, shutdown, longestHoldMs } = this.#parts;
    const startedAt = clock.now();
    let state: ModelReadiness["state"] = first;
    for (;;) {
      waiting.groups = waiting.groups.map((group) => this.#live(group)).filter((group) => group.length > 0);
      waiting.groups = waiting.groups.filter((group) => this.#progress(group));
      if (waiting.groups.length === 0) return this.#leave(modelId, waiting, () => Promise.resolve());
      const delayMs = loadingDelayMs(state as "loading_started" | "loading_in_progress", settler.baseDelayMs);
      if (!(await sleep(clock, delayMs, shutdown))) {
        return this.#leave(modelId, waiting, (units) => this.#sendBack(units, "shutdown_waiting"));
      }
      let answer: ModelReadiness;
      try {
        answer = await this.ask(modelId);
      } catch (thrown) {
        logger.warn("asking for {model} failed; its work is sent back: {error}", {
          model: modelId,
          error: errorText(thrown),
        });
        return this.#leave(modelId, waiting, (units) => this.#sendBack(units, "readiness_call_failed"));
      }
      state = answer.state;
      if (answer.state === "ready") {
        logger.info("{model} is ready after {ms} ms", { model: modelId, ms: Math.round(clock.now() - startedAt) });
        return this.#leave(modelId, waiting, (units) => this.#ready(modelId, units, answer));
      }
      if (answer.state === "failed" || answer.state === "retry_later") {
        const refused = answer.state;
        return this.#leave(modelId, waiting, (units) => this.#parts.onRefused(modelId, units, refused));
      }
      if (clock.now() - startedAt >= longestHoldMs) {
        logger.warn("{model} has been loading for {ms} ms; its work is sent back", {
          model: modelId,
          ms: Math.round(clock.now() - startedAt),
        });
        return this.#leave(modelId, waiting, (units) => this.#sendBack(units, "waited_too_long"));
      }
    }
  }

  #ready(modelId: string, group: WorkUnit[], model: ReadyModel): Promise<void> {
    return this.#progress(group) ? this.#parts.onReady(modelId, group, model) : Promise.resolve();
  }

  /** Ends the wait for a model: its groups go their way one after another, and their parking places are free again. */
  async #leave(modelId: string, waiting: WaitingModel, end: (group: WorkUnit[]) => Promise<void>): Promise<void> {
    this.#waiting.delete(modelId);
    for (const group of waiting.groups) {
      const places = group.filter((unit) => unit.delivery.source !== "local").length;
      try {
        await end(group);
      } finally {
        this.#places.release(places);
      }
    }
  }

  #live(group: WorkUnit[]): WorkUnit[] {
    return this.#freeing(group, this.#parts.keepLive(group));
  }

  /** Progress for a whole group; if one fails the group is sent back and is not waited for any longer. */
  #progress(group: WorkUnit[]): boolean {
    if (group.every((unit) => unit.delivery.progress())) return true;
    this.#parts.settler.settleAll(group, "progress_failed");
    this.#freeing(group, []);
    group.length = 0;
    return false;
  }

  #sendBack(group: readonly WorkUnit[], situation: FinalSituation): Promise<void> {
    this.#parts.settler.settleAll(group, situation);
    return Promise.resolve();
  }

  /** Frees the places of units that are in `before` and no longer in `after`. */
  #freeing(before: readonly WorkUnit[], after: WorkUnit[]): WorkUnit[] {
    const gone = (units: readonly WorkUnit[]) => units.filter((unit) => unit.delivery.source !== "local").length;
    const freed = gone(before) - gone(after);
    if (freed > 0) this.#places.release(freed);
    return after;
  }
}
