/**
 * Generation for the local socket (spec/local-ingest.md 7.3 to 7.6, spec/generation.md 7): readiness and media, the execution
 * barrier, the backend's stream under the rules of the local lane, and its cancellation.
 */
import type { ConfigView, ExecutionBarrier } from "../dispatch/views.ts";
import type { Backend } from "../ipc/backend.ts";
import { IpcError } from "../ipc/errors.ts";
import { ABORTED, unlessAborted } from "../runtime/abort.ts";
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";
import { stampExecutedHash } from "../wire/generate_chunk.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";
import { quoted } from "../wire/ingest/quoted.ts";
import { type WorkItem, WorkItemField } from "../wire/work_item.ts";
import { encodeWorkItemForBackend } from "../wire/work_item_writer.ts";
import { afterTurn, generateInput } from "./generate_input.ts";
import type { ChunkSink, GenerationOutcome, GenerationRunner, StreamErrorCode } from "./local_runner.ts";
import { LocalStream } from "./local_stream.ts";

const logger = logFor("generate");

/** What local generation works with. */
export interface LocalGenerationParts {
  readonly backend: Backend;
  readonly config: ConfigView;
  readonly barrier: ExecutionBarrier;
  readonly clock: Clock;
}

/** Ends a stream with an error answer. */
class StreamFailure extends Error {
  readonly code: StreamErrorCode;

  constructor(code: StreamErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The stream was stopped before the backend had anything of it. */
class StoppedEarly extends Error {}

/** What is left to do when a stream was stopped. */
type Stop = Extract<GenerationOutcome, { readonly kind: "stopped" }>;

const STOPPED_EARLY: Stop = { kind: "stopped", cancelFailure: undefined, drainTimedOut: false };

/** Runs generations on the backend. */
export class LocalGeneration implements GenerationRunner {
  readonly #parts: LocalGenerationParts;

  constructor(parts: LocalGenerationParts) {
    this.#parts = parts;
  }

  async run(work: WorkItem, sink: ChunkSink, signal: AbortSignal): Promise<GenerationOutcome> {
    try {
      const generate = await this.#prepare(work, signal);
      await unlessStopped(this.#enterBarrier(), signal, () => this.#parts.barrier.leaveShared());
      try {
        return await this.#execute(work, generate, sink, signal);
      } finally {
        this.#parts.barrier.leaveShared();
      }
    } catch (thrown) {
      if (thrown instanceof StoppedEarly) return STOPPED_EARLY;
      if (thrown instanceof StreamFailure) return { kind: "failed", code: thrown.code, message: thrown.message };
      logger.error("generation {item} failed unexpectedly: {error}", {
        item: work.workItemId,
        error: errorText(thrown),
      });
      return { kind: "failed", code: "INTERNAL_ERROR", message: "generation failed unexpectedly" };
    }
  }

  async cancel(requestId: string): Promise<string | undefined> {
    const failure = await this.#signalCancel(requestId);
    if (failure === undefined) return undefined;
    return failure.kind === "timeout"
      ? "TimeoutError: cancellation RPC timed out"
      : `TRANSPORT_FAILURE: generation cancel IPC failed: ${failure.message}`;
  }

  /** Readiness and input. @returns the parameters for the backend, undefined when they stay as they came */
  async #prepare(work: WorkItem, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const { modelId } = work;
    this.#requireSupported(work);
    let answer;
    try {
      answer = await unlessStopped(this.#parts.backend.ensureModelReady(modelId), signal);
    } catch (thrown) {
      if (!(thrown instanceof IpcError)) throw thrown;
      throw new StreamFailure("BACKEND_UNAVAILABLE", `EnsureModelReady failed: ${ipcText(thrown)}`, { cause: thrown });
    }
    if (answer.state === "failed") {
      throw new StreamFailure("MODEL_LOAD_FAILED", `model ${quoted(modelId)} failed to load`);
    }
    if (answer.state !== "ready") throw new StreamFailure("MODEL_LOADING", `model ${quoted(modelId)} is loading`);
    if (!work.has(WorkItemField.generate)) {
      throw new StreamFailure("INVALID_INPUT", "generate parameters are required");
    }
    const input = generateInput(work, undefined);
    if ("refusal" in input) throw new StreamFailure("INVALID_INPUT", input.refusal.message);
    await afterTurn(input.bytes, this.#parts.clock);
    return input.bytes;
  }

  #requireSupported(work: WorkItem): void {
    if (!this.#parts.config.isUnsupported(work.modelId)) return;
    throw new StreamFailure(
      "BUNDLE_CONFIG_MISMATCH",
      `model ${quoted(work.modelId)} is not part of this worker's configuration`,
    );
  }

  #enterBarrier(): Promise<void> {
    const { barrier } = this.#parts;
    return barrier.tryEnterShared() ? Promise.resolve() : barrier.enterShared();
  }

  /** Runs the stream; the shared side of the barrier is held. */
  async #execute(
    work: WorkItem,
    generate: Uint8Array | undefined,
    sink: ChunkSink,
    signal: AbortSignal,
  ): Promise<GenerationOutcome> {
    this.#requireSupported(work);
    if (!this.#parts.config.accepts(work.bundleConfigHash)) {
      throw new StreamFailure("BUNDLE_CONFIG_MISMATCH", "bundle_config_hash is not the one this worker runs under");
    }
    let encoded: Uint8Array;
    try {
      encoded = encodeWorkItemForBackend(work, generate === undefined ? {} : { generate });
    } catch (thrown) {
      throw new StreamFailure("INTERNAL_ERROR", `generate work item cannot be encoded: ${errorText(thrown)}`);
    }
    if (signal.aborted) throw new StoppedEarly();
    const closing = new AbortController();
    const stream = this.#stream(work, encoded, sink, signal, closing.signal);
    const stopped = Promise.withResolvers<Stop>();
    const onStop = () => {
      this.#stop(work.requestId, stream, closing).then(stopped.resolve, stopped.reject);
    };
    signal.addEventListener("abort", onStop, { once: true });
    const outcome = await Promise.race([stream, stopped.promise]);
    signal.removeEventListener("abort", onStop);
    return outcome ?? await stopped.promise;
  }

  /** Reads the backend's stream to its end. @returns undefined when it was stopped before it came to an end of its own */
  async #stream(
    work: WorkItem,
    encoded: Uint8Array,
    sink: ChunkSink,
    stopped: AbortSignal,
    closing: AbortSignal,
  ): Promise<GenerationOutcome | undefined> {
    const machine = new LocalStream(work.requestId, work.replySubject);
    try {
      for await (const event of this.#parts.backend.generate(work.modelId, encoded, closing)) {
        if (event.kind === "done") break;
        // What comes after the stop is read only so that the backend can end.
        if (stopped.aborted) continue;
        const step = machine.step(event);
        if (step.kind === "violation") throw new IpcError("server", step.message);
        if (step.kind === "chunk" && event.kind === "publish") {
          await sink.chunk(stamped(event.payload, work.bundleConfigHash), step.seq);
        }
      }
    } catch (thrown) {
      return stopped.aborted ? undefined : await this.#broken(work, streamText(thrown));
    }
    const end = machine.end();
    if (end.kind === "complete") return { kind: "complete", chunks: end.chunks };
    if (stopped.aborted) return undefined;
    if (end.kind === "retry") {
      return { kind: "failed", code: "RETRY_LATER", message: `generation backend requested retry: ${end.reason}` };
    }
    return await this.#broken(work, `generation ended in incomplete phase ${end.phase}`);
  }

  /** The stream cannot go on: the backend is told, in case it does. */
  async #broken(work: WorkItem, message: string): Promise<GenerationOutcome> {
    const failure = await this.#signalCancel(work.requestId);
    if (failure !== undefined) {
      logger.warn("{item}: the backend could not be told to cancel: {error}", {
        item: work.workItemId,
        error: failure.message,
      });
    }
    return { kind: "failed", code: "TRANSPORT_FAILURE", message };
  }

  /** Tells the backend to cancel and waits for the end of its stream, each within its limit. */
  async #stop(requestId: string, stream: Promise<unknown>, closing: AbortController): Promise<Stop> {
    const failure = await this.#signalCancel(requestId);
    const ended = await this.#within(stream, IngestLimits.drainTimeoutMs);
    if (ended === TIMED_OUT) closing.abort();
    return { kind: "stopped", cancelFailure: failure?.message, drainTimedOut: ended === TIMED_OUT };
  }

  async #signalCancel(requestId: string): Promise<{ kind: "timeout" | "error"; message: string } | undefined> {
    const { backend } = this.#parts;
    try {
      const told = await this.#within(backend.signalGenerateCancel(requestId), IngestLimits.cancelRpcTimeoutMs);
      return told === TIMED_OUT ? { kind: "timeout", message: "cancellation RPC timed out" } : undefined;
    } catch (thrown) {
      return { kind: "error", message: ipcText(thrown) };
    }
  }

  async #within<T>(promise: Promise<T>, limitMs: number): Promise<T | typeof TIMED_OUT> {
    const limit = new AbortController();
    const expired = sleep(this.#parts.clock, limitMs, limit.signal).then((): typeof TIMED_OUT => TIMED_OUT);
    try {
      return await Promise.race([promise, expired]);
    } finally {
      limit.abort();
    }
  }
}

const TIMED_OUT: unique symbol = Symbol("timed out");

/** Waits for a promise unless the stream is stopped first; what comes of it after that is given to `late`. */
async function unlessStopped<T>(promise: Promise<T>, signal: AbortSignal, late?: (value: T) => void): Promise<T> {
  const value = await unlessAborted(promise, signal, late === undefined ? {} : { late });
  if (value === ABORTED) throw new StoppedEarly();
  return value;
}

/** A chunk as the caller gets it; one without a hash goes on untouched. */
function stamped(payload: Uint8Array, hash: string): Uint8Array {
  return hash === "" ? payload : stampExecutedHash(payload, hash);
}

function streamText(thrown: unknown): string {
  return `generation backend stream failed: ${ipcText(thrown)}`;
}

/** A failed backend call in an error answer. What the stream itself did wrong counts as the backend's word, too. */
function ipcText(thrown: unknown): string {
  const isOurs = thrown instanceof IpcError && thrown.kind !== "server";
  return isOurs ? errorText(thrown) : `server returned error: ${errorText(thrown)}`;
}
