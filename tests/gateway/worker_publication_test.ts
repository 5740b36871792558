/** What a gateway drops instead of reading it as a publication, and the fields that the vectors leave out. */
import assert from "node:assert/strict";
import { readWorkerPublication } from "../../src/gateway/worker_publication.ts";
import { stampExecutedHash } from "../../src/wire/generate_chunk.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { encodeNotation } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";

const CHUNK = { kind: "chunk", request_id: "r", attempt_id: "a", seq: 0, text_delta: "x", done: false };
const USAGE = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };

function without(key: keyof typeof CHUNK): Record<string, unknown> {
  return Object.fromEntries(Object.entries(CHUNK).filter(([name]) => name !== key));
}

const DROPPED: readonly (readonly [string, unknown, RegExp])[] = [
  ["no map", [1], /expected map/],
  ["of another kind", { ...CHUNK, kind: "other" }, /neither chunk nor nak/],
  ["without a kind", without("kind"), /neither chunk nor nak/],
  ["a bin key", { $map: [...Object.entries(CHUNK), [{ $bin: "61" }, 1]] }, /key of type bin/],
  ["an integer key", { $map: [[7, 1], ...Object.entries(CHUNK)] }, /key of type int/],
  ["a key twice", { $map: [...Object.entries(CHUNK), ["seq", 1]] }, /duplicate field 'seq'/],
  ["without a request id", without("request_id"), /missing field 'request_id'/],
  ["without an attempt", without("attempt_id"), /missing field 'attempt_id'/],
  ["without a number", without("seq"), /missing field 'seq'/],
  ["without done", without("done"), /missing field 'done'/],
  ["a negative number", { ...CHUNK, seq: -1 }, /chunk\.seq: integer -1/],
  ["a number beyond 32 bits", { ...CHUNK, seq: 2 ** 32 }, /chunk\.seq: integer 4294967296/],
  ["an unknown end", { ...CHUNK, done: true, finish_reason: "tired" }, /unknown finish reason 'tired'/],
  ["an infinite time", { ...CHUNK, ttft_ms: { $f64: "inf" } }, /chunk\.ttft_ms: Infinity/],
  ["no number as time", { ...CHUNK, ttft_ms: { $f64: "NaN" } }, /chunk\.ttft_ms: NaN/],
  ["usage without a total", { ...CHUNK, usage: { prompt_tokens: 1, completion_tokens: 2 } }, /'total_tokens'/],
  ["an error without a code", { ...CHUNK, error: { message: "m" } }, /'code'/],
  ["a nak without an attempt", { kind: "nak", request_id: "r", reason: "kv_budget" }, /'attempt_id'/],
];

for (const [name, notation, message] of DROPPED) {
  Deno.test(`dropped: ${name}`, () => {
    assert.throws(
      () => readWorkerPublication(encodeNotation(notation)),
      (thrown) => thrown instanceof MsgpackError && message.test(thrown.message),
    );
  });
}

Deno.test("nil is absent, unknown keys are not looked at, spans stay as they are", () => {
  const images = [{ type: "png" }];
  const read = readWorkerPublication(encodeNotation({
    ...CHUNK,
    finish_reason: null,
    usage: { ...USAGE, prompt_tokens_details: { cached_tokens: null }, upstream_usage: { a: 1 }, images, more: 1 },
    error: null,
    ttft_ms: 3,
    logprobs: null,
    invented: { $map: [[1, 2]] },
  }));
  assert.ok(read.kind === "chunk");
  assert.equal(read.finishReason, undefined);
  assert.equal(read.error, undefined);
  assert.equal(read.logprobs, undefined);
  assert.equal(read.ttftMs, 3);
  assert.equal(read.usage?.cachedTokens, undefined);
  assert.equal(toHex(read.usage?.upstreamUsage ?? new Uint8Array()), toHex(encodeNotation({ a: 1 })));
  assert.equal(toHex(read.usage?.images ?? new Uint8Array()), toHex(encodeNotation(images)));
});

Deno.test("the hash that the sidecar stamps is read, on chunks and naks", () => {
  for (const notation of [CHUNK, { kind: "nak", request_id: "r", attempt_id: "a", reason: "kv_budget" }]) {
    const read = readWorkerPublication(stampExecutedHash(encodeNotation(notation), "hash-1"));
    assert.equal(read.executedBundleConfigHash, "hash-1");
  }
});
