/**
 * What a gateway makes of the messages in its inbox for one request, by the rules of spec/queue.md 3 and 4. Whatever the real one
 * would drop, or fail a request for, is a violation: the sidecar must never send it.
 */
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { type ReassemblyBudget, RequestReceiver } from "../../src/gateway/chunk_receiver.ts";
import { StreamCollector } from "../../src/gateway/stream_collector.ts";
import { readWorkerPublication, type WorkerChunk } from "../../src/gateway/worker_publication.ts";
import { readResultChunk } from "../../src/wire/result_chunk.ts";
import { decodeWorkResult, type WorkResult } from "../../src/wire/work_result_reader.ts";

/** One chunk of a generation, as read and as it came. */
export interface GenerationChunk extends WorkerChunk {
  readonly bytes: Uint8Array;
}

/** Collects one request. */
export class RequestCollector {
  readonly requestId: string;
  readonly totalItems: number;
  /** First result per item index. */
  readonly results = new Map<number, WorkResult>();
  /** Number of result messages per item index, the first included. */
  readonly answers = new Map<number, number>();
  /** Item indexes that were sent to the pool again: a direct result for them no longer counts. */
  readonly republished = new Set<number>();
  readonly generation: GenerationChunk[] = [];
  /** Reasons of semantic NAKs. */
  readonly naks: string[] = [];
  /** Rules that were broken. */
  readonly violations: string[] = [];
  /** Transport chunks received. */
  chunks = 0;
  /** Decides which attempt of a generation counts, and what comes of its refusals. */
  readonly stream = new StreamCollector();
  readonly #receiver: RequestReceiver;
  readonly #republish: () => void;

  /** @param republish sends a generation that a worker refused to the pool */
  constructor(requestId: string, totalItems: number, budget: ReassemblyBudget, republish: () => void = () => {}) {
    this.requestId = requestId;
    this.totalItems = totalItems;
    this.#republish = republish;
    this.#receiver = new RequestReceiver(requestId, totalItems, budget);
  }

  /** Whether every item has its result. */
  get complete(): boolean {
    return this.results.size === this.totalItems;
  }

  /** Whether the generation has ended. */
  get finished(): boolean {
    return this.generation.some(({ done }) => done);
  }

  /** Takes one message of the inbox. */
  take(bytes: Uint8Array): void {
    try {
      const kind = kindOf(bytes);
      if (kind === "result_chunk_v1") this.#takeTransportChunk(bytes);
      else if (kind === "chunk" || kind === "nak") this.#takePublication(bytes);
      else this.#store(decodeWorkResult(bytes));
    } catch (thrown) {
      this.violation(`a message cannot be read: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    }
  }

  /** Gives back what unfinished transfers hold. */
  close(): void {
    this.#receiver.close();
  }

  #takeTransportChunk(bytes: Uint8Array): void {
    this.chunks++;
    const chunk = readResultChunk(bytes);
    const verdict = this.#receiver.accept(chunk);
    if (verdict.kind === "reject") this.violation(`chunk ${chunk.chunkIndex}: ${verdict.reason}`);
    else if (verdict.kind === "complete") this.#store(verdict.result);
    else if (verdict.kind === "duplicate") this.#count(chunk.itemIndex);
  }

  #store(result: WorkResult): void {
    const { itemIndex, requestId, workItemId } = result;
    if (requestId !== this.requestId) {
      return this.violation(`a result of ${requestId} in the inbox of ${this.requestId}`);
    }
    if (itemIndex >= this.totalItems) return this.violation(`item ${itemIndex} of ${this.totalItems}`);
    if (workItemId !== `${requestId}.${itemIndex}`) return this.violation(`work item ${workItemId} at ${itemIndex}`);
    if (result.success !== (result.errorCode === undefined)) return this.violation("success and error_code disagree");
    if (!result.success && result.resultMsgpack.length > 0) return this.violation("an error with a result");
    this.#count(itemIndex);
    if (result.workerDirect && this.republished.has(itemIndex)) return;
    if (this.results.has(itemIndex)) return;
    this.results.set(itemIndex, result);
    this.#receiver.haveResult(itemIndex);
  }

  #takePublication(bytes: Uint8Array): void {
    const publication = readWorkerPublication(bytes);
    if (publication.requestId !== this.requestId) {
      return this.violation(`a publication of ${publication.requestId} in the inbox of ${this.requestId}`);
    }
    if (publication.kind === "nak") {
      this.naks.push(publication.reason);
      const verdict = this.stream.takeNak(publication.attemptId);
      if (verdict === "republish") this.#republish();
      else if (verdict === "late") this.violation("a nak after the last chunk");
      return;
    }
    const { seq } = publication;
    const verdict = this.stream.takeChunk(publication);
    if (verdict === "stale") return;
    // What a gateway puts up with, a sidecar still does not do: it loses, repeats and reorders nothing.
    if (seq !== this.generation.length) this.violation(`chunk ${seq} after ${this.generation.length} chunks`);
    if (verdict === "late") this.violation("a chunk after the last one");
    if (verdict === "delta" || verdict === "terminal") {
      this.generation.push({ ...publication, bytes: bytes.slice() });
    }
  }

  #count(itemIndex: number): void {
    this.answers.set(itemIndex, (this.answers.get(itemIndex) ?? 0) + 1);
  }

  /** Notes that a rule was broken. */
  violation(text: string): void {
    this.violations.push(`${this.requestId}: ${text}`);
  }
}

/** The top-level `kind` of a message; undefined for a WorkResult. The gateway scans the map and takes no other key than text. */
function kindOf(bytes: Uint8Array): string | undefined {
  const reader = new MsgpackReader(bytes);
  if (reader.kind() !== "map") return undefined;
  for (let left = reader.mapHeader(); left > 0; left--) {
    if (reader.text() === "kind") return reader.text();
    reader.skip();
  }
  return undefined;
}
