/** Batch items: what is written only when it is there. */
import assert from "node:assert/strict";
import { type BatchOperation, INLINE_INPUT, writeBatchItem } from "../../src/wire/ipc/batch_items.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { decodeNotation } from "../harness/notation.ts";
import { type Value, workItemBytes } from "../harness/work_items.ts";

function written(operation: BatchOperation, fields: { readonly [key: string]: Value }): Record<string, unknown> {
  const writer = new MsgpackWriter();
  writeBatchItem(writer, operation, {
    work: decodeWorkItem(workItemBytes({ operation, ...fields })),
    input: INLINE_INPUT,
  });
  return decodeNotation(writer.take()) as Record<string, unknown>;
}

const SCORE = { query_item: { text: "q" }, score_items: [{ text: "d" }] };

Deno.test("a numerical admission goes with the item, so that a backend that does not verify it refuses the item", () => {
  const admission = { numerical_admission_sha256: "a".repeat(64) };
  for (const [operation, fields] of [["encode", {}], ["score", SCORE]] as const) {
    const names = Object.keys(written(operation, { ...fields, ...admission }));
    assert.equal(written(operation, { ...fields, ...admission }).numerical_admission_sha256, "a".repeat(64), operation);
    // Before `payload_fetch_ms`, where the reference has it.
    assert.equal(names.indexOf("numerical_admission_sha256"), names.indexOf("payload_fetch_ms") - 1, operation);
    assert.equal("numerical_admission_sha256" in written(operation, fields), false, operation);
  }
  assert.equal("numerical_admission_sha256" in written("extract", admission), false);
});
