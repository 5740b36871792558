/** Every reader of the queue's messages on changed and random bytes: a value, or a MsgpackError, and nothing else. */
import assert from "node:assert/strict";
import { readWorkerPublication } from "../../src/gateway/worker_publication.ts";
import { readPublication, stampExecutedHash } from "../../src/wire/generate_chunk.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { numpyValues, readNumpy } from "../../src/wire/numpy.ts";
import { readResultChunk } from "../../src/wire/result_chunk.ts";
import { decodeWorkResult, inboxMessageKind } from "../../src/wire/work_result_reader.ts";
import { encodeNotation, readValue } from "../harness/notation.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below, randomBytes } from "./random_values.ts";

const RESULT = encodeNotation({
  work_item_id: "req-1.0",
  request_id: "req-1",
  item_index: 0,
  success: true,
  result_msgpack: { $bin_repeat: [7, 40] },
  error: null,
  inference_ms: { $f64: 1.5 },
  units: { input_tokens: 7, pages: null },
  retry_after_s: 3,
});
const CHUNK = encodeNotation({
  kind: "result_chunk_v1",
  work_item_id: "req-1.0",
  request_id: "req-1",
  item_index: 0,
  transfer_digest: { $bin_repeat: [9, 32] },
  chunk_index: 0,
  chunk_count: 2,
  total_bytes: 70,
  payload: { $bin_repeat: [1, 35] },
});
const PUBLICATION = encodeNotation({
  kind: "chunk",
  request_id: "req-1",
  attempt_id: "a",
  seq: 0,
  text_delta: "x",
  done: false,
  usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  ttft_ms: { $f64: 2.5 },
});
const ARRAY = encodeNotation({ $numpy: "<f4", shape: [2, 2], values: [1, 2, 3, 4] });

const READERS: readonly [string, Uint8Array, (bytes: Uint8Array) => unknown][] = [
  ["a result", RESULT, decodeWorkResult],
  ["a chunk", CHUNK, readResultChunk],
  ["a publication", PUBLICATION, readPublication],
  ["a publication, as a gateway reads it", PUBLICATION, readWorkerPublication],
  ["a stamped publication", PUBLICATION, (bytes) => readValue(stampExecutedHash(bytes, "hash-a"))],
  ["an array", ARRAY, (bytes) => numpyValues(readNumpy(new MsgpackReader(bytes)))],
  ["any inbox message", RESULT, inboxMessageKind],
];

for (const [name, original, read] of READERS) {
  Deno.test(`${name} is read or refused, whatever its bytes`, () => {
    const random = new SeededRandom(81);
    let accepted = 0, refused = 0;
    for (let i = 0; i < 3000; i++) {
      const bytes = i % 4 === 0 ? randomBytes(random, below(random, 40)) : original.slice();
      for (let edits = below(random, 3); edits > 0 && bytes.length > 0; edits--) {
        bytes[below(random, bytes.length)] = random.pick([
          0x00,
          0x7f,
          0xc0,
          0xc1,
          0xc6,
          0xcf,
          0xdd,
          0xdf,
          below(random, 256),
        ]);
      }
      const whole = random.chance(0.2) ? bytes.subarray(0, below(random, bytes.length + 1)) : bytes;
      try {
        read(whole);
        accepted++;
      } catch (thrown) {
        if (!(thrown instanceof MsgpackError)) throw thrown;
        refused++;
      }
    }
    assert.ok(accepted > 300 && refused > 300, `${accepted} read, ${refused} refused`);
  });
}
