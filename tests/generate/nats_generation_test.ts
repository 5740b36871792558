/** Generation from JetStream (spec/generation.md 4 and 5); the settlements themselves are claimed in claims/generation.ts. */
import assert from "node:assert/strict";
import type { GenerateEvent } from "../../src/ipc/backend.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { RecordingDelivery } from "../dispatch/doubles.ts";
import { msgpack, workItemBytes } from "../harness/work_items.ts";
import { settle } from "../sim/virtual_clock.ts";
import { events, GenerationRig } from "./rig.ts";

const REPLY = "_INBOX.gw-1.req-1";

function publish(payload: Uint8Array): GenerateEvent {
  return { kind: "publish", replySubject: REPLY, payload };
}

/** Text members of a map. */
function texts(payload: Uint8Array): Record<string, string> {
  const reader = new MsgpackReader(payload);
  const found: Record<string, string> = {};
  for (let left = reader.mapHeader(); left > 0; left--) {
    const key = reader.text();
    if (reader.kind() === "str") found[key] = reader.text();
    else reader.skip();
  }
  return found;
}

Deno.test("chunks are published in order and as they came, then the delivery is ACKed", async () => {
  const rig = new GenerationRig();
  const chunks = [0, 1, 2].map((seq) => msgpack({ kind: "chunk", seq }));
  rig.backend.stream = events([{ kind: "in_progress" }, ...chunks.map(publish), { kind: "ack" }, { kind: "done" }]);
  const delivery = await rig.run();
  assert.deepEqual(delivery.events.map(({ did }) => did), ["progress", "publish", "publish", "publish", "ack"]);
  assert.deepEqual(delivery.published, chunks);
  assert.equal(rig.ledger.outstanding, 0);
  assert.equal(rig.barrier.sharedHolders, 0);
});

Deno.test("chunks of an attested item carry the executed hash", async () => {
  const rig = new GenerationRig({ hash: "h1" });
  rig.backend.stream = events([publish(msgpack({ kind: "chunk", executed_bundle_config_hash: "old", seq: 0 })), {
    kind: "ack",
  }]);
  const delivery = await rig.run({ bundle_config_hash: "h1" });
  assert.deepEqual(delivery.published, [msgpack({ kind: "chunk", seq: 0, executed_bundle_config_hash: "h1" })]);
});

Deno.test("after media of a size that counts were decoded, others get their turn before the request is made", async () => {
  const rig = new GenerationRig();
  let asked = 0;
  rig.backend.stream = () => {
    asked++;
    return events([{ kind: "ack" }])("test/model", new Uint8Array(0));
  };
  const messages = (bytes: number) => [{ role: "user", images: [{ data: new Uint8Array(bytes).toBase64() }] }];
  const small = rig.start({ generate: { messages: messages(1000) } });
  await settle();
  assert.equal(asked, 1);
  const large = rig.start({ generate: { messages: messages(2 * 1024 * 1024) } });
  await settle();
  assert.equal(asked, 1);
  await rig.clock.advance(0);
  assert.equal(asked, 2);
  for (const delivery of [small, large]) assert.deepEqual(delivery.events.map(({ did }) => did), ["ack"]);
});

Deno.test("an event's bytes may be reused by the reader once the next event is asked for", async () => {
  const rig = new GenerationRig();
  const shared = msgpack({ kind: "chunk", seq: 0 });
  rig.backend.stream = async function* () {
    yield publish(shared);
    shared.fill(0xc1);
    yield { kind: "ack" };
    await Promise.resolve();
  };
  const delivery = await rig.run();
  assert.deepEqual(delivery.published, [msgpack({ kind: "chunk", seq: 0 })]);
});

Deno.test("the next event is read only after the last one was published", async () => {
  const rig = new GenerationRig();
  const asked: number[] = [];
  rig.backend.stream = async function* () {
    for (let seq = 0; seq < 3; seq++) {
      asked.push(seq);
      yield publish(msgpack({ seq }));
    }
    await Promise.resolve();
  };
  const releases: (() => void)[] = [];
  const delivery = rig.start({}, (one) => {
    one.publish = () => new Promise<void>((resolve) => releases.push(resolve)) as never;
  });
  await settle();
  assert.deepEqual(asked, [0]);
  releases.shift()?.();
  await settle();
  assert.deepEqual(asked, [0, 1]);
  releases.shift()?.();
  await settle();
  releases.shift()?.();
  await rig.lane.idle();
  assert.equal(delivery.settlement?.did, "nak");
});

Deno.test("the work item is handed on with 64-bit integers, float kinds and unknown generate keys intact", async () => {
  const rig = new GenerationRig();
  const writer = new MsgpackWriter();
  writer.mapHeader(4);
  writer.text("prompt");
  writer.text("x");
  writer.text("seed");
  writer.bigInteger(-9_007_199_254_740_993n);
  writer.text("temperature");
  writer.float32(0.7);
  writer.text("future_key");
  writer.bigInteger(18_446_744_073_709_551_615n);
  const generate = writer.take();
  const item = new MsgpackWriter();
  item.mapHeader(10);
  for (
    const [key, value] of Object.entries({
      work_item_id: "req-1.0",
      request_id: "req-1",
      item_index: 0,
      total_items: 1,
      operation: "generate",
      model_id: "m",
      pool_name: "p",
      machine_profile: "l4",
      reply_subject: REPLY,
    })
  ) {
    item.text(key);
    if (typeof value === "number") item.integer(value);
    else item.text(value);
  }
  item.text("generate");
  item.raw(generate);
  const seen: Uint8Array[] = [];
  rig.backend.stream = (_model, bytes) => {
    seen.push(bytes);
    return events([{ kind: "ack" }])(_model, bytes);
  };
  const bytes = item.take();
  rig.lane.start({ delivery: new RecordingDelivery(rig.ledger), work: decodeWorkItem(bytes) });
  await rig.lane.idle();
  const sent = decodeWorkItem(seen[0] ?? new Uint8Array());
  const reader = sent.reader(22);
  assert.deepEqual(reader.bytes.subarray(reader.pos, reader.end), generate);
});

Deno.test("parameters that the backend could not decode are refused with a terminal chunk, not retried", async () => {
  const rig = new GenerationRig();
  const writer = new MsgpackWriter();
  writer.mapHeader(1);
  writer.integer(7);
  writer.nil();
  const bad = writer.take();
  const delivery = await rig.run({ generate: null, payload_ref: "x" }, () => {});
  assert.equal(delivery.settlement?.did, "nak", "without a store the reference cannot be fetched");
  const stored = new GenerationRig({ payloads: { fetch: () => Promise.resolve(bad) } });
  const refused = await stored.run({ generate: null, payload_ref: "x" });
  assert.equal(refused.settlement?.did, "ack");
  assert.equal(texts(refused.published[0] ?? new Uint8Array()).kind, "chunk");
  assert.equal(texts(refused.published[0] ?? new Uint8Array()).finish_reason, "error");
});

Deno.test("every refusal of ours is a terminal chunk; with SIE_COMPAT=reference an undecodable payload gives a WorkResult", async () => {
  for (const referenceCompatible of [false, true]) {
    const rig = new GenerationRig({
      referenceCompatible,
      payloads: { fetch: () => Promise.resolve(Uint8Array.of(0xc1)) },
    });
    const delivery = await rig.run({ generate: null, payload_ref: "x" });
    const kind = texts(delivery.published[0] ?? new Uint8Array()).kind;
    assert.equal(kind, referenceCompatible ? undefined : "chunk");
    assert.equal(delivery.settlement?.did, "ack");
  }
});

Deno.test("a fetched payload takes the place of generate and the reference is gone", async () => {
  const generate = msgpack({ prompt: "from the store", max_new_tokens: 1 });
  const rig = new GenerationRig({ payloads: { fetch: () => Promise.resolve(generate) } });
  const seen: Uint8Array[] = [];
  rig.backend.stream = (model, bytes) => {
    seen.push(bytes);
    return events([{ kind: "ack" }])(model, bytes);
  };
  await rig.run({ payload_ref: "req-1_0.bin" });
  const sent = decodeWorkItem(seen[0] ?? new Uint8Array());
  assert.equal(sent.has(12), false);
  const reader = sent.reader(22);
  assert.deepEqual(reader.bytes.subarray(reader.pos, reader.end), generate);
});

Deno.test("the barrier is held for the whole stream", async () => {
  const rig = new GenerationRig();
  let release = () => {};
  const held = new Promise<void>((resolve) => release = resolve);
  rig.backend.stream = async function* () {
    yield { kind: "in_progress" };
    await held;
    yield { kind: "ack" };
  };
  rig.start();
  await settle();
  assert.equal(rig.barrier.sharedHolders, 1);
  release();
  await rig.lane.idle();
  assert.equal(rig.barrier.sharedHolders, 0);
});

Deno.test("streams that are abandoned at shutdown are left to redelivery, settled ones are not touched again", async () => {
  const rig = new GenerationRig();
  rig.backend.stream = async function* (_model, _bytes, signal) {
    yield { kind: "in_progress" };
    await new Promise<void>((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted"))));
  };
  const open = rig.start();
  const settled = rig.start({ request_id: "req-2" });
  await settle();
  assert.equal(rig.lane.running, 2);
  await rig.lane.abandon();
  assert.deepEqual(open.settlement, { did: "leave", reason: "shutdown" });
  assert.deepEqual(settled.settlement, { did: "leave", reason: "shutdown" });
  assert.equal(rig.lane.running, 0);
  assert.equal(rig.ledger.outstanding, 0);
});

Deno.test("abandoning does not wait for a backend, a store or a configuration change that keeps an item from starting", async (t) => {
  const steps: readonly [string, (rig: GenerationRig) => void | Promise<void>][] = [
    ["readiness", (rig) => void (rig.backend.readiness = () => new Promise(() => {}))],
    ["barrier", (rig) => rig.barrier.enterExclusive()],
  ];
  for (const [name, hold] of steps) {
    await t.step(name, async () => {
      const rig = new GenerationRig();
      await hold(rig);
      const delivery = rig.start();
      await settle();
      await rig.lane.abandon();
      assert.deepEqual(delivery.settlement, { did: "nak", delayMs: 100, reason: "retry" });
    });
  }
  await t.step("payload", async () => {
    const rig = new GenerationRig({ payloads: { fetch: () => new Promise(() => {}) } });
    const delivery = rig.start({ generate: null, payload_ref: "x" });
    await settle();
    await rig.lane.abandon();
    assert.deepEqual(delivery.settlement, { did: "nak", delayMs: 100, reason: "retry" });
  });
  await t.step("a barrier that is got too late is left again", async () => {
    const rig = new GenerationRig();
    await rig.barrier.enterExclusive();
    rig.start();
    await settle();
    await rig.lane.abandon();
    rig.barrier.leaveExclusive();
    await settle();
    assert.equal(rig.barrier.sharedHolders, 0);
  });
});

Deno.test("no field of the work item may be one that the backend cannot decode", async () => {
  const bad = new MsgpackWriter();
  bad.mapHeader(1);
  bad.integer(7);
  bad.nil();
  for (const field of ["generate", "options", "item", "query_item", "output_schema"]) {
    const rig = new GenerationRig();
    const bytes = workItemBytes({ operation: "generate", item: null, generate: { prompt: "x" }, [field]: "HERE" });
    const at = new TextDecoder("latin1").decode(bytes).indexOf("\xa4HERE");
    const work = decodeWorkItem(
      Uint8Array.from([...bytes.subarray(0, at), ...bad.view(), ...bytes.subarray(at + 5)]),
    );
    const delivery = new RecordingDelivery(rig.ledger);
    rig.lane.start({ delivery, work });
    await rig.lane.idle();
    assert.equal(delivery.settlement?.did, "ack", field);
    assert.match(texts(delivery.published[0] ?? new Uint8Array()).kind ?? "", /chunk/, field);
  }
});
