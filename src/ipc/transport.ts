/** How calls reach one backend process: over a pool of connections, or multiplexed over one. */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { BACKEND_FRAMES, beginFrame, endFrame } from "../wire/frames.ts";
import { writeRequest } from "../wire/ipc/envelope.ts";
import type { IpcMethod } from "../wire/ipc/methods.ts";
import type { MsgpackWriter } from "../wire/msgpack/writer.ts";
import type { ChunkContext } from "./chunk_transfer.ts";
import type { Connect } from "./connection.ts";
import { IpcError } from "./errors.ts";

/** Told about calls, for logs and metrics. Must not throw. */
export interface CallObserver {
  /** A call came to its end, retry included. `kind` is undefined for a success. */
  finished?(method: string, elapsedMs: number, kind: IpcError["kind"] | undefined): void;
  /** A call that completed took {@link SLOW_CALL_MS} or more. */
  slow?(method: string, elapsedMs: number): void;
  /** A frame for nobody was dropped: late, or after a chunk error (mux only). */
  dropped?(requestId: string): void;
}

/** From here on a completed call is slow (1.8). */
export const SLOW_CALL_MS = 2000;

/** What a transport is made of. */
export interface TransportOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly connect: Connect;
  readonly chunks: ChunkContext;
  readonly observer: CallObserver | undefined;
}

/** A way to call one backend process. */
export interface Transport {
  /**
   * Calls a method. `limitMs` bounds one try; transport errors of spec/ipc.md 1.9 are tried once more with the same request id
   * and a full limit.
   *
   * @throws IpcError (rejection)
   */
  call<Request, Answer>(method: IpcMethod<Request, Answer>, request: Request, limitMs: number): Promise<Answer>;
  /** Lets so many calls run at once, at least; never fewer than before. */
  grow(calls: number): void;
  /** Closes all connections. What is running or waiting fails, as does what comes. */
  close(): void;
}

/** Numbers the requests of one client: `w-1`, `w-2`, … (1.10). */
export class RequestIds {
  #last = 0;

  next(): string {
    return `w-${++this.#last}`;
  }
}

/**
 * Encodes a request as one frame: header and body in one buffer.
 *
 * @returns a view of the writer's buffer
 * @throws IpcError `encode`, or `frame_too_large` (nothing was sent)
 */
export function encodeRequest<Request>(
  writer: MsgpackWriter,
  method: IpcMethod<Request, unknown>,
  requestId: string,
  request: Request,
): Uint8Array {
  beginFrame(writer);
  try {
    writeRequest(writer, method, requestId, request);
  } catch (cause) {
    throw new IpcError("encode", `request of ${method.name}: ${errorText(cause)}`, { cause });
  }
  try {
    return endFrame(writer, BACKEND_FRAMES);
  } catch (cause) {
    throw new IpcError("frame_too_large", `request of ${method.name}: ${errorText(cause)}`, { cause });
  }
}

/** The error of a call that did not end in time. */
export function timeoutError(method: string, limitMs: number): IpcError {
  return new IpcError("timeout", `${method}: no answer within ${limitMs} ms`);
}

/** The error of calls on a closed client. */
export function closedError(method: string): IpcError {
  return new IpcError("io", `${method}: the client is closed`, { io: "closed" });
}

/** Runs a call with its one retry (1.9) and tells the observer how it ended. */
export async function withRetry<Answer>(
  options: TransportOptions,
  method: string,
  attempt: (isRetry: boolean) => Promise<Answer>,
): Promise<Answer> {
  const start = options.clock.now();
  let kind: IpcError["kind"] | undefined;
  try {
    try {
      return await attempt(false);
    } catch (thrown) {
      if (!(thrown instanceof IpcError) || !thrown.retryable) throw thrown;
    }
    return await attempt(true);
  } catch (thrown) {
    kind = thrown instanceof IpcError ? thrown.kind : undefined;
    throw thrown;
  } finally {
    const elapsed = options.clock.now() - start;
    options.observer?.finished?.(method, elapsed, kind);
    if (kind === undefined && elapsed >= SLOW_CALL_MS) options.observer?.slow?.(method, elapsed);
  }
}

/** A request larger than this does not leave its buffer behind. */
export const KEPT_WRITER_BYTES = 1_048_576;
