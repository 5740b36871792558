/**
 * The demonstration's backend as a server: a Unix socket that speaks the IPC as strictly as the real one (spec/ipc.md 1.3 to 1.4,
 * 3, 6.1). It is the double that tests of the sidecar run against when the real backend would be too slow or too kind.
 */
import { randomBytes } from "node:crypto";
import { type Clock, systemClock } from "../../src/runtime/clock.ts";
import { sha256 } from "../../src/runtime/digest.ts";
import { errorText } from "../../src/runtime/errors.ts";
import { BACKEND_FRAMES, FrameError, FrameReader, writeAll } from "../../src/wire/frames.ts";
import { callFault, judgeRequest, type RequestVerdict } from "../../src/wire/ipc/request.ts";
import {
  ApplyModelConfigResponse,
  CHUNK_KIND,
  DrainResponse,
  EnsureModelReadyResponse,
  IPC_VERSION,
  ModelDescriptor,
  PingResponse,
  ReplaceModelConfigsResponse,
  SetPinnedModelsResponse,
  SignalGenerateCancelResponse,
  WorkerCapabilitiesResponse,
} from "../../src/wire/ipc/schema.ts";
import { processBatch, runBatch } from "./batches.ts";
import { Attempts, generate } from "./generation.ts";
import { MODELS, ModelStore } from "./models.ts";
import { decodePlain, encodePlain, filled, Float, mapOf, type Plain, type Read } from "./plain.ts";

/** Settings of the server. */
export interface DemoBackendOptions {
  readonly socketPath: string;
  /** One sentence a line; what the models are made of. */
  readonly corpus: string;
  readonly clock?: Clock;
  readonly workerId?: string;
  /** Configuration hash that hashed work must name. Default "": all hashed work is sent back. */
  readonly configHash?: string;
  /** Pause between two generated words, milliseconds. Default 15. */
  readonly wordMs?: number;
  /** Largest number of items of a model to be sent at once. Default: none named. */
  readonly batchBudget?: number;
  /** Called before a call is run, which waits for it: tests hold calls back with it. */
  readonly before?: (method: string, body: { [key: string]: Read }) => Promise<void>;
}

type Call = Extract<RequestVerdict, { kind: "call" }>;

const CHUNK_BYTES = 4_194_304;
const LARGEST_ANSWER = 134_217_728;
const IN_PROGRESS_MS = 10_000;
const LONGEST_DRAIN_MS = 25_000;

/** Methods that run beside what follows on their connection; after Drain they are refused. */
const PROCESS_METHODS = new Set([
  "ProcessEncodeBatch",
  "ProcessScoreBatch",
  "ProcessExtractBatch",
  "ProcessGenerate",
  "RunBatch",
]);

/** One client. */
class Client {
  readonly stream: Deno.UnixConn;
  #writing: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(stream: Deno.UnixConn) {
    this.stream = stream;
  }

  /** Writes a frame in one piece, behind the frames that wait. Rejects when the client is gone. */
  send(body: Uint8Array): Promise<void> {
    const frame = new Uint8Array(4 + body.length);
    new DataView(frame.buffer).setUint32(0, body.length);
    frame.set(body, 4);
    const written = this.#writing.then(() => writeAll(this.stream, frame));
    this.#writing = written.catch(() => {});
    return written;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.stream.close();
  }
}

/** A running backend. */
export class DemoBackend implements AsyncDisposable {
  readonly #options: DemoBackendOptions;
  readonly #clock: Clock;
  readonly #models: ModelStore;
  readonly #attempts: Attempts;
  readonly #listener: Deno.UnixListener;
  readonly #clients = new Set<Client>();
  readonly #tasks = new Set<Promise<void>>();
  readonly #accepting: Promise<void>;
  #configVersion = 0;
  #drainMs: number | undefined;

  private constructor(options: DemoBackendOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#models = new ModelStore(options.corpus, this.#clock);
    this.#attempts = new Attempts(this.#clock);
    removeIfThere(options.socketPath);
    this.#listener = Deno.listen({ transport: "unix", path: options.socketPath });
    Deno.chmodSync(options.socketPath, 0o600);
    this.#accepting = this.#accept();
  }

  /** Starts listening. */
  static start(options: DemoBackendOptions): DemoBackend {
    return new DemoBackend(options);
  }

  /** Connections that are open. */
  get connections(): number {
    return this.#clients.size;
  }

  /** Stops accepting, waits a while for running calls, cancels the rest and closes all connections. */
  async stop(): Promise<void> {
    this.#listener.close();
    const limit = Math.min(LONGEST_DRAIN_MS, this.#drainMs ?? LONGEST_DRAIN_MS);
    const waiting = Promise.all(this.#tasks);
    const { promise: expired, resolve } = Promise.withResolvers<void>();
    const cancel = this.#clock.after(limit, resolve);
    await Promise.race([waiting, expired]);
    cancel();
    await this.#hangUp();
  }

  /** Ends it at once, as a crash would. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#listener.close();
    } catch (thrown) {
      // It has been stopped in order before.
      if (!(thrown instanceof Deno.errors.BadResource)) throw thrown;
    }
    await this.#hangUp();
  }

  async #hangUp(): Promise<void> {
    this.#attempts.cancelAll();
    for (const client of this.#clients) client.close();
    await this.#accepting;
  }

  async #accept(): Promise<void> {
    for await (const stream of this.#listener) {
      const client = new Client(stream as Deno.UnixConn);
      this.#clients.add(client);
      void this.#serve(client).finally(() => {
        client.close();
        this.#clients.delete(client);
      });
    }
  }

  /** Reads the frames of one connection. Whatever is no request ends it, with everything that still runs on it. */
  async #serve(client: Client): Promise<void> {
    const reader = new FrameReader(client.stream, BACKEND_FRAMES);
    for (;;) {
      let frame: Uint8Array | undefined;
      try {
        frame = await reader.readFrame();
      } catch (thrown) {
        if (thrown instanceof FrameError || isGone(thrown)) return;
        throw thrown;
      }
      if (frame === undefined) return;
      const verdict = judgeRequest(frame);
      if (verdict.kind === "hang_up") return;
      try {
        await this.#handle(client, verdict);
      } catch (thrown) {
        if (isGone(thrown)) return;
        throw thrown;
      }
    }
  }

  async #handle(client: Client, verdict: Exclude<RequestVerdict, { kind: "hang_up" }>): Promise<void> {
    if (verdict.kind === "refuse") return await client.send(refusal(verdict.requestId, verdict.error));
    const id = encodePlain(verdict.requestId);
    const inBackground = PROCESS_METHODS.has(verdict.method);
    if (inBackground && this.#drainMs !== undefined) return await client.send(refusal(id, "draining"));
    const fault = callFault(verdict.method, verdict.body);
    if (fault !== undefined) return await client.send(refusal(id, fault));
    const running = this.#run(client, verdict).catch((thrown) => {
      if (!isGone(thrown)) throw thrown;
    });
    if (!inBackground) return await running;
    const task = running.finally(() => this.#tasks.delete(task));
    this.#tasks.add(task);
  }

  async #run(client: Client, call: Call): Promise<void> {
    const id = encodePlain(call.requestId);
    const body = mapOf(decodePlain(call.body));
    let answer: Plain;
    try {
      await this.#options.before?.(call.method, body);
      if (call.method === "ProcessGenerate") {
        return await generate(this.#generation(), body, (event) => client.send(success(id, event)));
      }
      answer = this.#answer(call.method, body);
    } catch (thrown) {
      if (isGone(thrown)) throw thrown;
      return await client.send(refusal(id, errorText(thrown)));
    }
    await this.#sendAnswer(client, call, success(id, answer));
  }

  /** An answer of up to 32 MiB is one frame, a larger one is cut, or refused (6.1). */
  async #sendAnswer(client: Client, call: Call, answer: Uint8Array): Promise<void> {
    if (answer.length <= BACKEND_FRAMES.maxBytes) return await client.send(answer);
    const id = encodePlain(call.requestId);
    if (!call.acceptsChunks) {
      const text = "IPC response exceeds the legacy frame limit; response chunking v1 was not negotiated";
      return await client.send(refusal(id, text));
    }
    if (answer.length > LARGEST_ANSWER) {
      return await client.send(refusal(id, "IPC response exceeds the negotiated response chunking v1 bounds"));
    }
    const digest = sha256(answer);
    const count = Math.ceil(answer.length / CHUNK_BYTES);
    for (let index = 0; index < count; index++) {
      await client.send(encodePlain({
        version: IPC_VERSION,
        request_id: call.requestId,
        transfer_digest: digest,
        chunk_index: index,
        chunk_count: count,
        total_bytes: answer.length,
        payload: answer.subarray(index * CHUNK_BYTES, (index + 1) * CHUNK_BYTES),
        kind: CHUNK_KIND,
      }));
    }
  }

  #generation() {
    const { configHash = "", wordMs = 15 } = this.#options;
    return {
      models: this.#models,
      clock: this.#clock,
      configHash,
      wordMs,
      inProgressMs: IN_PROGRESS_MS,
      attempts: this.#attempts,
      newAttemptId: () => randomBytes(16).toString("hex"),
    };
  }

  /** The body of a method's answer. */
  #answer(method: string, body: { [key: string]: Read }): Plain {
    const { configHash = "" } = this.#options;
    const batch = { models: this.#models, clock: this.#clock, configHash };
    switch (method) {
      case "Ping":
        return filled(PingResponse, {
          timestamp_ms: new Float(Number(body.timestamp_ms)),
          worker_id: this.#options.workerId ?? "demo-backend",
          ready: true,
          bundle_config_hash: configHash,
          loaded_models: this.#models.loaded,
          loading_models: this.#models.loading,
        });
      case "EnsureModelReady":
        return this.#ensure(String(body.model_id));
      case "WorkerCapabilities":
        return this.#capabilities();
      case "SignalGenerateCancel":
        return filled(SignalGenerateCancelResponse, { matched: this.#attempts.cancel(String(body.request_id)) });
      case "RunBatch":
        return runBatch(batch, body);
      case "ProcessEncodeBatch":
        return processBatch(batch, "encode", body);
      case "ProcessScoreBatch":
        return processBatch(batch, "score", body);
      case "ProcessExtractBatch":
        return processBatch(batch, "extract", body);
      case "Drain":
        return this.#drain(body.deadline_ms);
      case "SetPinnedModels":
        return filled(SetPinnedModelsResponse, { applied: true, pinned_count: (body.models as Read[]).length });
      case "ApplyModelConfig":
      case "ReplaceModelConfigs":
        return this.#configure(method, body);
      default:
        // A method of the newer ones, which an older backend does not know.
        throw new Error(`unknown method ${method}`);
    }
  }

  #ensure(modelId: string): Plain {
    const state = this.#models.ensure(modelId);
    if (state !== "ready") return filled(EnsureModelReadyResponse, { state });
    const descriptor = filled(ModelDescriptor, { output_types: [], supports_run_batch: true });
    return filled(EnsureModelReadyResponse, { state, batch_budget: this.#options.batchBudget ?? null, descriptor });
  }

  #capabilities(): Plain {
    const generating = [...MODELS].filter(([, operations]) => operations.includes("generate")).map(([id]) => id);
    return filled(WorkerCapabilitiesResponse, {
      supports_execution_authority_v1: false,
      supports_numerical_admission_v1: false,
      has_generation_models: true,
      generation_models: generating.sort(),
      supported_models: [...MODELS.keys()].sort(),
      loaded_models: this.#models.loaded,
    });
  }

  /** The models are fixed, so a configuration is acknowledged and changes nothing. */
  #configure(method: string, body: { [key: string]: Read }): Plain {
    if (body.bundle_id === "") throw new Error("ValueError: bundle_id is required");
    if (body.model_config !== undefined && String(body.model_config).trim() === "") {
      throw new Error("ValueError: model_config is required");
    }
    const fields = {
      applied: true,
      bundle_config_hash: this.#options.configHash ?? "",
      config_version: ++this.#configVersion,
      unsupported_models: [],
    };
    if (method === "ApplyModelConfig") return filled(ApplyModelConfigResponse, fields);
    return filled(ReplaceModelConfigsResponse, {
      ...fields,
      applied_models: [...MODELS.keys()].sort(),
      applied_profiles: [],
    });
  }

  /** Only a positive number counts, and a later one can only shorten it. */
  #drain(deadline: Read | undefined): Plain {
    const given = typeof deadline === "number" && deadline > 0 ? deadline : LONGEST_DRAIN_MS;
    this.#drainMs = Math.min(given, this.#drainMs ?? LONGEST_DRAIN_MS);
    return filled(DrainResponse, { acknowledged: true });
  }
}

/** An answer that is ok. `id` is the MessagePack of the request id. */
function success(id: Uint8Array, body: Plain): Uint8Array {
  return envelope(id, true, encodePlain(body), null);
}

function refusal(id: Uint8Array, error: string): Uint8Array {
  return envelope(id, false, encodePlain(null), error);
}

function envelope(id: Uint8Array, ok: boolean, body: Uint8Array, error: string | null): Uint8Array {
  const parts = [
    Uint8Array.of(0x85),
    encodePlain("version"),
    encodePlain(IPC_VERSION),
    encodePlain("request_id"),
    id,
    encodePlain("ok"),
    encodePlain(ok),
    encodePlain("body"),
    body,
    encodePlain("error"),
    encodePlain(error),
  ];
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** The client closed the connection, or we did. */
function isGone(thrown: unknown): boolean {
  const { BadResource, BrokenPipe, ConnectionReset, Interrupted } = Deno.errors;
  return [BadResource, BrokenPipe, ConnectionReset, Interrupted].some((type) => thrown instanceof type);
}

function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (thrown) {
    if (!(thrown instanceof Deno.errors.NotFound)) throw thrown;
  }
}
