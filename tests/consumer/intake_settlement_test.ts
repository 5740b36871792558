/** The rows of spec/queue.md 5.1 that are the consumer's: each situation on a real broker, and exactly what comes of it. */
import assert from "node:assert/strict";
import { eventually } from "../harness/process.ts";
import { msgpack, workItemBytes, workItemFields } from "../harness/work_items.ts";
import { RawClient } from "../harness/raw_nats.ts";
import { AckWatcher } from "./ack_watcher.ts";
import { Rig, type RigOptions } from "./support.ts";

const SUBJECT = "sie.work.default.l4.default.test__model";
const NAK = '-NAK {"delay":5000000000}';

/** Sends one raw message and expects one settlement, nothing published and nothing run. */
async function refusedWith(
  expected: { readonly body: string; readonly metric: string },
  payload: Uint8Array,
  options: { readonly headers?: Record<string, string>; readonly rig?: RigOptions } = {},
): Promise<void> {
  await using rig = await Rig.start(options.rig);
  const acks = await AckWatcher.start(rig.admin);
  const published: string[] = [];
  rig.admin.subscribe("_INBOX.>", { callback: (_, message) => void published.push(message.subject) });
  await rig.admin.flush();
  await rig.gateway.sendRaw(SUBJECT, payload, options.headers);
  await eventually("it is settled", () => acks.seen.length > 0);
  assert.deepEqual(acks.of(1), [expected.body]);
  assert.deepEqual(rig.intake.arrivals, []);
  // The gateway's own publication was confirmed in its own inbox; nobody else's has a message.
  assert.deepEqual(published.filter((subject) => subject.startsWith("_INBOX.gw-1.")), []);
  assert.deepEqual(rig.metrics.counts[expected.metric], 1, JSON.stringify(rig.metrics.counts));
  assert.equal(rig.ledger.outstanding, 0);
  await rig.stop();
}

const ACKED = { body: "+ACK", metric: "ack pool success completed" };
const NAKED = { body: NAK, metric: "nak pool success retry" };

Deno.test("5.1 #1: a foreign Nats- header is ACKed and dropped", async (t) => {
  for (const name of ["Nats-Stream", "nats-subject", "NATS-Expected-Last-Sequence-Of-Somebody"]) {
    await t.step(name, () => refusedWith(ACKED, workItemBytes(), { headers: { [name]: "X" } }));
  }
});

Deno.test("5.1 #1: the message id and a caller's own headers are no reason to refuse", async () => {
  await using rig = await Rig.start();
  const request = await rig.gateway.send({ items: 1 });
  await rig.gateway.sendRaw(SUBJECT, workItemBytes({ request_id: "with-headers" }), {
    "Nats-Msg-Id": "m-1",
    traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
  });
  await eventually("both are run", () => rig.intake.arrivals.length === 2);
  assert.ok(request.complete);
  await rig.settled();
  await rig.stop();
});

Deno.test("5.1 #2: a subject with fewer than six tokens is sent back", async () => {
  await using rig = await Rig.start();
  const acks = await AckWatcher.start(rig.admin);
  // Our filter lets no such subject through: somebody has widened stream and consumer.
  const subjects = ["sie.work.default.*.*.*", "sie.work.default.*.*"];
  await rig.manager.streams.update("WORK_POOL_default", { subjects });
  await rig.manager.consumers.update("WORK_POOL_default", "default_l4_default", {
    filter_subject: "sie.work.default.*.*",
  });
  await rig.gateway.sendRaw("sie.work.default.l4.default", workItemBytes());
  await eventually("it is settled", () => acks.seen.length > 0);
  assert.deepEqual(acks.of(1), [NAK]);
  assert.deepEqual(rig.intake.arrivals, []);
  await rig.stop();
});

Deno.test("5.1 #3: what is no work item is sent back", async (t) => {
  const { reply_subject: _, ...withoutReply } = workItemFields();
  const cases: [string, Uint8Array][] = [
    ["empty", new Uint8Array(0)],
    ["not MessagePack", Uint8Array.of(0xc1, 1, 2)],
    ["a required field is missing", msgpack(withoutReply)],
    ["cut short", workItemBytes().subarray(0, 40)],
    ["a header that promises four billion elements", Uint8Array.of(0xdd, 0xff, 0xff, 0xff, 0xff)],
  ];
  for (const [name, payload] of cases) await t.step(name, () => refusedWith(NAKED, payload));
});

Deno.test("5.1 #5: an unsafe reply subject is ACKed and dropped", async (t) => {
  for (
    const reply of [
      "_INBOX",
      "_INBOX_WORKER.x",
      " _INBOX.a",
      "   ",
      "sie.work.default.l4.default.m",
      "$JS.ACK.x",
      "_INBOX.a b",
      "_INBOX.a 3\r\nPUB sie.config.models._all",
    ]
  ) {
    await t.step(JSON.stringify(reply), () => refusedWith(ACKED, workItemBytes({ reply_subject: reply })));
  }
});

Deno.test("5.1 #3: headers that nobody can read are sent back, and hold nothing up", async () => {
  await using rig = await Rig.start();
  const acks = await AckWatcher.start(rig.admin);
  const payload = workItemBytes();
  const headers = "NATS/1.0\r\nbad key\u0001: x\r\n\r\n";
  using raw = await RawClient.connect(rig.server.port);
  await raw.write(`HPUB ${SUBJECT} ${headers.length} ${headers.length + payload.length}\r\n${headers}`);
  await raw.write(payload);
  await raw.write("\r\n");
  await eventually("it is settled", () => acks.seen.length > 0);
  assert.deepEqual(acks.of(1), [NAK]);
  assert.equal(rig.ledger.outstanding, 0);
  assert.equal(rig.consumer.report().lanes[0]?.held, 0);
  await rig.stop();
});

Deno.test("the delay of a NAK is SIE_NAK_DELAY_S", () =>
  refusedWith({ ...NAKED, body: '-NAK {"delay":250000000}' }, new Uint8Array(0), {
    rig: { environment: { SIE_NAK_DELAY_S: "0.25" } },
  }));

Deno.test("5.1 #11: the subject's model counts, but a model that makes the same token is kept", async () => {
  await using rig = await Rig.start();
  await rig.gateway.sendRaw("sie.work.default.l4.default.org__other", workItemBytes({ model_id: "org/model" }));
  await rig.gateway.sendRaw("sie.work.default.l4.default.org__a__b", workItemBytes({ model_id: "org/a__b" }));
  await eventually("both are run", () => rig.intake.arrivals.length === 2);
  assert.deepEqual(rig.intake.arrivals.map(({ work }) => work.modelId), ["org/other", "org/a__b"]);
  await rig.settled();
  await rig.stop();
});

Deno.test("5.1 #11 with SIE_COMPAT=reference: the token is read back, lossy as it is", async () => {
  await using rig = await Rig.start({ environment: { SIE_COMPAT: "reference" } });
  await rig.gateway.sendRaw("sie.work.default.l4.default.org__a__b", workItemBytes({ model_id: "org/a__b" }));
  await eventually("it is run", () => rig.intake.arrivals.length === 1);
  assert.deepEqual(rig.intake.arrivals.map(({ work }) => work.modelId), ["org/a/b"]);
  await rig.settled();
  await rig.stop();
});
