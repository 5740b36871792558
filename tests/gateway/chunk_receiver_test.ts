/** The receiver of chunks, on what the vectors leave out: retries with another count, memory of replaced transfers, budgets. */
import assert from "node:assert/strict";
import {
  type ChunkVerdict,
  PROCESS_REASSEMBLY_BYTES,
  ReassemblyBudget,
  REQUEST_REASSEMBLY_BYTES,
  RequestReceiver,
} from "../../src/gateway/chunk_receiver.ts";
import { sha256 } from "../../src/runtime/digest.ts";
import { chunkStart, MAX_TRANSFER_BYTES, type ResultChunk } from "../../src/wire/result_chunk.ts";
import { encodeNotation } from "../harness/notation.ts";

/** The chunks of a whole, made for an item of request `req`. */
function chunksOf(whole: Uint8Array, count: number, itemIndex = 0): ResultChunk[] {
  return Array.from({ length: count }, (_, chunkIndex) => ({
    workItemId: `req.${itemIndex}`,
    requestId: "req",
    itemIndex,
    transferDigest: sha256(whole),
    chunkIndex,
    chunkCount: count,
    totalBytes: whole.length,
    payload: whole.slice(chunkStart(whole.length, chunkIndex, count), chunkStart(whole.length, chunkIndex + 1, count)),
  }));
}

/** A serialized result that differs by `mark`. */
function result(mark: string, itemIndex = 0): Uint8Array {
  return encodeNotation({
    work_item_id: `req.${itemIndex}`,
    request_id: "req",
    item_index: itemIndex,
    success: true,
    worker_id: mark,
  });
}

class Receiver {
  readonly process = new ReassemblyBudget(PROCESS_REASSEMBLY_BYTES);
  readonly receiver: RequestReceiver;

  constructor(totalItems = 1) {
    this.receiver = new RequestReceiver("req", totalItems, this.process);
  }

  /** Verdicts in short: the reason of a rejection, `replaced` for a buffered chunk that began anew. */
  accept(...chunks: readonly (ResultChunk | undefined)[]): string[] {
    return chunks.map((chunk) => {
      assert.ok(chunk !== undefined);
      return short(this.receiver.accept(chunk));
    });
  }
}

function short(verdict: ChunkVerdict): string {
  if (verdict.kind === "reject") return verdict.reason;
  return verdict.kind === "buffered" && verdict.replaced ? "replaced" : verdict.kind;
}

Deno.test("a retry with another count begins anew at index 0; what is left of the old one is stale", () => {
  const three = chunksOf(result("a"), 3), four = chunksOf(result("a"), 4);
  const receiver = new Receiver();
  assert.deepEqual(receiver.accept(three[0], three[1]), ["buffered", "buffered"]);
  assert.deepEqual(receiver.accept(four[0]), ["replaced"]);
  assert.deepEqual(receiver.accept(three[2]), ["stale_retry"]);
  assert.deepEqual(receiver.accept(four[1], four[2], four[3]), ["buffered", "buffered", "complete"]);
  assert.deepEqual(receiver.accept(four[3], three[0]), ["duplicate", "duplicate"]);
  assert.equal(receiver.process.used, 0);
  const other = new Receiver();
  assert.deepEqual(other.accept(three[0], four[1]), ["buffered", "metadata_conflict"]);
});

Deno.test("eight replaced transfers are remembered, the ninth pushes the first out", () => {
  const transfers = Array.from({ length: 10 }, (_, i) => chunksOf(result(`worker-${i}`), 2));
  const receiver = new Receiver();
  transfers.forEach((chunks, i) => assert.deepEqual(receiver.accept(chunks[0]), [i === 0 ? "buffered" : "replaced"]));
  for (const chunks of transfers.slice(1, 9)) assert.deepEqual(receiver.accept(chunks[0]), ["stale_retry"]);
  assert.deepEqual(receiver.accept(transfers[0]?.[0]), ["replaced"]);
});

Deno.test("more bytes than announced are a rejection, fewer a wrong digest", () => {
  const chunks = chunksOf(result("a"), 2);
  const [first, second] = chunks;
  assert.ok(first !== undefined && second !== undefined);
  const longer = new Receiver();
  assert.deepEqual(
    longer.accept(first, { ...second, payload: new Uint8Array(second.payload.length + 1) }),
    ["buffered", "payload_size"],
  );
  assert.equal(longer.process.used, 0);
  const shorter = new Receiver();
  assert.deepEqual(shorter.accept(first, { ...second, payload: second.payload.slice(1) }), [
    "buffered",
    "digest_mismatch",
  ]);
});

Deno.test("a whole that is no result, or another item's, is a rejection", () => {
  const garbage = new Receiver();
  assert.deepEqual(garbage.accept(...chunksOf(Uint8Array.of(0xc1, 0xc1), 2)), ["buffered", "result_decode"]);
  const foreign = new Receiver(2);
  assert.deepEqual(foreign.accept(...chunksOf(result("a", 1), 2, 0)), ["buffered", "result_identity"]);
  assert.equal(foreign.process.used, 0);
});

Deno.test("items are apart, and a plain result makes chunks of its item duplicates", () => {
  const receiver = new Receiver(2);
  const zero = chunksOf(result("a", 0), 2, 0), one = chunksOf(result("b", 1), 2, 1);
  assert.deepEqual(receiver.accept(zero[0], one[0]), ["buffered", "buffered"]);
  receiver.receiver.haveResult(0);
  assert.deepEqual(receiver.accept(zero[1], one[1]), ["duplicate", "complete"]);
  assert.equal(receiver.process.used, 0);
  // The form is checked even where the item is done.
  assert.deepEqual(receiver.accept({ ...(zero[1] as ResultChunk), chunkCount: 65 }), ["chunk_count"]);
});

Deno.test("a request reserves 64 MiB at most, a process 256 MiB, and nothing stays reserved", () => {
  const large = (itemIndex: number): ResultChunk => ({
    workItemId: `req.${itemIndex}`,
    requestId: "req",
    itemIndex,
    transferDigest: new Uint8Array(32),
    chunkIndex: 0,
    chunkCount: 2,
    totalBytes: MAX_TRANSFER_BYTES,
    payload: new Uint8Array(1),
  });
  const each = 3 * MAX_TRANSFER_BYTES + 4096;
  assert.ok(each < REQUEST_REASSEMBLY_BYTES && 2 * each > REQUEST_REASSEMBLY_BYTES);
  const receiver = new Receiver(2);
  assert.deepEqual(receiver.accept(large(0), large(1)), ["buffered", "reservation"]);
  assert.equal(receiver.process.used, each);
  receiver.receiver.close();
  assert.equal(receiver.process.used, 0);
  const process = new ReassemblyBudget(PROCESS_REASSEMBLY_BYTES);
  const requests = Array.from({ length: 6 }, () => new RequestReceiver("req", 1, process));
  const verdicts = requests.map((request) => short(request.accept(large(0))));
  assert.deepEqual(verdicts, ["buffered", "buffered", "buffered", "buffered", "buffered", "reservation"]);
  for (const request of requests) request.close();
  assert.equal(process.used, 0);
});

Deno.test("payloads are copied: the caller may use its buffer again", () => {
  const chunks = chunksOf(result("a"), 2);
  const receiver = new Receiver();
  receiver.accept(chunks[0]);
  chunks[0]?.payload.fill(0);
  assert.deepEqual(receiver.accept(chunks[1]), ["complete"]);
});
