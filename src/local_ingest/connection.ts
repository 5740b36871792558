/** One connection to the local socket: its reader, and the operations it starts (spec/local-ingest.md 10). */
import type { GenerationRunner } from "../generate/local_runner.ts";
import type { ByteBudget } from "../runtime/byte_budget.ts";
import { errorText, SidecarError } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";
import { Pace } from "../runtime/pace.ts";
import type { ByteSink, ByteSource } from "../wire/frames.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";
import { quoted } from "../wire/ingest/quoted.ts";
import { decodeRequest, type IngestRequest, type OperationId } from "../wire/ingest/request.ts";
import {
  ChunkFrames,
  emptyFrame,
  errorFrame,
  finalFrame,
  type OutgoingFrame,
  RESPONSE_TOO_LARGE,
  resultsFrame,
} from "../wire/ingest/response.ts";
import { FrameInput } from "./frame_input.ts";
import { FrameOutput } from "./frame_output.ts";
import type { GenerationClaims } from "./generation_claims.ts";
import { RequestBudget } from "./request_budget.ts";
import { runStreamCall, type StopReason, streamError } from "./stream_call.ts";
import { isRequestId, validateWork } from "./validation.ts";
import { WorkCall, type WorkCallParts } from "./work_call.ts";

const logger = logFor("local_ingest");

/** A byte stream to a client; `Deno.Conn` is one. */
export interface ClientStream extends ByteSource, ByteSink {
  close(): void;
}

/** What all connections of a server share. */
export interface ConnectionParts extends WorkCallParts {
  readonly generation: GenerationRunner;
  readonly claims: GenerationClaims;
  /** The byte budget of the process. */
  readonly budget: ByteBudget | undefined;
  /** `SIE_COMPAT=reference`. */
  readonly referenceCompatible: boolean;
}

/** How a connection ended: the client ended it between frames, we did, or it broke and was closed without a word. */
export type ConnectionEnd =
  | { readonly kind: "ended_by_client" | "shut_down" }
  | { readonly kind: "broken"; readonly reason: string };

/** The client broke the protocol; the connection is closed without a word. */
class ProtocolFault extends SidecarError {
  constructor(message: string) {
    super("local_ingest_protocol", message);
  }
}

/** A request whose bytes are counted. */
interface HeldRequest extends IngestRequest {
  readonly length: number;
  /** Resolves when nothing uses the bytes any more, which can be after the last answer. */
  unused: Promise<void>;
}

/** What became of a request after it was read: somebody else looks after it now, it was refused, or the connection ends. */
type Admission = "kept" | "refused" | "ended";

const GENERATE = "publish_generate_stream";

function capacityError(request: HeldRequest, budget: RequestBudget): string {
  const reason = budget.refusal();
  return request.op === GENERATE ? streamError("CAPACITY_EXHAUSTED", reason) : `CapacityExhausted: ${reason}`;
}

/** Serves one client. */
export class IngestConnection {
  readonly #parts: ConnectionParts;
  readonly #stream: ClientStream;
  readonly #input: FrameInput;
  readonly #output: FrameOutput;
  readonly #budget = new RequestBudget();
  readonly #ids = new Set<OperationId>();
  /** Request ids of the generations that run on this connection. */
  readonly #generations = new Set<string>();
  readonly #operations = new Set<Promise<void>>();
  /** The one data request that has been read and waits for its place. */
  #waiting: HeldRequest | undefined;
  /** Aborted with a {@link StopReason}: no operation goes on after that. */
  readonly #stop = new AbortController();
  #wake: () => void = () => {};
  #closed = false;
  #broken: string | undefined;

  constructor(stream: ClientStream, parts: ConnectionParts) {
    this.#stream = stream;
    this.#parts = parts;
    this.#input = new FrameInput(stream);
    this.#output = new FrameOutput(stream, parts.clock, (reason) => this.#break(reason));
    this.#budget.onRelease = () => this.#released();
  }

  /** Reads and serves until the client or {@link shutdown} ends it. Never rejects; nothing of the connection is left afterwards. */
  async serve(): Promise<ConnectionEnd> {
    const stopListening = this.#parts.budget?.listen({ low: () => this.#wake() });
    try {
      while (await this.#serveNext());
    } catch (thrown) {
      this.#break(errorText(thrown));
    }
    stopListening?.();
    this.#dropWaiting();
    // Answers that are ready still go out: the client may have ended only its own side.
    this.#abort("gone");
    await this.#operationsEnded();
    await this.#output.drained();
    this.#close();
    if (this.#broken !== undefined) return { kind: "broken", reason: this.#broken };
    return { kind: this.#stop.signal.reason === ("shutdown" satisfies StopReason) ? "shut_down" : "ended_by_client" };
  }

  /** Ends all operations with an answer, then the connection. */
  async shutdown(): Promise<void> {
    this.#abort("shutdown");
    await this.#operationsEnded();
    await this.#output.drained();
    this.#close();
  }

  /** Reads one frame and starts what it asks for. @returns false when the connection is to end */
  async #serveNext(): Promise<boolean> {
    const length = await this.#input.header();
    if (length === undefined) return false;
    if (length > IngestLimits.frameBytes) {
      throw new ProtocolFault(`a frame of ${length} bytes exceeds the limit of ${IngestLimits.frameBytes} bytes`);
    }
    let isReserved = false;
    const hasRoom = await this.#until(() => isReserved = this.#reserve(length));
    if (!isReserved) return false;
    let isKept = false;
    try {
      if (!hasRoom) return false;
      const body = await this.#input.body(length);
      if (body === undefined) throw new ProtocolFault(`the stream ended inside a body of ${length} bytes`);
      if (this.#stop.signal.aborted) return false;
      const request: HeldRequest = { ...decodeRequest(body), length, unused: Promise.resolve() };
      if (this.#ids.has(request.id)) throw new ProtocolFault(`id ${request.id} is active already`);
      this.#ids.add(request.id);
      const outcome = await (request.op === "cancel" ? this.#admitControl(request) : this.#admitData(request));
      isKept = outcome === "kept";
      return outcome !== "ended";
    } finally {
      if (!isKept) this.#dropBytes(length);
    }
  }

  /**
   * Takes room for a body that may be read now. To look and to take is one step: when the process has room again, all connections that
   * wait are told in the same turn.
   */
  #reserve(length: number): boolean {
    const { budget, referenceCompatible } = this.#parts;
    const isSmall = length <= IngestLimits.controlReserveBytes;
    if (!isSmall && (budget?.pressed || this.#waiting !== undefined)) return false;
    if (!this.#budget.mayRead(length, !referenceCompatible)) return false;
    this.#budget.read(length);
    budget?.add(length);
    return true;
  }

  #dropBytes(length: number): void {
    this.#parts.budget?.release(length);
    this.#budget.drop(length);
  }

  async #admitControl(request: HeldRequest): Promise<Admission> {
    if (!await this.#until(() => this.#budget.mayStartControl())) return "ended";
    this.#budget.startControl();
    this.#start(request, (length) => this.#budget.endControl(length), () => this.#cancel(request));
    return "kept";
  }

  /**
   * Starts a data operation, or refuses it. One that finds the budgets used up waits for its place while the reader looks for
   * a `cancel` behind it; a second one stops the reader.
   */
  async #admitData(request: HeldRequest): Promise<Admission> {
    const mayStart = () => this.#waiting === undefined && this.#budget.mayStartData(request.length);
    if (!mayStart()) {
      if (this.#parts.referenceCompatible) return await this.#refuse(request, capacityError(request, this.#budget));
      if (this.#waiting === undefined) {
        this.#waiting = request;
        return "kept";
      }
      if (!await this.#until(mayStart)) return "ended";
    }
    const refusal = this.#refusalOf(request);
    if (refusal !== undefined) return await this.#refuse(request, refusal);
    this.#startData(request);
    return "kept";
  }

  /** Something was given back: the request that waits may have its place now, and then the reader may go on. */
  #released(): void {
    const request = this.#waiting;
    if (request !== undefined && !this.#stop.signal.aborted && this.#budget.mayStartData(request.length)) {
      this.#waiting = undefined;
      const refusal = this.#refusalOf(request);
      this.#startData(request, refusal === undefined ? undefined : () => this.#send(errorFrame(request.id, refusal)));
    }
    this.#wake();
  }

  #refusalOf(request: HeldRequest): string | undefined {
    return request.op === GENERATE ? this.#claimGeneration(request.body.requestId) : undefined;
  }

  #startData(request: HeldRequest, run: () => Promise<void> = () => this.#run(request)): void {
    this.#budget.startData(request.length);
    this.#start(request, (length) => this.#budget.endData(length), run);
  }

  /** Refusals are written before the reader goes on. */
  async #refuse(request: HeldRequest, error: string): Promise<Admission> {
    await this.#send(errorFrame(request.id, error));
    this.#ids.delete(request.id);
    return "refused";
  }

  /** Claims a generation's request id on this connection and in the process (7.1), or tells why that cannot be. */
  #claimGeneration(requestId: string): string | undefined {
    const most = IngestLimits.generateStreamsPerConnection;
    if (!isRequestId(requestId)) {
      return streamError("INVALID_TRANSPORT_BINDING", "invalid generation request_id");
    }
    if (!this.#generations.has(requestId) && this.#generations.size >= most) {
      return streamError("CAPACITY_EXHAUSTED", `connection already has ${most} active generation streams`);
    }
    if (!this.#parts.claims.claim(requestId)) {
      return streamError("DUPLICATE_REQUEST", `generation request ${quoted(requestId)} is already active`);
    }
    this.#generations.add(requestId);
    return undefined;
  }

  /**
   * Runs an operation in a task of its own and gives back what it held: its place and id after its last write, its bytes in the
   * process-wide count when nothing uses them any more.
   */
  #start(request: HeldRequest, giveBack: (length: number) => void, run: () => Promise<void>): void {
    const task = run().catch((thrown) => {
      this.#break(`operation ${quoted(request.op)} failed: ${errorText(thrown)}`);
    }).finally(() => {
      this.#operations.delete(task);
      this.#ids.delete(request.id);
      giveBack(request.length);
      request.unused.then(() => this.#parts.budget?.release(request.length));
    });
    this.#operations.add(task);
  }

  #run(request: HeldRequest): Promise<void> {
    switch (request.op) {
      case "ping":
        return this.#send(emptyFrame(request.id));
      case "publish_work":
        return this.#publishWork(request);
      case GENERATE:
        return this.#publishGenerateStream(request);
      default:
        return this.#send(errorFrame(request.id, `ValueError: unknown op: ${quoted(request.op)}`));
    }
  }

  async #publishWork(request: HeldRequest): Promise<void> {
    const { id, body } = request;
    const validation = await validateWork(body, new Pace(this.#parts.clock));
    if (!validation.ok) return await this.#send(errorFrame(id, validation.error));
    const call = new WorkCall(this.#parts, body, validation.value);
    request.unused = call.quiet;
    const outcome = await call.run(this.#stop.signal);
    await this.#send(outcome.kind === "results" ? resultsFrame(id, outcome.results) : errorFrame(id, outcome.error));
  }

  async #publishGenerateStream({ id, body }: HeldRequest): Promise<void> {
    const frames = new ChunkFrames(id);
    const send = async (payload: Uint8Array, seq: number, stopped: AbortSignal) => {
      const frame = frames.frame(payload, seq);
      if (frame === undefined) throw new Error(RESPONSE_TOO_LARGE);
      await this.#output.send(frame, stopped);
    };
    try {
      const terminal = await runStreamCall(this.#parts, body, send, this.#stop.signal);
      await this.#send(terminal.kind === "final" ? finalFrame(id, terminal.chunks) : errorFrame(id, terminal.error));
    } finally {
      this.#generations.delete(body.requestId);
      this.#parts.claims.release(body.requestId);
    }
  }

  async #cancel({ id, body: { requestId } }: HeldRequest): Promise<void> {
    if (!isRequestId(requestId)) {
      return await this.#send(errorFrame(id, "InvalidTransportBinding: invalid request_id"));
    }
    const waiting = this.#waiting;
    if (waiting?.op === GENERATE && waiting.body.requestId === requestId) {
      // The backend has not heard of it and must not do so later.
      this.#dropWaiting();
      await this.#refuse(waiting, streamError("TRANSPORT_FAILURE", "generation was cancelled before it began"));
    }
    const failure = this.#generations.has(requestId) ? await this.#parts.generation.cancel(requestId) : undefined;
    await this.#send(failure === undefined ? emptyFrame(id) : errorFrame(id, failure));
  }

  /** Sends an answer, unless the client has gone. */
  async #send(frame: OutgoingFrame): Promise<void> {
    if (this.#stop.signal.aborted && this.#stop.signal.reason !== ("shutdown" satisfies StopReason)) return;
    await this.#output.send(frame);
  }

  /** Waits for a condition on what is held. @returns false when the connection ends first */
  async #until(condition: () => boolean): Promise<boolean> {
    while (!condition() && !this.#stop.signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      if (await this.#input.endsBefore(promise)) return false;
    }
    return !this.#stop.signal.aborted;
  }

  #dropWaiting(): void {
    const request = this.#waiting;
    if (request === undefined) return;
    this.#waiting = undefined;
    this.#dropBytes(request.length);
  }

  async #operationsEnded(): Promise<void> {
    while (this.#operations.size > 0) await Promise.all(this.#operations);
  }

  #abort(reason: StopReason): void {
    if (!this.#stop.signal.aborted) this.#stop.abort(reason);
    this.#wake();
  }

  /** Closes because something went wrong; what follows from the closing is no news. */
  #break(reason: string): void {
    if (!this.#closed) {
      this.#broken = reason;
      logger.info("closing a connection: {reason}", { reason });
    }
    this.#close();
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#abort("gone");
    this.#output.close();
    this.#stream.close();
  }
}
