/** The backend as the program uses it: one or several processes, placed, fanned out to and merged (spec/ipc.md 1.11). */
import { type Clock, systemClock } from "../runtime/clock.ts";
import { ByteBudget } from "../runtime/byte_budget.ts";
import type { BatchEntry, BatchOperation } from "../wire/ipc/batch_items.ts";
import type { BatchOutcome } from "../wire/ipc/batch_outcome.ts";
import type { RunBatchBody } from "../wire/ipc/batch_requests.ts";
import type { WorkerCapabilities } from "../wire/ipc/heartbeat.ts";
import type { ApplyModelConfig, ModelConfigAnswer, ReplaceModelConfigs } from "../wire/ipc/model_config.ts";
import type { Backend, BatchCallOptions, GenerateEvent, ModelReadiness } from "./backend.ts";
import { BackendChild, type ChildTransports } from "./child.ts";
import { CHUNK_BUDGET_BYTES, CHUNK_LIMITS, type ChunkObserver } from "./chunk_transfer.ts";
import { type Connect, connectUnix } from "./connection.ts";
import { IpcError } from "./errors.ts";
import { type ChildPing, judgeRound, type PingRound } from "./heartbeat.ts";
import { mergeCapabilities, mergeConfigAnswers } from "./merge.ts";
import { type ChildLoad, newChildLoad, Placement, type WaitingWork } from "./placement.ts";
import { MuxTransport } from "./mux_transport.ts";
import { PoolTransport } from "./pool_transport.ts";
import { type CallObserver, type TransportOptions } from "./transport.ts";

/** How to reach the backend. Times in milliseconds. */
export interface BackendOptions {
  /** One path a backend process, without duplicates. */
  readonly sockets: readonly string[];
  /** Connections a process, before models ask for more. */
  readonly poolSize: number;
  readonly requestTimeoutMs: number;
  readonly modelReadyTimeoutMs: number;
  readonly generateFrameTimeoutMs: number;
  /** One multiplexed connection a process in place of the pool. */
  readonly mux?: boolean;
  readonly clock?: Clock;
  /** Budget of all chunked answers of the process; made here when absent. */
  readonly chunkBudget?: ByteBudget;
  readonly calls?: CallObserver;
  readonly chunks?: ChunkObserver;
  /** What is queued for a model: counts when another one is placed on a child. */
  readonly waitingWork?: (modelId: string) => WaitingWork;
  /** Told whenever the number of ready children changes. */
  readonly onReadyChildren?: (ready: number) => void;
  /** Replaces the operating system's sockets, for tests. */
  readonly connect?: Connect;
}

/** A child's answer to Drain, or why there is none. */
export type DrainOutcome =
  | { readonly child: number; readonly acknowledged: boolean }
  | { readonly child: number; readonly error: IpcError };

/** Limit of WorkerCapabilities within a ping round (1.8). */
const CAPABILITIES_LIMIT_MS = 2000;

/** Calls at once for control: a ping that hangs does not keep a cancellation waiting. */
const CONTROL_CALLS = 2;

/** All backend processes of this sidecar. */
export class BackendPool implements Backend {
  readonly #children: readonly BackendChild[];
  readonly #loads: readonly ChildLoad[];
  readonly #placement: Placement;
  readonly #clock: Clock;
  readonly #onReadyChildren: ((ready: number) => void) | undefined;
  #quarantined = false;
  /** Number of the latest config fan-out; an older one no longer decides about the quarantine. */
  #fanout = 0;

  constructor(
    children: readonly BackendChild[],
    clock: Clock,
    options: Pick<BackendOptions, "onReadyChildren" | "waitingWork"> = {},
  ) {
    this.#children = children;
    this.#loads = children.map(newChildLoad);
    this.#placement = new Placement(this.#loads, options.waitingWork);
    this.#clock = clock;
    this.#onReadyChildren = options.onReadyChildren;
  }

  /** Number of backend processes. */
  get childCount(): number {
    return this.#children.length;
  }

  /** How many of them are ready by the last ping or call. */
  get readyChildren(): number {
    return this.#loads.reduce((count, load) => count + (load.ready ? 1 : 0), 0);
  }

  /** Whether a config fan-out is under way or has failed: no inference then. */
  get quarantined(): boolean {
    return this.#quarantined;
  }

  async ensureModelReady(modelId: string): Promise<ModelReadiness> {
    return await this.#onChildOf(modelId, (child) => child.ensureModelReady(modelId));
  }

  async runBatch(body: RunBatchBody, options: BatchCallOptions = {}): Promise<BatchOutcome> {
    return await this.#asBatch(body.modelId, (child) => child.runBatch(body, options.atLeastMs ?? 0));
  }

  /** The older batch methods, for backends without RunBatch. */
  async processBatch(
    operation: BatchOperation,
    modelId: string,
    entries: readonly BatchEntry[],
  ): Promise<BatchOutcome> {
    return await this.#asBatch(modelId, (child) => child.processBatch(operation, modelId, entries));
  }

  async *generate(
    modelId: string,
    workItemMsgpack: Uint8Array,
    signal?: AbortSignal,
  ): AsyncGenerator<GenerateEvent, void, undefined> {
    this.#refuseWhileQuarantined();
    const index = this.#placement.childFor(modelId);
    const [child, load] = this.#at(index);
    load.inflightBatches++;
    try {
      yield* child.generate({ modelId, workItemMsgpack }, signal);
      this.#setReady(load, true);
    } catch (thrown) {
      if (!signal?.aborted) this.#failed(index, modelId);
      throw thrown;
    } finally {
      load.inflightBatches--;
    }
  }

  async signalGenerateCancel(requestId: string): Promise<boolean> {
    const answers = await this.#askAll((child) => child.signalGenerateCancel(requestId));
    return answers.some((matched) => matched);
  }

  /** The capabilities of all children together; fails only when no child answers. */
  async workerCapabilities(): Promise<WorkerCapabilities> {
    return mergeCapabilities(await this.#askAll((child) => child.workerCapabilities()));
  }

  /** One ping round over all children at the same time. Never rejects. */
  async pingAll(): Promise<PingRound> {
    const children = await Promise.all(this.#children.map((_, index) => this.#pingOne(index)));
    return judgeRound(children, this.#quarantined);
  }

  /** Tells each child in turn to finish within `deadlineMs`. Never rejects. */
  async drain(deadlineMs: number): Promise<DrainOutcome[]> {
    const outcomes: DrainOutcome[] = [];
    for (const [index, child] of this.#children.entries()) {
      try {
        outcomes.push({ child: index, acknowledged: await child.drain(deadlineMs) });
      } catch (thrown) {
        outcomes.push({ child: index, error: asIpcError(thrown) });
      }
    }
    return outcomes;
  }

  /** Sends one model's configuration to every child in turn; see {@link ModelConfigAnswer} and spec/live-config.md 5.3. */
  applyModelConfig(request: ApplyModelConfig): Promise<ModelConfigAnswer> {
    return this.#fanOutConfig((child) => child.applyModelConfig(request));
  }

  /** Replaces the bundle's configurations in every child in turn. */
  replaceModelConfigs(request: ReplaceModelConfigs): Promise<ModelConfigAnswer> {
    return this.#fanOutConfig((child) => child.replaceModelConfigs(request));
  }

  /** Closes every connection; calls that run or come fail. */
  close(): void {
    for (const child of this.#children) child.close();
  }

  async #pingOne(index: number): Promise<ChildPing> {
    const [child, load] = this.#at(index);
    let answer;
    try {
      answer = await child.ping(this.#clock.unixMs());
    } catch (thrown) {
      this.#setReady(load, false);
      return { answer: undefined, error: asIpcError(thrown), capabilities: undefined };
    }
    this.#setReady(load, answer.ready);
    if (!answer.ready) return { answer, error: undefined, capabilities: undefined };
    try {
      return { answer, error: undefined, capabilities: await child.workerCapabilities(CAPABILITIES_LIMIT_MS) };
    } catch (thrown) {
      return { answer, error: asIpcError(thrown), capabilities: undefined };
    }
  }

  async #asBatch(modelId: string, call: (child: BackendChild) => Promise<BatchOutcome>): Promise<BatchOutcome> {
    return await this.#onChildOf(modelId, async (child, load) => {
      load.inflightBatches++;
      try {
        return await call(child);
      } finally {
        load.inflightBatches--;
      }
    });
  }

  /** A call on the model's child: a success marks it ready, a failure marks it not ready and takes the model off it. */
  async #onChildOf<Answer>(
    modelId: string,
    call: (child: BackendChild, load: ChildLoad) => Promise<Answer>,
  ): Promise<Answer> {
    this.#refuseWhileQuarantined();
    const index = this.#placement.childFor(modelId);
    const [child, load] = this.#at(index);
    try {
      const answer = await call(child, load);
      this.#setReady(load, true);
      return answer;
    } catch (thrown) {
      this.#failed(index, modelId);
      throw thrown;
    }
  }

  /** Replaces the set of models that every child keeps loaded (spec/runtime.md 5). Fails when no child answers. */
  async setPinnedModels(models: readonly string[]): Promise<void> {
    await this.#askAll((child) => child.setPinnedModels(models));
  }

  /** Asks all children at once. Fails with the last error when none answers. */
  async #askAll<Answer>(call: (child: BackendChild) => Promise<Answer>): Promise<Answer[]> {
    const results = await Promise.allSettled(this.#children.map(call));
    const answers: Answer[] = [];
    let last: unknown;
    for (const [index, result] of results.entries()) {
      if (result.status === "fulfilled") answers.push(result.value);
      else {
        last = result.reason;
        this.#setReady(this.#at(index)[1], false);
      }
    }
    if (answers.length === 0) throw last;
    return answers;
  }

  /** All children in order, also after a failure; no inference from the start until all have applied it. */
  async #fanOutConfig(call: (child: BackendChild) => Promise<ModelConfigAnswer>): Promise<ModelConfigAnswer> {
    const fanout = ++this.#fanout;
    this.#quarantined = true;
    for (const load of this.#loads) load.ready = false;
    this.#onReadyChildren?.(0);
    const answers: ModelConfigAnswer[] = [];
    let failure: unknown;
    for (const child of this.#children) {
      try {
        answers.push(await call(child));
      } catch (thrown) {
        failure = thrown;
      }
    }
    if (failure !== undefined) throw failure;
    const merged = mergeConfigAnswers(answers);
    if (merged.applied && fanout === this.#fanout) {
      this.#quarantined = false;
      for (const load of this.#loads) load.ready = true;
      this.#onReadyChildren?.(this.readyChildren);
    }
    return merged;
  }

  #refuseWhileQuarantined(): void {
    if (!this.#quarantined) return;
    throw new IpcError("server", "the config fan-out to the backend processes is incomplete; the pool is quarantined");
  }

  #failed(index: number, modelId: string): void {
    this.#setReady(this.#at(index)[1], false);
    this.#placement.drop(modelId, index);
  }

  /** While quarantined no answer makes a child ready. */
  #setReady(load: ChildLoad, ready: boolean): void {
    const next = ready && !this.#quarantined;
    if (load.ready === next) return;
    load.ready = next;
    this.#onReadyChildren?.(this.readyChildren);
  }

  #at(index: number): [BackendChild, ChildLoad] {
    const child = this.#children[index];
    const load = this.#loads[index];
    if (child === undefined || load === undefined) throw new RangeError(`there is no child ${index}`);
    return [child, load];
  }
}

function asIpcError(thrown: unknown): IpcError {
  if (thrown instanceof IpcError) return thrown;
  throw thrown;
}

/**
 * Makes the client. Nothing is connected before the first call.
 *
 * @throws RangeError when there is no socket, or one twice
 */
export function createBackend(options: BackendOptions): BackendPool {
  const { sockets, poolSize } = options;
  if (sockets.length === 0) throw new RangeError("at least one backend socket is needed");
  const twice = sockets.find((path, at) => sockets.indexOf(path) !== at);
  if (twice !== undefined) throw new RangeError(`backend socket ${twice} is named twice`);
  const clock = options.clock ?? systemClock;
  const chunks = {
    limits: CHUNK_LIMITS,
    budget: options.chunkBudget ?? new ByteBudget({ limit: CHUNK_BUDGET_BYTES }),
    observer: options.chunks,
  };
  const limits = {
    requestMs: options.requestTimeoutMs,
    modelReadyMs: options.modelReadyTimeoutMs,
    generateFrameMs: options.generateFrameTimeoutMs,
  };
  const children = sockets.map((path) => {
    const transport: TransportOptions = {
      path,
      clock,
      connect: options.connect ?? connectUnix,
      chunks,
      observer: options.calls,
    };
    return new BackendChild(transport, transportsOf(transport, options), limits, poolSize);
  });
  return new BackendPool(children, clock, options);
}

function transportsOf(transport: TransportOptions, { mux, poolSize }: BackendOptions): ChildTransports {
  if (mux === true) {
    const one = new MuxTransport(transport);
    return { work: one, control: one };
  }
  return { work: new PoolTransport(transport, poolSize), control: new PoolTransport(transport, CONTROL_CALLS) };
}
