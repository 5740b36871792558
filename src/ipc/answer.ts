/** From frames to the answer of one call: the checks of spec/ipc.md 1.9 and 6.3 in their order. */
import { errorText } from "../runtime/errors.ts";
import { MsgpackError } from "../wire/msgpack/errors.ts";
import { readResponse, readResponseChunk, readResponseHead, type Response } from "../wire/ipc/envelope.ts";
import type { IpcMethod } from "../wire/ipc/methods.ts";
import { IPC_VERSION } from "../wire/ipc/schema.ts";
import { type ChunkContext, ChunkTransfer, ResponseChunkError } from "./chunk_transfer.ts";
import { IpcError } from "./errors.ts";

/** What {@link AnswerReader.feed} returns when the answer is not complete; the frame's buffer may be reused. */
export const MORE: unique symbol = Symbol("more chunks to come");

/** Reads the answer of one call from the frames that arrive for it. */
export class AnswerReader<Answer> {
  readonly #method: IpcMethod<never, Answer>;
  readonly #requestId: string;
  readonly #context: ChunkContext;
  #transfer: ChunkTransfer | undefined;

  constructor(method: IpcMethod<never, Answer>, requestId: string, context: ChunkContext) {
    this.#method = method;
    this.#requestId = requestId;
    this.#context = context;
  }

  /**
   * Takes the next frame. An ordinary answer keeps views of it; of a chunk nothing is kept.
   *
   * @throws IpcError `decode`, `version_mismatch`, `server`, or `response_chunk`; the call is over then
   */
  feed(frame: Uint8Array): Answer | typeof MORE {
    if (this.#transfer === undefined) {
      const response = this.#tryOrdinary(frame);
      if (response !== undefined) return checkResponse(response, this.#requestId);
    }
    try {
      return this.#feedChunk(frame);
    } catch (thrown) {
      this.#report(thrown);
      throw thrown;
    }
  }

  /** Gives up what an unfinished transfer holds. Must be called when the call ends without an answer. */
  abandon(): void {
    this.#transfer?.release();
    this.#transfer = undefined;
  }

  /** The answer if the frame is an ordinary one; undefined if it is, or may be, something for the slower path. */
  #tryOrdinary(frame: Uint8Array): Response<Answer> | undefined {
    try {
      const response = readResponse(frame, this.#method);
      return response.chunkKind ? undefined : response;
    } catch (thrown) {
      if (!(thrown instanceof MsgpackError)) throw thrown;
      if (readHead(frame).isChunk) return undefined;
      throw decodeError(this.#method, thrown);
    }
  }

  #feedChunk(frame: Uint8Array): Answer | typeof MORE {
    const { limits } = this.#context;
    const head = readHead(frame);
    if (head.isChunk && frame.length > limits.chunkFrameBytes) {
      throw new ResponseChunkError(
        "InvalidBounds",
        `a chunk's frame of ${frame.length} bytes exceeds ${limits.chunkFrameBytes} bytes`,
      );
    }
    checkRequestId(head.requestId, this.#requestId);
    if (!head.isChunk) throw new ResponseChunkError("LegacyDuringTransfer", "an ordinary answer within a chunked one");
    const transfer = this.#transfer ??= new ChunkTransfer(this.#context);
    const joined = transfer.add(readChunk(frame));
    return joined === undefined ? MORE : this.#finish(transfer, joined);
  }

  #finish(transfer: ChunkTransfer, joined: Uint8Array): Answer {
    this.#context.observer?.completed?.(joined.length, transfer.chunks);
    let response: Response<Answer>;
    try {
      response = readResponse(joined, this.#method);
    } catch (thrown) {
      throw decodeError(this.#method, thrown);
    } finally {
      this.abandon();
    }
    if (response.chunkKind) throw new ResponseChunkError("MalformedEnvelope", "a chunk within a chunked answer");
    return checkResponse(response, this.#requestId);
  }

  #report(thrown: unknown): void {
    this.abandon();
    if (!(thrown instanceof ResponseChunkError)) return;
    const outcome = thrown.fault === "GlobalBudgetExceeded" ? "budget_rejected" : "protocol_error";
    this.#context.observer?.rejected?.(outcome, thrown.fault);
  }
}

/**
 * The body of an answer that decoded, or the error that it stands for: version, request id, `ok`, body, in this order (1.9).
 *
 * @throws IpcError
 */
export function checkResponse<Answer>(response: Response<Answer>, requestId: string): Answer {
  if (response.version !== IPC_VERSION) {
    throw new IpcError("version_mismatch", `the answer has version ${response.version}, expected ${IPC_VERSION}`);
  }
  checkRequestId(response.requestId, requestId);
  if (!response.ok) throw new IpcError("server", response.error);
  if (response.body === undefined) throw new IpcError("server", "the answer is ok but has no body");
  return response.body;
}

/** The `decode` error for an answer that does not fit its method. */
export function decodeError(method: IpcMethod<never, unknown>, thrown: unknown): IpcError {
  return new IpcError("decode", `answer of ${method.name}: ${errorText(thrown)}`, { cause: thrown });
}

function checkRequestId(found: string | undefined, expected: string): void {
  if (found === expected) return;
  if (found === undefined || found === "") {
    throw new ResponseChunkError("MissingRequestId", `the answer to ${expected} has no request_id`);
  }
  throw new ResponseChunkError("RequestIdMismatch", `the answer is for ${found.slice(0, 40)}, expected ${expected}`);
}

function readHead(frame: Uint8Array) {
  try {
    return readResponseHead(frame, false);
  } catch (cause) {
    throw new ResponseChunkError("MalformedEnvelope", errorText(cause), { cause });
  }
}

function readChunk(frame: Uint8Array) {
  try {
    return readResponseChunk(frame);
  } catch (cause) {
    throw new ResponseChunkError("MalformedChunk", errorText(cause), { cause });
  }
}
