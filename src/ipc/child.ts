/** One backend process: its transport, its limits and its generations. */
import type { IpcMethod } from "../wire/ipc/methods.ts";
import {
  ApplyModelConfigMethod,
  Drain,
  EnsureModelReady,
  GetWorkerCapabilities,
  Ping,
  ProcessEncodeBatch,
  ProcessExtractBatch,
  ProcessScoreBatch,
  ReplaceModelConfigsMethod,
  RunBatch,
  SetPinnedModels,
  SignalGenerateCancel,
} from "../wire/ipc/methods.ts";
import type { BatchEntry, BatchOperation } from "../wire/ipc/batch_items.ts";
import type { BatchOutcome } from "../wire/ipc/batch_outcome.ts";
import type { RunBatchBody } from "../wire/ipc/batch_requests.ts";
import type { GenerateEvent, GenerateRequest } from "../wire/ipc/generate_event.ts";
import type { PingAnswer, WorkerCapabilities } from "../wire/ipc/heartbeat.ts";
import type {
  ApplyModelConfig,
  ModelConfigAnswer,
  PinnedModelsAnswer,
  ReplaceModelConfigs,
} from "../wire/ipc/model_config.ts";
import type { ModelReadiness } from "../wire/ipc/readiness.ts";
import { generateEvents } from "./generation.ts";
import { RequestIds, type Transport, type TransportOptions } from "./transport.ts";

/** Limits of calls, milliseconds (1.8). */
export interface CallLimits {
  readonly requestMs: number;
  readonly modelReadyMs: number;
  readonly generateFrameMs: number;
}

/** Widths that one model may claim. */
const WIDEST_DISPATCH = 1024;

/** Ways to one process. */
export interface ChildTransports {
  /** For work, and for what belongs to it. */
  readonly work: Transport;
  /**
   * For what must not wait behind work: a ping that waits for a batch to end would make the worker look dead, and a cancellation
   * that does comes too late.
   */
  readonly control: Transport;
}

/** A backend process. All methods reject with IpcError. */
export class BackendChild {
  readonly path: string;
  readonly #transports: ChildTransports;
  readonly #options: TransportOptions;
  readonly #limits: CallLimits;
  readonly #poolSize: number;
  /** Generations number their requests apart: they share no connection with anything. */
  readonly #generationIds = new RequestIds();
  /** What each model said about batches at once, where it is more than one. */
  readonly #widths = new Map<string, number>();

  /** @param poolSize calls at once before any model asked for more */
  constructor(options: TransportOptions, transports: ChildTransports, limits: CallLimits, poolSize: number) {
    this.path = options.path;
    this.#options = options;
    this.#transports = transports;
    this.#limits = limits;
    this.#poolSize = poolSize;
  }

  ping(timestampMs: number): Promise<PingAnswer> {
    return this.#control(Ping, timestampMs);
  }

  /** @param limitMs limit of the call; the ordinary one by default */
  workerCapabilities(limitMs = this.#limits.requestMs): Promise<WorkerCapabilities> {
    return this.#control(GetWorkerCapabilities, undefined, Math.min(limitMs, this.#limits.requestMs));
  }

  async ensureModelReady(modelId: string): Promise<ModelReadiness> {
    const readiness = await this.#call(EnsureModelReady, modelId, this.#limits.modelReadyMs);
    if (readiness.state === "ready") this.#widen(modelId, readiness.descriptor?.maxConcurrentDispatch ?? 1);
    return readiness;
  }

  /** @param atLeastMs the larger of this and the request timeout is the limit */
  runBatch(body: RunBatchBody, atLeastMs: number): Promise<BatchOutcome> {
    return this.#call(RunBatch, body, Math.max(this.#limits.requestMs, atLeastMs));
  }

  /** The older methods, one an operation. */
  processBatch(operation: BatchOperation, modelId: string, entries: readonly BatchEntry[]): Promise<BatchOutcome> {
    const method = operation === "encode"
      ? ProcessEncodeBatch
      : operation === "score"
      ? ProcessScoreBatch
      : ProcessExtractBatch;
    return this.#call(method, { modelId, entries });
  }

  signalGenerateCancel(requestId: string): Promise<boolean> {
    return this.#control(SignalGenerateCancel, requestId);
  }

  applyModelConfig(request: ApplyModelConfig): Promise<ModelConfigAnswer> {
    return this.#call(ApplyModelConfigMethod, request);
  }

  replaceModelConfigs(request: ReplaceModelConfigs): Promise<ModelConfigAnswer> {
    return this.#call(ReplaceModelConfigsMethod, request);
  }

  setPinnedModels(models: readonly string[]): Promise<PinnedModelsAnswer> {
    return this.#call(SetPinnedModels, models);
  }

  drain(deadlineMs: number): Promise<boolean> {
    return this.#control(Drain, deadlineMs);
  }

  generate(request: GenerateRequest, signal: AbortSignal | undefined): AsyncGenerator<GenerateEvent, void, undefined> {
    const { path, connect, clock } = this.#options;
    const requestId = this.#generationIds.next();
    const frameTimeoutMs = this.#limits.generateFrameMs;
    return generateEvents({ path, connect, clock, frameTimeoutMs, requestId, signal }, request);
  }

  close(): void {
    this.#transports.work.close();
    this.#transports.control.close();
  }

  #call<Request, Answer>(
    method: IpcMethod<Request, Answer>,
    request: Request,
    limitMs = this.#limits.requestMs,
  ): Promise<Answer> {
    return this.#transports.work.call(method, request, limitMs);
  }

  #control<Request, Answer>(
    method: IpcMethod<Request, Answer>,
    request: Request,
    limitMs = this.#limits.requestMs,
  ): Promise<Answer> {
    return this.#transports.control.call(method, request, limitMs);
  }

  /** Grows the pool by what models want beyond one batch at a time; it never shrinks (1.5). */
  #widen(modelId: string, width: number): void {
    if (width <= 1) return;
    const clamped = Math.min(width, WIDEST_DISPATCH);
    if (this.#widths.get(modelId) === clamped) return;
    this.#widths.set(modelId, clamped);
    let sum = 0;
    for (const each of this.#widths.values()) sum += each;
    this.#transports.work.grow(this.#poolSize + sum);
  }
}
