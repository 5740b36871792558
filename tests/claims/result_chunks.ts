/** Claims on results in chunks: how they are planned, written, read and put together. */
import assert from "node:assert/strict";
import {
  type ChunkVerdict,
  PROCESS_REASSEMBLY_BYTES,
  ReassemblyBudget,
  RequestReceiver,
} from "../../src/gateway/chunk_receiver.ts";
import { publishLarge } from "../../src/publish/publisher.ts";
import { sha256 } from "../../src/runtime/digest.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import {
  readResultChunk,
  type ResultChunk,
  resultChunkLength,
  writeResultChunkHead,
} from "../../src/wire/result_chunk.ts";
import { decodeWorkResult, inboxMessageKind } from "../../src/wire/work_result_reader.ts";
import { encodeNotation } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { RecordingChannel } from "../publish/rig.ts";
import { assertResult, largeResult, type ResultNotation } from "./work_results.ts";

interface ChunkNotation {
  readonly work_item_id: string;
  readonly request_id: string;
  readonly item_index: number;
  readonly transfer_digest: { readonly $bin: string };
  readonly chunk_index: number;
  readonly chunk_count: number;
  readonly total_bytes: number;
  readonly payload: { readonly $bin: string };
}

interface ChunkCase {
  readonly name: string;
  readonly hex?: string;
  readonly decoded?: unknown;
  /** A transfer. */
  readonly transfer?: string;
  readonly result_hex?: string | null;
  /** A plan. */
  readonly result_msgpack_len?: number;
  readonly max_payload?: number;
  readonly accepts_result_chunks?: boolean;
  readonly encoded_len?: number;
  readonly mode?: "single" | "chunked" | "compact" | "error";
  readonly compact_len?: number;
  readonly chunk_count?: number;
  readonly payload_lens?: readonly number[];
  readonly envelope_lens_max?: number;
  readonly transfer_digest?: string;
  /** An envelope at a boundary. */
  readonly payload_len?: number;
  readonly sha256?: string;
  readonly prefix_hex?: string;
}

const resultChunkClaim: VectorClaim = {
  files: ["queue/result_chunk.json"],
  *cases(data) {
    const all = data as ChunkCase[];
    for (const one of all) {
      // Only the first chunk of a transfer repeats the whole result.
      const whole = all.find(({ transfer, result_hex: hex }) => transfer === one.transfer && typeof hex === "string");
      const check = one.transfer !== undefined
        ? () => checkTransferChunk(one, whole?.result_hex ?? "")
        : one.mode !== undefined
        ? () => checkPlan(one)
        : () => checkBoundary(one);
      yield { name: one.name, check } satisfies VectorCase;
    }
  },
};

function wireChunk(chunk: ChunkNotation): ResultChunk {
  return readResultChunk(encodeNotation(chunk));
}

/** One envelope of a transfer, published from the whole result and read back. */
async function checkTransferChunk(one: ChunkCase, resultHex: string): Promise<void> {
  const channel = new RecordingChannel(one.max_payload);
  const result = fromHex(resultHex);
  // In odd pieces, as a result whose payload is borrowed from the answer.
  const pieces = [result.subarray(0, 1000), result.subarray(1000, 1001), result.subarray(1001)];
  const { workItemId, requestId, itemIndex } = decodeWorkResult(result);
  const utf8 = new TextEncoder();
  const outcome = await publishLarge(channel, "_INBOX.x", true, {
    pieces,
    identity: { workItemId: utf8.encode(workItemId), requestId: utf8.encode(requestId), itemIndex },
    compact: () => {
      throw new Error("the result fits in chunks");
    },
  });
  assert.deepEqual(outcome, { published: "chunked" });
  const decoded = one.decoded as ChunkNotation;
  assert.equal(channel.messages.length, decoded.chunk_count);
  assert.deepEqual(channel.log.slice(decoded.chunk_count), ["flush"]);
  assert.equal(toHex(channel.messages[decoded.chunk_index] ?? new Uint8Array()), one.hex);
  assert.equal(inboxMessageKind(fromHex(one.hex ?? "")), "result_chunk_v1");
  assert.deepEqual(readResultChunk(fromHex(one.hex ?? "")), wireChunk(decoded));
}

/** The vectors' default result, with a payload of some length. */
function resultOfLength(payloadLength: number): ResultNotation {
  return {
    work_item_id: "req-1.0",
    request_id: "req-1",
    item_index: 0,
    success: true,
    result_msgpack: { $bin_repeat: [0, payloadLength] },
    error: null,
    error_code: null,
    inference_ms: null,
    queue_ms: null,
    processing_ms: null,
    worker_id: "worker-0",
    tokenization_ms: null,
    postprocessing_ms: null,
    payload_fetch_ms: null,
    worker_direct: false,
  };
}

async function checkPlan(one: ChunkCase): Promise<void> {
  const channel = new RecordingChannel(one.max_payload);
  const result = largeResult(resultOfLength(one.result_msgpack_len ?? 0));
  assert.equal(result.pieces.reduce((sum, piece) => sum + piece.length, 0), one.encoded_len);
  const outcome = await publishLarge(channel, "_INBOX.x", one.accepts_result_chunks ?? false, result);
  const { messages } = channel;
  const [only = new Uint8Array()] = messages;
  if (one.mode === "error") {
    assert.ok("failed" in outcome && outcome.failed === "planning");
    assert.match(String(outcome.error), new RegExp(`of ${one.compact_len} bytes .* ${one.max_payload} bytes`));
    return assert.equal(messages.length, 0);
  }
  assert.deepEqual(outcome, { published: one.mode });
  if (one.mode === "single") assert.equal(only.length, one.encoded_len);
  if (one.mode === "compact") {
    assert.equal(toHex(only), one.hex);
    assertResult(decodeWorkResult(only), one.decoded as ResultNotation);
  }
  if (one.mode === "chunked") checkChunks(one, messages);
  else assert.deepEqual(channel.log, [only]);
}

function checkChunks(one: ChunkCase, messages: readonly Uint8Array[]): void {
  const chunks = messages.map(readResultChunk);
  assert.equal(chunks.length, one.chunk_count);
  const lengths = chunks.map(({ payload }) => payload.length);
  // Long transfers give only the lengths that occur.
  assert.deepEqual(one.payload_lens?.length === one.chunk_count ? lengths : distinct(lengths), one.payload_lens);
  assert.equal(Math.max(...messages.map(({ length }) => length)), one.envelope_lens_max);
  for (const { totalBytes, transferDigest } of chunks) {
    assert.equal(totalBytes, one.encoded_len);
    assert.equal(toHex(transferDigest), one.transfer_digest);
  }
  const receiver = new RequestReceiver("req-1", 1, new ReassemblyBudget(PROCESS_REASSEMBLY_BYTES));
  const verdicts = chunks.map((chunk) => receiver.accept(chunk).kind);
  assert.deepEqual(verdicts, [...chunks.slice(1).map(() => "buffered"), "complete"]);
}

function distinct(numbers: readonly number[]): number[] {
  return [...new Set(numbers)].sort((a, b) => a - b);
}

function checkBoundary(one: ChunkCase): void {
  const utf8 = new TextEncoder();
  const payload = new Uint8Array(one.payload_len ?? 0).fill(7);
  const prefix = fromHex(one.prefix_hex ?? "");
  // The rest of the envelope's fields can be read off the prefix, which ends before the payload does.
  const ids = { workItemId: utf8.encode("req.0"), requestId: utf8.encode("req"), itemIndex: 0 };
  const writer = new MsgpackWriter();
  writeResultChunkHead(writer, ids, new Uint8Array(32).fill(9), 0, 1, payload.length, payload.length);
  writer.raw(payload);
  assert.equal(writer.length, one.encoded_len);
  assert.equal(resultChunkLength(ids, 0, 1, payload.length, payload.length), one.encoded_len);
  const bytes = writer.take();
  assert.equal(toHex(bytes.subarray(0, prefix.length)), one.prefix_hex);
  assert.equal(toHex(sha256(bytes)), one.sha256);
}

interface ReceiverCase {
  readonly name: string;
  readonly steps: readonly { readonly chunk: ChunkNotation; readonly expect: string }[];
}

const chunkReceiverClaim: VectorClaim = {
  files: ["queue/chunk_receiver.json"],
  *cases(data) {
    for (const { name, steps } of data as ReceiverCase[]) {
      yield {
        name,
        check() {
          const process = new ReassemblyBudget(PROCESS_REASSEMBLY_BYTES);
          const receiver = new RequestReceiver("req-1", 1, process);
          for (const { chunk, expect } of steps) assert.equal(verdictText(receiver.accept(wireChunk(chunk))), expect);
          receiver.close();
          assert.equal(process.used, 0);
        },
      } satisfies VectorCase;
    }
  },
};

function verdictText(verdict: ChunkVerdict): string {
  if (verdict.kind === "reject") return `reject:${verdict.reason}`;
  return verdict.kind === "buffered" && verdict.replaced ? "buffered (replaces)" : verdict.kind;
}

/** Both sides of a chunked result. */
export const resultChunkClaims: VectorClaim[] = [resultChunkClaim, chunkReceiverClaim];
