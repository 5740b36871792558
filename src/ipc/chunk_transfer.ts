/**
 * Large answers (spec/ipc.md 6): chunks are checked in the specified order, hashed in the order of arrival while they are copied
 * once into the buffer that is decoded afterwards. Nothing is decoded before the digest has been verified.
 */
import type { ByteBudget } from "../runtime/byte_budget.ts";
import { Sha256 } from "../runtime/digest.ts";
import type { ResponseChunk } from "../wire/ipc/envelope.ts";
import { IPC_VERSION } from "../wire/ipc/schema.ts";
import { IpcError } from "./errors.ts";

/** Why a transfer failed, in the words of spec/ipc.md 6.3. */
export type ChunkFault =
  | "MalformedEnvelope"
  | "InvalidBounds"
  | "MissingRequestId"
  | "RequestIdMismatch"
  | "LegacyDuringTransfer"
  | "MalformedChunk"
  | "VersionMismatch"
  | "MissingFirstChunk"
  | "GlobalBudgetExceeded"
  | "AllocationFailed"
  | "LayoutMismatch"
  | "OutOfOrder"
  | "InvalidDigest";

/** A `response_chunk` error. Never retried. */
export class ResponseChunkError extends IpcError {
  readonly fault: ChunkFault;

  constructor(fault: ChunkFault, message: string, options?: ErrorOptions) {
    super("response_chunk", `${fault}: ${message}`, options);
    this.fault = fault;
  }
}

/** Bounds of a transfer in bytes (6.2). Tests relax the first one. */
export interface ChunkLimits {
  /** Answers up to this size come in one frame; a chunked one is larger. */
  readonly frameBytes: number;
  readonly totalBytes: number;
  readonly chunks: number;
  readonly payloadBytes: number;
  /** Largest body of a frame that holds a chunk. */
  readonly chunkFrameBytes: number;
}

/** The limits of the protocol. */
export const CHUNK_LIMITS: ChunkLimits = {
  frameBytes: 33_554_432,
  totalBytes: 134_217_728,
  chunks: 64,
  payloadBytes: 4_194_304,
  chunkFrameBytes: 4_198_400,
};

/** Budget of all transfers of the process together (6.4). */
export const CHUNK_BUDGET_BYTES = 268_439_552;

/** What a transfer reserves besides twice its size. */
const RESERVE_OVERHEAD_BYTES = 4096;

/** What a transfer of `totalBytes` reserves: the joined bytes, what decoding makes of them, and some overhead. */
export function reservationFor(totalBytes: number): number {
  return 2 * totalBytes + RESERVE_OVERHEAD_BYTES;
}

/** Told how each transfer ended (6.5); one that is abandoned ends untold. */
export interface ChunkObserver {
  completed?(totalBytes: number, chunks: number): void;
  rejected?(outcome: "budget_rejected" | "protocol_error", fault: ChunkFault): void;
  /** The budget in use changed. */
  reserved?(bytes: number): void;
}

/** What all transfers of the process share. */
export interface ChunkContext {
  readonly limits: ChunkLimits;
  readonly budget: ByteBudget;
  readonly observer: ChunkObserver | undefined;
}

/** Reassembles one answer. Whoever makes one calls {@link release} when the joined bytes have been decoded, or on any error. */
export class ChunkTransfer {
  readonly #context: ChunkContext;
  #first: Pick<ResponseChunk, "chunkCount" | "totalBytes" | "transferDigest"> | undefined;
  #joined: Uint8Array = new Uint8Array(0);
  #received = 0;
  #next = 0;
  #reserved = 0;
  #hash = new Sha256();

  constructor(context: ChunkContext) {
    this.#context = context;
  }

  /**
   * Takes the next chunk; its payload is copied. Checks 6 to 13 of spec/ipc.md 6.3, in that order.
   *
   * @returns the joined and verified bytes after the last chunk, undefined before
   * @throws ResponseChunkError
   */
  add(chunk: ResponseChunk): Uint8Array | undefined {
    if (chunk.version !== IPC_VERSION) {
      throw new ResponseChunkError("VersionMismatch", `version ${chunk.version}, expected ${IPC_VERSION}`);
    }
    this.#checkBounds(chunk);
    const first = this.#first ?? this.#begin(chunk);
    checkLayout(first, chunk);
    if (chunk.chunkIndex !== this.#next) {
      throw new ResponseChunkError("OutOfOrder", `chunk ${chunk.chunkIndex}, expected ${this.#next}`);
    }
    const received = this.#received + chunk.payload.length;
    const last = chunk.chunkIndex === first.chunkCount - 1;
    if (last ? received !== first.totalBytes : received >= first.totalBytes) {
      throw new ResponseChunkError(
        "InvalidBounds",
        `${received} of ${first.totalBytes} bytes after chunk ${chunk.chunkIndex + 1} of ${first.chunkCount}`,
      );
    }
    this.#hash.update(chunk.payload);
    this.#joined.set(chunk.payload, this.#received);
    this.#received = received;
    this.#next++;
    if (!last) return undefined;
    if (!equalBytes(this.#hash.digest(), first.transferDigest)) {
      throw new ResponseChunkError("InvalidDigest", `the ${received} bytes do not have the announced digest`);
    }
    return this.#joined;
  }

  /** Whether a first chunk has been taken. */
  get begun(): boolean {
    return this.#first !== undefined;
  }

  /** Number of chunks taken. */
  get chunks(): number {
    return this.#next;
  }

  /** Gives the reservation back and lets go of the bytes. A second call does nothing. */
  release(): void {
    this.#joined = new Uint8Array(0);
    if (this.#reserved === 0) return;
    this.#context.budget.release(this.#reserved);
    this.#reserved = 0;
    this.#context.observer?.reserved?.(this.#context.budget.used);
  }

  #checkBounds(chunk: ResponseChunk): void {
    const { limits } = this.#context;
    const refuse = (what: string) => new ResponseChunkError("InvalidBounds", what);
    if (chunk.transferDigest.length !== 32) {
      throw refuse(`transfer_digest of ${chunk.transferDigest.length} bytes, not 32`);
    }
    if (chunk.totalBytes <= limits.frameBytes || chunk.totalBytes > limits.totalBytes) {
      throw refuse(`total_bytes ${chunk.totalBytes} is outside ${limits.frameBytes + 1}..=${limits.totalBytes}`);
    }
    if (chunk.chunkCount < 1 || chunk.chunkCount > limits.chunks || chunk.chunkCount > chunk.totalBytes) {
      throw refuse(`chunk_count ${chunk.chunkCount} is outside 1..=${limits.chunks}`);
    }
    if (chunk.chunkIndex >= chunk.chunkCount) throw refuse(`chunk_index ${chunk.chunkIndex} of ${chunk.chunkCount}`);
    const size = chunk.payload.length;
    if (size < 1 || size > limits.payloadBytes || size > chunk.totalBytes) {
      throw refuse(`payload of ${size} bytes is outside 1..=${Math.min(limits.payloadBytes, chunk.totalBytes)}`);
    }
  }

  #begin(chunk: ResponseChunk): ResponseChunk {
    if (chunk.chunkIndex !== 0) {
      throw new ResponseChunkError("MissingFirstChunk", `the transfer begins with chunk ${chunk.chunkIndex}`);
    }
    const { budget, observer } = this.#context;
    const wanted = reservationFor(chunk.totalBytes);
    if (!budget.tryReserve(wanted)) {
      throw new ResponseChunkError(
        "GlobalBudgetExceeded",
        `${wanted} bytes wanted, ${budget.used} of ${budget.limit} are in use`,
      );
    }
    this.#reserved = wanted;
    try {
      this.#joined = new Uint8Array(chunk.totalBytes);
    } catch (cause) {
      throw new ResponseChunkError("AllocationFailed", `no memory for ${chunk.totalBytes} bytes`, { cause });
    }
    observer?.reserved?.(budget.used);
    const { chunkCount, totalBytes } = chunk;
    // The chunk's own digest is a view of a frame that will be reused.
    this.#first = { chunkCount, totalBytes, transferDigest: chunk.transferDigest.slice() };
    return chunk;
  }
}

function checkLayout(
  first: Pick<ResponseChunk, "chunkCount" | "totalBytes" | "transferDigest">,
  chunk: ResponseChunk,
): void {
  const differs = chunk.chunkCount !== first.chunkCount
    ? `chunk_count ${chunk.chunkCount}, first ${first.chunkCount}`
    : chunk.totalBytes !== first.totalBytes
    ? `total_bytes ${chunk.totalBytes}, first ${first.totalBytes}`
    : equalBytes(chunk.transferDigest, first.transferDigest)
    ? undefined
    : "transfer_digest differs from the first";
  if (differs !== undefined) throw new ResponseChunkError("LayoutMismatch", `chunk ${chunk.chunkIndex}: ${differs}`);
}

function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
