/** Claims on the payloads of results, and on payloads that were offloaded. */
import assert from "node:assert/strict";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { UnitPreparer } from "../../src/dispatch/prepare_unit.ts";
import { Settler } from "../../src/dispatch/settle.ts";
import { WorkUnit } from "../../src/dispatch/work_unit.ts";
import { generateInput } from "../../src/generate/generate_input.ts";
import type { PreparedInput } from "../../src/wire/ipc/batch_items.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { decodeWorkResult } from "../../src/wire/work_result_reader.ts";
import { readValue, valueOf } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { type Value as NotedValue, workItemBytes } from "../harness/work_items.ts";
import { RecordingDelivery } from "../dispatch/doubles.ts";
import { answerOf, finishedItem, frozenClock, RecordedPublisher, RecordingChannel } from "../publish/rig.ts";

interface PayloadCase {
  readonly name: string;
  readonly hex: string;
  readonly decoded: unknown;
  readonly input?: Record<string, Record<string, unknown>>;
  readonly caller_item_id?: string;
}

const resultPayloadsClaim: VectorClaim = {
  files: ["queue/result_payloads.json"],
  *cases(data) {
    for (const one of data as PayloadCase[]) {
      const check = one.input === undefined ? () => checkBlob(one) : () => checkPayload(one);
      yield { name: one.name, check } satisfies VectorCase;
    }
  },
};

function checkPayload({ input = {}, caller_item_id: callerId, hex }: PayloadCase): void {
  const item = callerId === undefined ? { text: "x" } : { id: callerId, text: "x" };
  const channel = new RecordingChannel();
  const raw = Object.fromEntries(Object.entries(input).map(([kind, fields]) => [kind, sentFields(fields)]));
  const answer = answerOf([{ raw_output: raw }]);
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined);
  assert.equal(new RecordedPublisher().publisher.outcome(finishedItem(channel, { item }), answer, outcome, ""), true);
  const [message] = channel.messages;
  assert.ok(message !== undefined);
  assert.equal(toHex(decodeWorkResult(message).resultMsgpack), hex);
}

/** Fields of a typed output as a backend sends them: floats as float64, halves as bin beside an empty list. */
function sentFields(fields: Record<string, unknown>): Record<string, unknown> {
  const sent: Record<string, unknown> = { ...fields };
  delete sent["values_f16_hex"];
  if ("values_f16_hex" in fields) {
    sent["values_f16"] = { $bin: fields["values_f16_hex"] };
    sent["values"] ??= [];
  }
  for (const key of ["values", "scores"]) {
    if (key in sent) sent[key] = (sent[key] as number[]).map((x) => ({ $f64: x }));
  }
  return sent;
}

/** What lies behind a payload reference, fetched and taken apart by the code that prepares items. */
async function checkBlob({ name, hex, decoded }: PayloadCase): Promise<void> {
  const bytes = fromHex(hex);
  const wanted = valueOf(decoded);
  switch (name) {
    case "offload_score_blob": {
      const input = await prepared({ operation: "score", item: null, query_payload_ref: "req-1_score.bin" }, bytes);
      assert.ok(wanted.type === "map" && input.queryItem !== undefined && input.scoreItems !== undefined);
      // The blob is a map of query and items, in this order.
      assert.deepEqual([readValue(input.queryItem), readValue(input.scoreItems)], wanted.pairs.map(([, part]) => part));
      return;
    }
    case "offload_item_blob": {
      const input = await prepared({ operation: "encode", item: null, payload_ref: "req-1_0.bin" }, bytes);
      assert.deepEqual(readValue(input.item ?? new Uint8Array()), wanted);
      return;
    }
    case "offload_generate_blob": {
      const work = decodeWorkItem(workItemBytes({ operation: "generate", payload_ref: "req-1_0.bin" }));
      const input = generateInput(work, bytes);
      assert.ok("bytes" in input && input.bytes !== undefined);
      // The parameters are the blob's; base64 media becomes bin on the way to the backend.
      const expected = JSON.parse(JSON.stringify(decoded), (key, value) => key === "data" ? binOf(value) : value);
      assert.deepEqual(readValue(input.bytes), valueOf(expected));
      return;
    }
  }
  throw new Error(`nothing is known about ${name}`);
}

async function prepared(fields: { readonly [key: string]: NotedValue }, payload: Uint8Array): Promise<PreparedInput> {
  const clock = frozenClock(0);
  const preparer = new UnitPreparer({
    drops: { dropReason: () => undefined, remainingMs: () => undefined },
    settler: new Settler(clock, 5000, undefined),
    clock,
    payloads: { fetch: () => Promise.resolve(payload) },
    tokens: undefined,
    audio: undefined,
  });
  const delivery = new RecordingDelivery(new SettlementLedger());
  const unit = new WorkUnit({ delivery, work: decodeWorkItem(workItemBytes(fields)) });
  assert.equal(await preparer.prepare(unit, "test/model"), "ready");
  return unit.input;
}

function binOf(base64: string): unknown {
  return { $bin: toHex(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))) };
}

/** What results carry, and what references stand for. */
export const resultPayloadClaims: VectorClaim[] = [resultPayloadsClaim];
