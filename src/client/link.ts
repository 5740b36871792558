/** One connection to the local socket, seen from a client: requests out, answers in. */
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { beginFrame, endFrame, FrameError, FrameReader, LOCAL_FRAMES, writeAll } from "../wire/frames.ts";
import { type IngestBody, type OperationId, writeCancelRequest, writeRequest } from "../wire/ingest/request.ts";
import { decodeResponse, type IngestResponse } from "../wire/ingest/response.ts";
import { MsgpackError } from "../wire/msgpack/errors.ts";
import { MsgpackWriter } from "../wire/msgpack/writer.ts";
import { LocalIngestError } from "./errors.ts";

/** Longest wait for the connection, in milliseconds. */
const CONNECT_TIMEOUT_MS = 5000;

/** A connection. */
export class Link {
  readonly #connection: Deno.Conn;
  readonly #reader: FrameReader;
  readonly #clock: Clock;
  #writes: Promise<void> = Promise.resolve();
  #closed = false;
  /** Time at which the wait for an answer ends; none is waited for when infinite. */
  #deadline = Infinity;
  #expired = false;
  #cancelTimer: CancelTimer | undefined;

  private constructor(connection: Deno.Conn, clock: Clock) {
    this.#connection = connection;
    this.#reader = new FrameReader(connection, LOCAL_FRAMES);
    this.#clock = clock;
  }

  /**
   * Connects.
   *
   * @throws LocalIngestError `connect`
   */
  static async open(path: string, clock: Clock): Promise<Link> {
    const connecting = Deno.connect({ transport: "unix", path });
    let cancel: CancelTimer = () => {};
    const late = new Promise<undefined>((resolve) => {
      cancel = clock.after(CONNECT_TIMEOUT_MS, () => resolve(undefined));
    });
    try {
      const connection = await Promise.race([connecting, late]);
      if (connection !== undefined) return new Link(connection, clock);
      connecting.then((unused) => unused.close(), () => {});
    } catch (cause) {
      throw new LocalIngestError("connect", `cannot connect to ${path}: ${errorText(cause)}`, { cause });
    } finally {
      cancel();
    }
    throw new LocalIngestError("connect", `no connection to ${path} within ${CONNECT_TIMEOUT_MS} ms`);
  }

  /** True once {@link close} was called or the connection was lost. */
  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Sends a request. Trace fields are dropped first when the frame would be too large.
   *
   * @throws LocalIngestError `too_large` or `closed`
   */
  request(id: OperationId, op: string, body?: IngestBody): Promise<void> {
    try {
      return this.#send((writer) => writeRequest(writer, id, op, body));
    } catch (thrown) {
      const isTraced = body !== undefined && (body.traceparent ?? body.tracestate) !== undefined;
      if (!isTraced) throw thrown;
      const plain = { ...body, traceparent: undefined, tracestate: undefined };
      return this.#send((writer) => writeRequest(writer, id, op, plain));
    }
  }

  /** Sends a `cancel`. */
  cancel(id: OperationId, requestId: string): Promise<void> {
    return this.#send((writer) => writeCancelRequest(writer, id, requestId));
  }

  /**
   * Reads the next answer.
   *
   * @param limitMs longest wait in milliseconds; none when undefined
   * @throws LocalIngestError `timeout`, `protocol` or `closed`; the connection is closed then
   */
  async response(limitMs: number | undefined): Promise<IngestResponse> {
    this.#deadline = limitMs === undefined ? Infinity : this.#clock.now() + limitMs;
    this.#watch();
    try {
      const frame = await this.#reader.readFrame();
      if (frame === undefined) throw new LocalIngestError("closed", "the sidecar closed the connection");
      return decodeResponse(frame);
    } catch (thrown) {
      this.close();
      if (this.#expired) throw new LocalIngestError("timeout", `no answer within ${limitMs} ms`, { cause: thrown });
      throw asLocalIngestError(thrown);
    } finally {
      this.#deadline = Infinity;
    }
  }

  /** Closes the connection; the sidecar cancels what runs on it. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelTimer?.();
    this.#connection.close();
  }

  /** One timer serves all waits of the connection: a stream of small answers is not to set and cancel one for each. */
  #watch(): void {
    if (this.#cancelTimer !== undefined || this.#deadline === Infinity) return;
    this.#cancelTimer = this.#clock.after(this.#deadline - this.#clock.now(), () => {
      this.#cancelTimer = undefined;
      if (this.#deadline > this.#clock.now()) return this.#watch();
      this.#expired = true;
      this.close();
    });
  }

  /** Writes are queued, so that frames stay whole whoever sends them. */
  #send(write: (writer: MsgpackWriter) => void): Promise<void> {
    const writer = new MsgpackWriter();
    beginFrame(writer);
    write(writer);
    const frame = this.#framed(writer);
    const written = this.#writes.then(() => writeAll(this.#connection, frame));
    this.#writes = written.catch(() => {});
    return written.catch((thrown) => {
      this.close();
      throw asLocalIngestError(thrown);
    });
  }

  #framed(writer: MsgpackWriter): Uint8Array {
    try {
      return endFrame(writer, LOCAL_FRAMES);
    } catch (thrown) {
      if (!(thrown instanceof FrameError)) throw thrown;
      throw new LocalIngestError("too_large", thrown.message, { cause: thrown });
    }
  }
}

/** What a socket or a decoder threw, as an error of ours. */
function asLocalIngestError(cause: unknown): LocalIngestError {
  if (cause instanceof LocalIngestError) return cause;
  if (cause instanceof FrameError && cause.fault !== "too_large") {
    return new LocalIngestError("closed", "the connection ended inside an answer", { cause });
  }
  return cause instanceof FrameError || cause instanceof MsgpackError
    ? new LocalIngestError("protocol", `an answer cannot be read: ${errorText(cause)}`, { cause })
    : new LocalIngestError("closed", `the connection was lost: ${errorText(cause)}`, { cause });
}
