/** Planning of chunked results as properties, and envelopes at their edges. */
import assert from "node:assert/strict";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import {
  chunkStart,
  MAX_CHUNKS,
  MAX_TRANSFER_BYTES,
  planResult,
  readResultChunk,
  resultChunkLength,
  TARGET_CHUNK_BYTES,
  writeResultChunkHead,
} from "../../src/wire/result_chunk.ts";
import { encodeNotation } from "../harness/notation.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below } from "./random_values.ts";

const DIGEST = new Uint8Array(32);

function identity(idBytes: number, itemIndex = 0) {
  return { workItemId: new Uint8Array(idBytes + 2).fill(97), requestId: new Uint8Array(idBytes).fill(97), itemIndex };
}

Deno.test("a plan is the first count whose every envelope fits", () => {
  const random = new SeededRandom(51);
  const seen = new Set<string>();
  for (let i = 0; i < 2000; i++) {
    const length = 1 + below(random, random.chance(0.5) ? 200_000 : MAX_TRANSFER_BYTES + 1000);
    const maxPayload = 1 + below(random, random.chance(0.5) ? 4096 : 1_200_000);
    const ids = identity(below(random, 300), below(random, 5000));
    const plan = planResult(length, maxPayload, true, ids);
    seen.add(plan.mode);
    if (plan.mode === "single") assert.ok(length <= maxPayload);
    const fits = (count: number) => {
      for (let index = 0; index < count; index++) {
        const bytes = chunkStart(length, index + 1, count) - chunkStart(length, index, count);
        if (resultChunkLength(ids, index, count, length, bytes) > maxPayload) return false;
      }
      return true;
    };
    if (plan.mode === "chunked") {
      assert.ok(fits(plan.chunkCount), `${length} in ${plan.chunkCount} at ${maxPayload}`);
      const fewest = Math.ceil(length / TARGET_CHUNK_BYTES);
      assert.ok(plan.chunkCount >= fewest && plan.chunkCount <= Math.min(MAX_CHUNKS, length));
      const fewer = plan.chunkCount - 1;
      const largest = (count: number) => resultChunkLength(ids, count - 1, count, length, Math.ceil(length / count));
      assert.ok(fewer < Math.max(fewest, 1) || largest(fewer) > maxPayload, `${length} fits in ${fewer}`);
    }
    if (plan.mode === "compact" && length <= MAX_TRANSFER_BYTES) assert.ok(!fits(Math.min(MAX_CHUNKS, length)));
  }
  assert.deepEqual([...seen].sort(), ["chunked", "compact", "single"]);
});

Deno.test("the limits themselves are inside", () => {
  const ids = identity(36);
  assert.equal(planResult(1000, 1000, false, ids).mode, "single");
  assert.equal(planResult(1001, 1000, false, ids).mode, "compact");
  assert.equal(planResult(MAX_TRANSFER_BYTES, 1_048_576, true, ids).mode, "chunked");
  assert.equal(planResult(MAX_TRANSFER_BYTES + 1, 1_048_576, true, ids).mode, "compact");
  assert.deepEqual(planResult(TARGET_CHUNK_BYTES * 2, 786_700, true, ids), { mode: "chunked", chunkCount: 2 });
  // One byte less than the envelopes of two chunks need: three.
  const exact = resultChunkLength(ids, 1, 2, TARGET_CHUNK_BYTES * 2, TARGET_CHUNK_BYTES);
  assert.deepEqual(planResult(TARGET_CHUNK_BYTES * 2, exact, true, ids), { mode: "chunked", chunkCount: 2 });
  assert.deepEqual(planResult(TARGET_CHUNK_BYTES * 2, exact - 1, true, ids), { mode: "chunked", chunkCount: 3 });
  // A result of two bytes cannot be cut into three chunks.
  assert.equal(planResult(2, 1, true, ids).mode, "compact");
});

Deno.test("chunks cover the result without gap or overlap", () => {
  for (const [length, count] of [[1, 1], [64, 64], [65, 64], [16_777_216, 64], [10, 3]] as const) {
    assert.equal(chunkStart(length, 0, count), 0);
    assert.equal(chunkStart(length, count, count), length);
    for (let i = 0; i < count; i++) assert.ok(chunkStart(length, i, count) < chunkStart(length, i + 1, count));
  }
});

Deno.test("an envelope is as long as announced and is read back", () => {
  const random = new SeededRandom(52);
  for (let i = 0; i < 200; i++) {
    const ids = identity(1 + below(random, 300), below(random, 2 ** 32));
    const payload = new Uint8Array(below(random, 70_000)).fill(7);
    const writer = new MsgpackWriter();
    writeResultChunkHead(writer, ids, DIGEST, 3, 64, MAX_TRANSFER_BYTES, payload.length);
    writer.raw(payload);
    assert.equal(writer.length, resultChunkLength(ids, 3, 64, MAX_TRANSFER_BYTES, payload.length));
    const chunk = readResultChunk(writer.view());
    assert.deepEqual([chunk.itemIndex, chunk.chunkIndex, chunk.chunkCount], [ids.itemIndex, 3, 64]);
    assert.deepEqual(chunk.payload, payload);
  }
});

Deno.test("an envelope with a field missing, repeated or of another type is refused", () => {
  const good: Record<string, unknown> = {
    kind: "result_chunk_v1",
    work_item_id: "r.0",
    request_id: "r",
    item_index: 0,
    transfer_digest: { $bin: "00" },
    chunk_index: 0,
    chunk_count: 1,
    total_bytes: 1,
    payload: { $bin: "00" },
  };
  assert.equal(readResultChunk(encodeNotation({ ...good, later: 1 })).requestId, "r");
  for (const name of Object.keys(good)) {
    const without = { ...good };
    delete without[name];
    assert.throws(() => readResultChunk(encodeNotation(without)), { message: `missing field '${name}'` });
    assert.throws(() => readResultChunk(encodeNotation({ ...good, [name]: null })), { name: "MsgpackError" }, name);
    const twice = { $map: [...Object.entries(good), [name, good[name]]] };
    assert.throws(() => readResultChunk(encodeNotation(twice)), { message: `duplicate field '${name}'` });
  }
  assert.throws(() => readResultChunk(encodeNotation({ ...good, kind: "chunk" })), /'kind' is not/);
  assert.throws(() => readResultChunk(encodeNotation({ ...good, payload: "00" })), /expected bin, got str/);
  assert.throws(
    () => readResultChunk(encodeNotation({ ...good, total_bytes: { $f64: 1 } })),
    /expected int, got float/,
  );
});
