/** Claims on the settlement of generation items: every situation is brought about in the lane itself. */
import assert from "node:assert/strict";
import { PayloadTooLargeError } from "../../src/dispatch/payload_error.ts";
import { SETTLEMENT_RULES, type Situation as Row } from "../../src/dispatch/settlement_rules.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import type { GenerateEvent, ModelReadiness } from "../../src/ipc/backend.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import type { RecordingDelivery } from "../dispatch/doubles.ts";
import { type Value } from "../harness/work_items.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { events, GenerationRig, type GenerationRigOptions } from "../generate/rig.ts";

interface SettlementCase {
  readonly name: string;
  readonly expected: { readonly published: string; readonly settlement: string; readonly base_ms: number };
}

/** How to bring a situation about. */
interface Situation {
  readonly options?: GenerationRigOptions;
  readonly fields?: { readonly [key: string]: Value };
  readonly readiness?: () => ModelReadiness | Promise<ModelReadiness>;
  readonly stream?: readonly GenerateEvent[];
  readonly failure?: Error;
}

const missing = { fetch: () => Promise.reject(new Error("not found")) };
const tooLarge = { fetch: () => Promise.reject(new PayloadTooLargeError(2, 1)) };
const garbage = { fetch: () => Promise.resolve(Uint8Array.of(0xc1)) };
const REFERENCED = { generate: null, payload_ref: "req-1_0.bin" };

const SITUATIONS: Readonly<Record<string, readonly Situation[]>> = {
  ready_error: [{ readiness: () => Promise.reject(new IpcError("io", "refused")) }],
  loading_started: [{ readiness: () => ({ state: "loading_started" }) }],
  loading_in_progress: [{ readiness: () => ({ state: "loading_in_progress" }) }],
  retry_later: [{ readiness: () => ({ state: "retry_later" }) }],
  failed: [{ readiness: () => ({ state: "failed" }) }],
  payload_too_large: [{ options: { payloads: tooLarge }, fields: REFERENCED }],
  payload_other: [{ options: { payloads: missing }, fields: REFERENCED }, { fields: REFERENCED }],
  payload_undecodable: [{ options: { payloads: garbage, referenceCompatible: true }, fields: REFERENCED }],
  bad_media: [{ fields: { generate: { messages: 7 } } }],
  hash_changed: [{ options: { hash: "now" }, fields: { bundle_config_hash: "then" } }],
  event_ack: [{ stream: [{ kind: "ack" }, { kind: "nak", delayMs: 1 }, { kind: "done" }] }],
  event_nak: [{ stream: [{ kind: "nak", delayMs: 70 }, { kind: "ack" }, { kind: "done" }] }],
  event_progress: [{ stream: [{ kind: "in_progress" }, { kind: "ack" }, { kind: "in_progress" }, { kind: "done" }] }],
  done_unsettled: [{ stream: [{ kind: "done" }] }, { stream: [] }],
  stream_error: [
    { stream: [], failure: new IpcError("io", "reset") },
    { stream: [{ kind: "publish", replySubject: "_INBOX.other", payload: Uint8Array.of(0x80) }] },
  ],
  no_reply_subject: [{ fields: { reply_subject: "" }, readiness: () => ({ state: "failed" }) }],
};

const DRAINING: Situation = { readiness: () => Promise.reject(new IpcError("server", "draining")) };

/** Cases that belong to intake (queue.md 5.1) or cannot be brought about from outside; they are claimed with the table's rows. */
const NOT_OF_THE_LANE = [
  "bad_subject",
  "bad_msgpack",
  "bad_reply",
  "pool_not_assigned",
  "model_unsupported",
  "reencode_failed",
];

async function outcome(situation: Situation, publishFails: boolean): Promise<RecordingDelivery> {
  const rig = new GenerationRig(situation.options);
  if (situation.readiness !== undefined) rig.backend.readiness = situation.readiness;
  rig.backend.stream = events(situation.stream ?? [{ kind: "ack" }, { kind: "done" }], situation.failure);
  return await rig.run(situation.fields, (delivery) => {
    if (publishFails) delivery.publishFailure = new Error("the connection is closed");
  });
}

/** What was published, in the words of the vectors. */
function publishedText(delivery: RecordingDelivery): string {
  const [payload] = delivery.published;
  if (payload === undefined) return "none";
  const fields = textFields(payload);
  const error = fields.get("error");
  if (fields.get("kind") === "chunk") return `terminal chunk ${error}`;
  return `one WorkResult, error_code ${fields.get("error_code")}`;
}

/** String members of a map, and the `code` of its `error` map. */
function textFields(payload: Uint8Array): Map<string, string> {
  const reader = new MsgpackReader(payload);
  const fields = new Map<string, string>();
  for (let left = reader.mapHeader(); left > 0; left--) {
    const key = reader.text();
    if (reader.kind() === "str") fields.set(key, reader.text());
    else if (key === "error" && reader.kind() === "map") {
      const count = reader.mapHeader();
      for (let i = 0; i < count; i++) {
        const name = reader.text();
        if (name === "code") fields.set(key, reader.text());
        else reader.skip();
      }
    } else reader.skip();
  }
  return fields;
}

/** The settlement that a rule of the vectors asks for. */
function expectedSettlement(rule: string, baseMs: number, publishFails: boolean): { did: string; delayMs?: number } {
  if (rule.startsWith("ACK; NAK min(2*base, 15000 ms)")) {
    return publishFails ? { did: "nak", delayMs: Math.min(2 * baseMs, 15_000) } : { did: "ack" };
  }
  if (rule.startsWith("ACK; NAK base")) return publishFails ? { did: "nak", delayMs: baseMs } : { did: "ack" };
  if (rule.startsWith("ACK") || rule.startsWith("treated as published: ACK") || rule.startsWith("progress ACK")) {
    return { did: "ack" };
  }
  if (rule.startsWith("NAK delay_ms")) return { did: "nak", delayMs: 70 };
  if (rule.startsWith("NAK base")) return { did: "nak", delayMs: baseMs };
  throw new Error(`the vectors have a settlement that this claim does not know: ${rule}`);
}

function assertSettled(delivery: RecordingDelivery, expected: { did: string; delayMs?: number }): void {
  const settlement = delivery.settlement;
  assert.equal(settlement?.did, expected.did);
  if (settlement?.did === "nak") assert.equal(settlement.delayMs, expected.delayMs);
}

function settlementCase({ name, expected }: SettlementCase): VectorCase {
  const { published, settlement, base_ms } = expected;
  return {
    name,
    async check() {
      const situations = SITUATIONS[name];
      assert.ok(situations !== undefined, `the claim does not know the situation ${name}`);
      for (const situation of situations) {
        const delivery = await outcome(situation, false);
        assert.equal(publishedText(delivery), published === "nothing published" ? "none" : published);
        assertSettled(delivery, expectedSettlement(settlement, base_ms, false));
        if (name === "event_progress") {
          assert.equal(
            delivery.events.filter(({ did }) => did === "progress").length,
            1,
            "progress only while unsettled",
          );
        }
        if (settlement.includes("if the publish failed")) {
          assertSettled(await outcome(situation, true), expectedSettlement(settlement, base_ms, true));
        }
      }
      if (settlement.includes("100 ms when draining")) {
        assertSettled(await outcome(DRAINING, false), { did: "nak", delayMs: 100 });
      }
    },
  };
}

const ROWS: Readonly<Record<string, Row>> = {
  bad_subject: "bad_subject",
  bad_msgpack: "undecodable",
  bad_reply: "unsafe_reply",
  pool_not_assigned: "pool_not_assigned",
  model_unsupported: "model_unsupported",
  reencode_failed: "generate_undecodable",
};

/** A case whose situation is noticed elsewhere: the row of the table that is acted on there. */
function tableCase({ name, expected }: SettlementCase): VectorCase {
  return {
    name,
    check() {
      const row = ROWS[name];
      assert.ok(row !== undefined);
      const { action, published } = SETTLEMENT_RULES[row];
      const [, rule] = expected.settlement.match(/^(ACK; NAK base|ACK|NAK base)/) ?? [];
      const actual = action.kind === "ack"
        ? "ACK"
        : action.kind === "nak" && action.delay === "base"
        ? "NAK base"
        : action.kind === "ack_published" && action.otherwise === "base"
        ? "ACK; NAK base"
        : action.kind;
      assert.equal(actual, rule);
      if (expected.published === "none") assert.equal(published, "nothing");
    },
  };
}

/** All claims of this topic. */
export const generationClaims: VectorClaim[] = [{
  files: ["generation/settlement.json"],
  *cases(data) {
    for (const vector of data as SettlementCase[]) {
      yield NOT_OF_THE_LANE.includes(vector.name) ? tableCase(vector) : settlementCase(vector);
    }
  },
}];
