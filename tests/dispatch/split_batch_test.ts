import assert from "node:assert/strict";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { MOST_BATCH_BYTES, requestBytes, splitByBytes } from "../../src/dispatch/split_batch.ts";
import { WorkUnit } from "../../src/dispatch/work_unit.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { writeRunBatchItem } from "../../src/wire/ipc/batch_items.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { type Value, workItemBytes } from "../harness/work_items.ts";
import { RecordingDelivery } from "./doubles.ts";

const ledger = new SettlementLedger();

function unit(fields: { readonly [key: string]: Value }): WorkUnit {
  return new WorkUnit({ delivery: new RecordingDelivery(ledger), work: decodeWorkItem(workItemBytes(fields)) });
}

const SAMPLES: [string, "encode" | "score" | "extract", { readonly [key: string]: Value }][] = [
  ["a small encode item", "encode", {}],
  ["long ids and profile", "encode", {
    request_id: "r".repeat(5000),
    profile_id: "p".repeat(4000),
    traceparent: "t".repeat(3000),
    tracestate: "s".repeat(3000),
    instruction: "i".repeat(2000),
    bundle_config_hash: "h".repeat(1000),
    numerical_admission_sha256: "a".repeat(4000),
  }],
  ["score", "score", { query_item: { text: "q".repeat(900) }, score_items: [{ text: "d".repeat(5000) }] }],
  ["extract", "extract", { labels: ["a".repeat(3000)], output_schema: { type: "object", x: "y".repeat(2500) } }],
];

for (const [name, operation, fields] of SAMPLES) {
  Deno.test(`the estimate of a request is never below what is written: ${name}`, () => {
    const sample = unit(fields);
    const writer = new MsgpackWriter();
    writeRunBatchItem(writer, operation, sample);
    assert.ok(requestBytes(sample) >= writer.length, `${requestBytes(sample)} < ${writer.length}`);
  });
}

Deno.test("units that fit one request stay together, in the very same array", () => {
  const units = [unit({}), unit({})];
  assert.equal(splitByBytes(units)[0], units);
});

Deno.test("units are split in order, and one that is too large stands alone", () => {
  const units = [1, 3, 1, 9, 1].map((size) => unit({ item: { id: "x", text: "y".repeat(size * 10_000) } }));
  const parts = splitByBytes(units, 50_000);
  assert.deepEqual(parts.map((part) => part.map((one) => units.indexOf(one))), [[0, 1], [2], [3], [4]]);
});

Deno.test("the limit leaves room for the envelope within a frame", () => {
  assert.ok(MOST_BATCH_BYTES < 32 * 1024 * 1024 - 60_000);
});
