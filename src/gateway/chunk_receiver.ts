/**
 * The receiving side of chunked results (spec/queue.md 4). The sidecar never receives chunks; gateways do, and by this
 * the sender's promises are checked.
 */
import { sha256 } from "../runtime/digest.ts";
import { sameBytes } from "../wire/msgpack/keys.ts";
import { DIGEST_BYTES, MAX_CHUNKS, MAX_TRANSFER_BYTES, type ResultChunk } from "../wire/result_chunk.ts";
import { decodeWorkResult, type WorkResult } from "../wire/work_result_reader.ts";

/** Why a chunk fails its whole request. */
export type ChunkRejection =
  | "identity"
  | "digest"
  | "chunk_count"
  | "chunk_index"
  | "item_size"
  | "payload_size"
  | "metadata_conflict"
  | "duplicate_conflict"
  | "reservation"
  | "digest_mismatch"
  | "result_decode"
  | "result_identity";

/** What became of a chunk. */
export type ChunkVerdict =
  | { readonly kind: "buffered"; readonly replaced: boolean }
  | { readonly kind: "complete"; readonly result: WorkResult; readonly bytes: Uint8Array }
  | { readonly kind: "duplicate" }
  | { readonly kind: "stale_retry" }
  | { readonly kind: "reject"; readonly reason: ChunkRejection };

/** Bytes that transfers of one scope may reserve together. */
export class ReassemblyBudget {
  readonly #limit: number;
  #used = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Reserves bytes; false when they would pass the limit. */
  reserve(bytes: number): boolean {
    if (this.#used + bytes > this.#limit) return false;
    this.#used += bytes;
    return true;
  }

  /** Gives bytes back. */
  release(bytes: number): void {
    this.#used -= bytes;
  }

  /** Bytes reserved now. */
  get used(): number {
    return this.#used;
  }
}

/** Limit of the transfers of one request together, in bytes. */
export const REQUEST_REASSEMBLY_BYTES = 64 * 1024 * 1024;
/** Limit of all transfers of a process, in bytes. */
export const PROCESS_REASSEMBLY_BYTES = 256 * 1024 * 1024;

/** What a transfer of `total` bytes reserves: its fragments, the whole, and the decoded result. */
function reservation(total: number): number {
  return 3 * total + 4096;
}

/** Replaced transfers that are remembered, so that what is left of them on the way is not taken for something new. */
const REMEMBERED_TRANSFERS = 8;

interface TransferKey {
  readonly digest: Uint8Array;
  readonly count: number;
}

interface Transfer extends TransferKey {
  readonly total: number;
  readonly fragments: (Uint8Array | undefined)[];
  received: number;
  bytes: number;
}

const DUPLICATE: ChunkVerdict = { kind: "duplicate" };
const STALE: ChunkVerdict = { kind: "stale_retry" };

function reject(reason: ChunkRejection): ChunkVerdict {
  return { kind: "reject", reason };
}

/** Puts the chunked results of one request together. A rejection fails the whole request: its owner then calls {@link close}. */
export class RequestReceiver {
  readonly #requestId: string;
  readonly #totalItems: number;
  readonly #budgets: readonly ReassemblyBudget[];
  readonly #items = new Map<number, ItemReceiver>();

  /** @param process the budget that all requests of the process share */
  constructor(requestId: string, totalItems: number, process: ReassemblyBudget) {
    this.#requestId = requestId;
    this.#totalItems = totalItems;
    this.#budgets = [new ReassemblyBudget(REQUEST_REASSEMBLY_BYTES), process];
  }

  /** Takes one chunk. Its payload is copied. */
  accept(chunk: ResultChunk): ChunkVerdict {
    const reason = this.#formFault(chunk);
    return reason === undefined ? this.#item(chunk.itemIndex).accept(chunk) : reject(reason);
  }

  /** Tells that an item has its result by a plain message: chunks of it count as duplicates from now on. */
  haveResult(itemIndex: number): void {
    this.#item(itemIndex).close();
  }

  /** Gives back everything that is reserved. */
  close(): void {
    for (const item of this.#items.values()) item.close();
  }

  #item(itemIndex: number): ItemReceiver {
    let item = this.#items.get(itemIndex);
    if (item === undefined) {
      item = new ItemReceiver(this.#requestId, itemIndex, this.#budgets);
      this.#items.set(itemIndex, item);
    }
    return item;
  }

  #formFault(chunk: ResultChunk): ChunkRejection | undefined {
    const isOurs = chunk.requestId !== "" && chunk.requestId === this.#requestId &&
      chunk.itemIndex < this.#totalItems && chunk.workItemId === `${chunk.requestId}.${chunk.itemIndex}`;
    if (!isOurs) return "identity";
    if (chunk.transferDigest.length !== DIGEST_BYTES) return "digest";
    if (chunk.chunkCount < 1 || chunk.chunkCount > MAX_CHUNKS) return "chunk_count";
    if (chunk.chunkIndex >= chunk.chunkCount) return "chunk_index";
    if (chunk.totalBytes < 1 || chunk.totalBytes > MAX_TRANSFER_BYTES) return "item_size";
    return chunk.payload.length > chunk.totalBytes ? "payload_size" : undefined;
  }
}

/** The transfers of one item, of which at most one is in progress. */
class ItemReceiver {
  readonly #requestId: string;
  readonly #itemIndex: number;
  readonly #budgets: readonly ReassemblyBudget[];
  readonly #retired: TransferKey[] = [];
  #transfer: Transfer | undefined;
  #complete = false;

  constructor(requestId: string, itemIndex: number, budgets: readonly ReassemblyBudget[]) {
    this.#requestId = requestId;
    this.#itemIndex = itemIndex;
    this.#budgets = budgets;
  }

  accept(chunk: ResultChunk): ChunkVerdict {
    if (this.#complete) return DUPLICATE;
    const current = this.#transfer;
    if (current === undefined) {
      return this.#wasRetired(chunk.transferDigest, chunk.chunkCount) ? STALE : this.#add(chunk, false);
    }
    if (!same(current.digest, chunk.transferDigest)) {
      if (chunk.chunkIndex !== 0 || this.#wasRetired(chunk.transferDigest)) return STALE;
    } else if (current.total !== chunk.totalBytes) {
      return this.#rejected("metadata_conflict");
    } else if (current.count !== chunk.chunkCount) {
      if (this.#wasRetired(chunk.transferDigest, chunk.chunkCount)) return STALE;
      if (chunk.chunkIndex !== 0) return this.#rejected("metadata_conflict");
    } else {
      return this.#add(chunk, false);
    }
    this.#retire(current);
    return this.#add(chunk, true);
  }

  close(): void {
    this.#drop();
    this.#complete = true;
  }

  #add(chunk: ResultChunk, replaced: boolean): ChunkVerdict {
    const transfer = this.#transfer ?? this.#begin(chunk);
    if (transfer === undefined) return this.#rejected("reservation");
    const known = transfer.fragments[chunk.chunkIndex];
    if (known !== undefined) return same(known, chunk.payload) ? DUPLICATE : this.#rejected("duplicate_conflict");
    if (transfer.bytes + chunk.payload.length > transfer.total) return this.#rejected("payload_size");
    transfer.fragments[chunk.chunkIndex] = chunk.payload.slice();
    transfer.received++;
    transfer.bytes += chunk.payload.length;
    return transfer.received === transfer.count ? this.#finish(transfer) : { kind: "buffered", replaced };
  }

  #begin(chunk: ResultChunk): Transfer | undefined {
    const needed = reservation(chunk.totalBytes);
    for (const [i, budget] of this.#budgets.entries()) {
      if (budget.reserve(needed)) continue;
      for (const granted of this.#budgets.slice(0, i)) granted.release(needed);
      return undefined;
    }
    this.#transfer = {
      digest: chunk.transferDigest.slice(),
      count: chunk.chunkCount,
      total: chunk.totalBytes,
      fragments: new Array(chunk.chunkCount).fill(undefined),
      received: 0,
      bytes: 0,
    };
    return this.#transfer;
  }

  #finish(transfer: Transfer): ChunkVerdict {
    const whole = new Uint8Array(transfer.bytes);
    let at = 0;
    for (const fragment of transfer.fragments) {
      if (fragment === undefined) continue;
      whole.set(fragment, at);
      at += fragment.length;
    }
    if (at !== transfer.total || !same(sha256(whole), transfer.digest)) return this.#rejected("digest_mismatch");
    let result: WorkResult;
    try {
      result = decodeWorkResult(whole);
    } catch {
      return this.#rejected("result_decode");
    }
    const isOurs = result.requestId === this.#requestId && result.itemIndex === this.#itemIndex &&
      result.workItemId === `${this.#requestId}.${this.#itemIndex}`;
    if (!isOurs) return this.#rejected("result_identity");
    this.close();
    return { kind: "complete", result, bytes: whole };
  }

  #rejected(reason: ChunkRejection): ChunkVerdict {
    this.#drop();
    return reject(reason);
  }

  #retire(transfer: Transfer): void {
    this.#retired.push({ digest: transfer.digest, count: transfer.count });
    if (this.#retired.length > REMEMBERED_TRANSFERS) this.#retired.shift();
    this.#drop();
  }

  #wasRetired(digest: Uint8Array, count?: number): boolean {
    return this.#retired.some((old) => same(old.digest, digest) && (count === undefined || old.count === count));
  }

  #drop(): void {
    if (this.#transfer === undefined) return;
    const reserved = reservation(this.#transfer.total);
    this.#transfer = undefined;
    for (const budget of this.#budgets) budget.release(reserved);
  }
}

function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && sameBytes(a, 0, b, 0, a.length);
}
