/** What becomes of frames, without a connection: bounds at their exact values, and frames that are damaged anywhere. */
import assert from "node:assert/strict";
import { AnswerReader, MORE } from "../../src/ipc/answer.ts";
import {
  CHUNK_BUDGET_BYTES,
  CHUNK_LIMITS,
  type ChunkFault,
  type ChunkLimits,
  ChunkTransfer,
  ResponseChunkError,
} from "../../src/ipc/chunk_transfer.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { sha256 } from "../../src/runtime/digest.ts";
import type { ResponseChunk } from "../../src/wire/ipc/envelope.ts";
import { Ping } from "../../src/wire/ipc/methods.ts";
import { encodeNotation } from "../harness/notation.ts";
import { chunkFrame, okAnswer } from "./frames.ts";

const MIB = 1_048_576;

function context(limits: Partial<ChunkLimits> = {}) {
  return {
    limits: { ...CHUNK_LIMITS, ...limits },
    budget: new ByteBudget({ limit: CHUNK_BUDGET_BYTES }),
    observer: undefined,
  };
}

function chunk(fields: Partial<ResponseChunk> = {}): ResponseChunk {
  return {
    version: 1,
    requestId: "w-1",
    transferDigest: new Uint8Array(32),
    chunkIndex: 0,
    chunkCount: 9,
    totalBytes: 33_554_433,
    payload: Uint8Array.of(1),
    ...fields,
  };
}

function faultOf(action: () => unknown): ChunkFault | undefined {
  try {
    action();
  } catch (thrown) {
    if (thrown instanceof ResponseChunkError) return thrown.fault;
    throw thrown;
  }
  return undefined;
}

Deno.test("the bounds of the protocol, at their exact values", () => {
  const cases: readonly (readonly [Partial<ResponseChunk>, ChunkFault | undefined])[] = [
    [{ totalBytes: 33_554_433 }, undefined],
    [{ totalBytes: 33_554_432 }, "InvalidBounds"],
    [{ totalBytes: 134_217_728, chunkCount: 64 }, undefined],
    [{ totalBytes: 134_217_729, chunkCount: 64 }, "InvalidBounds"],
    [{ chunkCount: 65 }, "InvalidBounds"],
    [{ chunkCount: 0 }, "InvalidBounds"],
    [{ chunkIndex: 9 }, "InvalidBounds"],
    [{ chunkIndex: 1 }, "MissingFirstChunk"],
    [{ payload: new Uint8Array(4_194_304) }, undefined],
    [{ payload: new Uint8Array(4_194_305) }, "InvalidBounds"],
    [{ payload: new Uint8Array(0) }, "InvalidBounds"],
    [{ transferDigest: new Uint8Array(33) }, "InvalidBounds"],
    [{ version: 2, transferDigest: new Uint8Array(0) }, "VersionMismatch"],
  ];
  for (const [fields, fault] of cases) {
    const transfer = new ChunkTransfer(context());
    assert.equal(faultOf(() => transfer.add(chunk(fields))), fault, JSON.stringify(Object.keys(fields)));
    transfer.release();
  }
});

Deno.test("one transfer of 128 MiB fills the budget exactly; two of 64 MiB miss it by 4,096 bytes", () => {
  const shared = context();
  const whole = new ChunkTransfer(shared);
  whole.add(chunk({ totalBytes: 128 * MIB, chunkCount: 32 }));
  assert.equal(shared.budget.used, CHUNK_BUDGET_BYTES);
  whole.release();
  whole.release();
  assert.equal(shared.budget.used, 0);
  const [first, second] = [new ChunkTransfer(shared), new ChunkTransfer(shared)];
  first.add(chunk({ totalBytes: 64 * MIB, chunkCount: 16 }));
  assert.equal(CHUNK_BUDGET_BYTES - shared.budget.used, 2 * 64 * MIB);
  const half = chunk({ totalBytes: 64 * MIB, chunkCount: 16 });
  assert.equal(faultOf(() => second.add(half)), "GlobalBudgetExceeded");
  second.release();
  first.release();
  assert.equal(shared.budget.used, 0);
});

Deno.test("a chunk's frame may hold 4,198,400 bytes, which is looked at before anything else", () => {
  const frame = (bytes: number, requestId: string) => {
    const empty = chunkFrame(requestId, new Uint8Array(32), 0, 9, 33_554_433, new Uint8Array(0)).length - 4;
    return chunkFrame(requestId, new Uint8Array(32), 0, 9, 33_554_433, new Uint8Array(bytes - empty)).subarray(4);
  };
  for (
    const [bytes, id, fault] of [
      // Within the frame's bound the payload's own bound is the next.
      [4_198_400, "w-1", "InvalidBounds"],
      [4_198_400, "w-2", "RequestIdMismatch"],
      [4_198_401, "w-2", "InvalidBounds"],
    ] as const
  ) {
    const reader = new AnswerReader(Ping, "w-1", context());
    assert.equal(faultOf(() => reader.feed(frame(bytes, id))), fault, `${bytes} for ${id}`);
  }
});

Deno.test("nothing is decoded before the digest is verified, and what was joined must be an ordinary answer", () => {
  const limits = { frameBytes: 0 };
  const feedWhole = (inner: Uint8Array, digest = sha256(inner)) => {
    const shared = context(limits);
    const reader = new AnswerReader(Ping, "w-1", shared);
    try {
      return reader.feed(chunkFrame("w-1", digest, 0, 1, inner.length, inner).subarray(4));
    } finally {
      assert.equal(shared.budget.used, 0);
    }
  };
  const ping = okAnswer("w-1", { timestamp_ms: 1, worker_id: "joined" }).subarray(4);
  assert.equal((feedWhole(ping) as { workerId: string }).workerId, "joined");
  // Bytes that would not decode fail by their digest, not by their form.
  assert.equal(faultOf(() => feedWhole(Uint8Array.of(0xc1), new Uint8Array(32))), "InvalidDigest");
  const kindOf = (inner: Uint8Array) => {
    try {
      feedWhole(inner);
    } catch (thrown) {
      return thrown instanceof IpcError ? thrown.kind : thrown;
    }
    return "accepted";
  };
  assert.equal(kindOf(Uint8Array.of(0xc1)), "decode");
  assert.equal(kindOf(okAnswer("w-2", { timestamp_ms: 1 }).subarray(4)), "response_chunk");
  assert.equal(kindOf(okAnswer("w-1", null).subarray(4)), "server");
  const claiming = encodeNotation({ version: 1, request_id: "w-1", ok: true, body: {}, kind: "ipc_response_chunk_v1" });
  assert.equal(kindOf(claiming), "response_chunk");
});

Deno.test("the order of an answer's keys does not matter, and unknown ones are ignored", () => {
  const bytes = encodeNotation({
    later: { $map: [[5, null]] },
    error: null,
    body: { worker_id: "w", future: [1], timestamp_ms: 1 },
    kind: "future_response_v2",
    ok: true,
    request_id: "w-1",
    version: 1,
  });
  const answer = new AnswerReader(Ping, "w-1", context()).feed(bytes);
  assert.ok(answer !== MORE);
  assert.equal(answer.workerId, "w");
});

/** A small generator of numbers, the same in every run. */
function generator(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor(state / 4_294_967_296 * below);
  };
}

Deno.test("a frame that is damaged anywhere ends in an answer or an IpcError, and holds no memory", () => {
  const inner = okAnswer("w-1", { timestamp_ms: { $f64: 1 }, worker_id: "w", ready: true, loaded_models: ["a", "b"] })
    .subarray(4);
  const half = Math.ceil(inner.length / 2);
  const digest = sha256(inner);
  const pieces = [inner.subarray(0, half), inner.subarray(half)];
  const chunks = pieces.map((piece, at) => chunkFrame("w-1", digest, at, 2, inner.length, piece).subarray(4));
  const random = generator(7);
  const outcomes = new Set<string>();
  for (let round = 0; round < 6000; round++) {
    const frames = (round % 2 === 0 ? [inner] : chunks).map((frame) => frame.slice());
    for (let hits = 1 + random(2); hits > 0; hits--) {
      const frame = frames[random(frames.length)] ?? inner;
      frame[random(frame.length)] = random(256);
    }
    const shared = context({ frameBytes: 0 });
    const reader = new AnswerReader(Ping, "w-1", shared);
    try {
      for (const frame of frames) outcomes.add(reader.feed(frame) === MORE ? "more" : "answer");
    } catch (thrown) {
      assert.ok(thrown instanceof IpcError, `round ${round}: ${thrown}`);
      outcomes.add(thrown instanceof ResponseChunkError ? thrown.fault : thrown.kind);
    }
    reader.abandon();
    assert.equal(shared.budget.used, 0, `round ${round}`);
  }
  // The damage reaches most of the checks.
  for (
    const expected of ["answer", "decode", "MalformedEnvelope", "InvalidDigest", "RequestIdMismatch", "MalformedChunk"]
  ) {
    assert.ok(outcomes.has(expected), `${expected} is not among ${[...outcomes].join()}`);
  }
});
