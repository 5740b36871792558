/**
 * Models that are being loaded, and the work that waits for them (spec/queue.md 5.2). Work of a loading model leaves the path that
 * other models use: it holds no batch permit, gives its pull permit back, and takes one of a fixed number of parking places.
 */
import { getLogger } from "@logtape/logtape";
import type { Backend, ModelReadiness } from "../ipc/backend.ts";
import { ABORTED, unlessAborted } from "../runtime/abort.ts";
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { Semaphore } from "../runtime/semaphore.ts";
import type { Settler } from "./settle.ts";
import { type FinalSituation, HALF_ACK_WAIT_MS } from "./settle_by.ts";
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

/** Units that arrived together. */
interface WaitingGroup {
  units: WorkUnit[];
  /** Parking places that the group holds. */
  places: number;
}

interface WaitingModel {
  /** Groups in order of arrival; each keeps its own batch budget. */
  groups: WaitingGroup[];
}

/**
 * How long a question may go on when the process begins to drain, in milliseconds. A backend that is well answers at once; for one
 * that is not, the work must not be lost to its ack wait.
 */
const DRAIN_PATIENCE_MS = 2000;

/** Answers for which work waits. */
export type LoadingState = "loading_started" | "loading_in_progress";

/** How long to wait before the backend is asked again. */
export function loadingDelayMs(state: LoadingState, baseDelayMs: number): number {
  return Math.min(state === "loading_started" ? baseDelayMs : 2 * baseDelayMs, HALF_ACK_WAIT_MS);
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
      counts[model] = groups.reduce((sum, group) => sum + group.units.length, 0);
    }
    return counts;
  }

  /**
   * Asks the backend for a model. Calls for the same model at the same time share one question.
   *
   * @returns undefined when the process drains and the backend does not answer: the work is to be handed over
   */
  async ask(modelId: string): Promise<ModelReadiness | undefined> {
    const { backend, shutdown, clock } = this.#parts;
    let call = this.#asking.get(modelId);
    if (call === undefined) {
      call = backend.ensureModelReady(modelId).finally(() => this.#asking.delete(modelId));
      this.#asking.set(modelId, call);
    }
    const answer = await unlessAborted(call, shutdown, { grace: { clock, ms: DRAIN_PATIENCE_MS } });
    return answer === ABORTED ? undefined : answer;
  }

  /** Whether work already waits for this model: then more of it joins at once, without a question. */
  isWaitedFor(modelId: string): boolean {
    return this.#waiting.has(modelId);
  }

  /** Parks a group of a loading model. What finds no place is sent back. */
  park(modelId: string, units: readonly WorkUnit[], state: LoadingState): void {
    const parked: WaitingGroup = { units: [], places: 0 };
    for (const unit of units) {
      if (unit.delivery.source === "local") parked.units.push(unit);
      else if (this.#places.tryAcquire()) {
        parked.places++;
        unit.delivery.releasePermit();
        parked.units.push(unit);
      } else this.#parts.settler.settle(unit, "parking_full");
    }
    if (parked.units.length === 0) return;
    const known = this.#waiting.get(modelId);
    if (known !== undefined) {
      if (this.#progress(parked)) known.groups.push(parked);
      return;
    }
    logger.info("{model} is loading; its work is held until it is ready", { model: modelId });
    const waiting: WaitingModel = { groups: [parked] };
    this.#waiting.set(modelId, waiting);
    const task = this.#guarded(modelId, waiting, state).finally(() => this.#tasks.delete(task));
    this.#tasks.add(task);
  }

  /** Resolves when no work waits any more. */
  async idle(): Promise<void> {
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
  }

  /** Waits for a model; an unforeseen failure leaves what is still unsettled to redelivery and holds no place. */
  async #guarded(modelId: string, waiting: WaitingModel, first: LoadingState): Promise<void> {
    try {
      const end = await this.#wait(modelId, waiting, first);
      await this.#leave(modelId, waiting, end);
    } catch (thrown) {
      logger.error("waiting for {model} failed unexpectedly; its items are left to redelivery: {error}", {
        model: modelId,
        error: errorText(thrown),
      });
      await this.#leave(modelId, waiting, (units) => this.#sendBack(units, "crashed"));
    }
  }

  /** Asks again and again. @returns what is to be done with each group in the end */
  async #wait(
    modelId: string,
    waiting: WaitingModel,
    first: LoadingState,
  ): Promise<(units: WorkUnit[]) => Promise<void>> {
    const { clock, settler, shutdown, longestHoldMs, onReady, onRefused } = this.#parts;
    const handOver = (units: WorkUnit[]) => this.#sendBack(units, "shutdown_waiting");
    const startedAt = clock.now();
    let state = first;
    for (;;) {
      waiting.groups = waiting.groups.filter((group) => this.#isLive(group) && this.#progress(group));
      if (waiting.groups.length === 0) {
        // At once, so that nobody joins a wait that is over.
        this.#waiting.delete(modelId);
        return handOver;
      }
      if (!(await sleep(clock, loadingDelayMs(state, settler.baseDelayMs), shutdown))) return handOver;
      let answer: ModelReadiness | undefined;
      try {
        answer = await this.ask(modelId);
      } catch (thrown) {
        logger.warn("asking for {model} failed; its work is sent back: {error}", {
          model: modelId,
          error: errorText(thrown),
        });
        return (units) => this.#sendBack(units, "readiness_call_failed");
      }
      if (answer === undefined) return handOver;
      switch (answer.state) {
        case "ready": {
          logger.info("{model} is ready after {ms} ms", { model: modelId, ms: Math.round(clock.now() - startedAt) });
          const model = answer;
          waiting.groups = waiting.groups.filter((group) => this.#progress(group));
          return (units) => onReady(modelId, units, model);
        }
        case "failed":
        case "retry_later": {
          const refused = answer.state;
          return (units) => onRefused(modelId, units, refused);
        }
        default:
          state = answer.state;
      }
      if (clock.now() - startedAt >= longestHoldMs) {
        logger.warn("{model} has been loading for {ms} ms; its work is sent back", {
          model: modelId,
          ms: Math.round(clock.now() - startedAt),
        });
        return (units) => this.#sendBack(units, "waited_too_long");
      }
    }
  }

  /** Ends the wait for a model: its groups go their way one after another, and their parking places are free again. */
  async #leave(modelId: string, waiting: WaitingModel, end: (units: WorkUnit[]) => Promise<void>): Promise<void> {
    this.#waiting.delete(modelId);
    for (let group = waiting.groups[0]; group !== undefined; group = waiting.groups[0]) {
      try {
        await end(group.units);
      } finally {
        this.#keepPlaces(group, 0);
      }
      waiting.groups.shift();
    }
  }

  /** Takes out what was cancelled or has expired; false when nothing is left. */
  #isLive(group: WaitingGroup): boolean {
    group.units = this.#parts.keepLive(group.units);
    this.#keepPlaces(group, group.units.filter((unit) => unit.delivery.source !== "local").length);
    return group.units.length > 0;
  }

  /** Progress for a whole group; if one fails the group is sent back and is not waited for any longer. */
  #progress(group: WaitingGroup): boolean {
    if (group.units.every((unit) => unit.delivery.progress())) return true;
    this.#parts.settler.settleAll(group.units, "progress_failed");
    this.#keepPlaces(group, 0);
    return false;
  }

  #sendBack(units: readonly WorkUnit[], situation: FinalSituation): Promise<void> {
    this.#parts.settler.settleAll(units, situation);
    return Promise.resolve();
  }

  /** Gives back all parking places of a group but so many. */
  #keepPlaces(group: WaitingGroup, kept: number): void {
    this.#places.release(group.places - kept);
    group.places = kept;
  }
}
