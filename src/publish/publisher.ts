/**
 * Publication of finished results (spec/queue.md 4): as one message, in chunks with a flush at the end, or as a compact error in
 * place of a result that is too large for both.
 */
import { Sha256 } from "../runtime/digest.ts";
import { SidecarError } from "../runtime/errors.ts";
import { MsgpackWriter } from "../wire/msgpack/writer.ts";
import {
  chunkStart,
  planResult,
  resultChunkLength,
  type TransferIdentity,
  writeResultChunkHead,
} from "../wire/result_chunk.ts";
import type { ResultError } from "../wire/work_result.ts";

/** Where results go: the part of a delivery that publishing needs. */
export interface ResultChannel {
  /** Where the work came from. */
  readonly source: "pool" | "direct" | "local";
  /** Whether the delivery came by a worker-direct subject. */
  readonly workerDirect: boolean;
  /** Largest single message in bytes, read anew at each use: it can change with the connection. */
  readonly maxPayload: number;
  /**
   * Hands a message to the transport, in order. Throws or rejects when it cannot be handed over. The bytes are not changed before
   * the next {@link flush} has resolved, those of a single message never.
   */
  publish(replySubject: string, payload: Uint8Array): void | Promise<void>;
  /** Resolves when the broker has taken everything published so far. */
  flush(): Promise<void>;
}

/** How a result went out, or where it did not. */
export type PublishOutcome =
  | { readonly published: "single" | "chunked" | "compact" }
  | { readonly failed: "planning" | "publish" | "flush"; readonly error: unknown };

/** A message that the connection cannot carry. */
export class MessageTooLargeError extends SidecarError {
  constructor(what: string, length: number, maxPayload: number) {
    super("message_too_large", `${what} of ${length} bytes exceeds the transport limit of ${maxPayload} bytes`);
  }
}

const SINGLE: PublishOutcome = Object.freeze({ published: "single" });
const CHUNKED: PublishOutcome = Object.freeze({ published: "chunked" });
const COMPACT: PublishOutcome = Object.freeze({ published: "compact" });

/**
 * Hands over a result that is known to fit one message. Answers at once when the transport does. The bytes must not be changed
 * afterwards.
 */
export function publishSingle(
  delivery: ResultChannel,
  replySubject: string,
  result: Uint8Array,
): PublishOutcome | Promise<PublishOutcome> {
  return published(delivery, replySubject, result, SINGLE);
}

function published(
  delivery: ResultChannel,
  replySubject: string,
  message: Uint8Array,
  outcome: PublishOutcome,
): PublishOutcome | Promise<PublishOutcome> {
  try {
    const pending = delivery.publish(replySubject, message);
    if (pending === undefined) return outcome;
    return pending.then(() => outcome, (error: unknown) => ({ failed: "publish", error }));
  } catch (error) {
    return { failed: "publish", error };
  }
}

/** A result that may be too large for one message. */
export interface LargeResult {
  /** The serialized result, in pieces that must not change while it is sent. */
  readonly pieces: readonly Uint8Array[];
  readonly identity: TransferIdentity;
  /** The same result as an error without payload. */
  compact(error: ResultError): Uint8Array;
}

/** Sends a result by whichever of the three ways it fits. */
export async function publishLarge(
  delivery: ResultChannel,
  replySubject: string,
  acceptsChunks: boolean,
  result: LargeResult,
): Promise<PublishOutcome> {
  const { pieces, identity } = result;
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const maxPayload = delivery.maxPayload;
  const plan = planResult(length, maxPayload, acceptsChunks, identity);
  switch (plan.mode) {
    case "single":
      return await published(delivery, replySubject, joined(pieces, length), SINGLE);
    case "chunked":
      return await new Transfer(delivery, replySubject, result, length, plan.chunkCount).run();
    case "compact": {
      const compact = result.compact(transportLimitError(length, maxPayload));
      if (compact.length > maxPayload) {
        return { failed: "planning", error: new MessageTooLargeError("the compact error", compact.length, maxPayload) };
      }
      return await published(delivery, replySubject, compact, COMPACT);
    }
  }
}

/** The error that takes the place of a result which cannot be sent (spec/queue.md 3.1). */
export function transportLimitError(length: number, maxPayload: number): ResultError {
  return {
    code: "PAYLOAD_TOO_LARGE",
    message: `Encoded result exceeds the transport limit (${length} > ${maxPayload} bytes); ` +
      "reduce the input length or requested output size.",
  };
}

function joined(pieces: readonly Uint8Array[], length: number): Uint8Array {
  const [only] = pieces;
  if (pieces.length === 1 && only !== undefined) return only;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/**
 * Chunks that may be on their way before the connection is flushed. What is in memory beside the result itself is this many
 * envelopes, which are used again after each flush.
 */
const CHUNKS_IN_FLIGHT = 4;

/** One transfer in chunks: in index order, with a flush at least at the end; the first failure ends it. */
class Transfer {
  readonly #delivery: ResultChannel;
  readonly #replySubject: string;
  readonly #result: LargeResult;
  readonly #length: number;
  readonly #count: number;
  readonly #envelopes: MsgpackWriter[] = [];

  constructor(delivery: ResultChannel, replySubject: string, result: LargeResult, length: number, count: number) {
    this.#delivery = delivery;
    this.#replySubject = replySubject;
    this.#result = result;
    this.#length = length;
    this.#count = count;
  }

  async run(): Promise<PublishOutcome> {
    const hash = new Sha256();
    for (const piece of this.#result.pieces) hash.update(piece);
    const digest = hash.digest();
    for (let first = 0; first < this.#count; first += CHUNKS_IN_FLIGHT) {
      // Chunks and flush follow each other without a wait wherever the transport allows it, so that a connection lost in
      // between cannot go unseen: the flush fails.
      for (let index = first; index < Math.min(first + CHUNKS_IN_FLIGHT, this.#count); index++) {
        const failure = this.#publish(index, digest);
        if (failure !== undefined) {
          const found = await failure;
          if (found !== undefined) return found;
        }
      }
      try {
        await this.#delivery.flush();
      } catch (error) {
        return { failed: "flush", error };
      }
    }
    return CHUNKED;
  }

  /** Publishes one chunk; answers with what went wrong. */
  #publish(index: number, digest: Uint8Array): PublishOutcome | undefined | Promise<PublishOutcome | undefined> {
    const start = chunkStart(this.#length, index, this.#count);
    const end = chunkStart(this.#length, index + 1, this.#count);
    const envelopeLength = resultChunkLength(this.#result.identity, index, this.#count, this.#length, end - start);
    // The limit may have changed with the connection since the transfer was planned.
    const maxPayload = this.#delivery.maxPayload;
    if (envelopeLength > maxPayload) {
      return { failed: "publish", error: new MessageTooLargeError("a result chunk", envelopeLength, maxPayload) };
    }
    const writer = this.#envelopes[index % CHUNKS_IN_FLIGHT] ??= new MsgpackWriter(envelopeLength + 8);
    writer.clear();
    writeResultChunkHead(writer, this.#result.identity, digest, index, this.#count, this.#length, end - start);
    copyRange(writer, this.#result.pieces, start, end);
    const outcome = published(this.#delivery, this.#replySubject, writer.view(), CHUNKED);
    if (outcome instanceof Promise) return outcome.then((found) => found === CHUNKED ? undefined : found);
    return outcome === CHUNKED ? undefined : outcome;
  }
}

/** Writes bytes `[start, end)` of what the pieces make together. */
function copyRange(writer: MsgpackWriter, pieces: readonly Uint8Array[], start: number, end: number): void {
  let at = 0;
  for (const piece of pieces) {
    const from = Math.max(start - at, 0), to = Math.min(end - at, piece.length);
    if (from < to) writer.raw(piece, from, to - from);
    at += piece.length;
    if (at >= end) return;
  }
}
