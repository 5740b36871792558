/** Streams and durables on a real broker: made, corrected, swept, never thrown away (spec/queue.md 1.4, 1.5). */
import assert from "node:assert/strict";
import {
  AckPolicy,
  type ConsumerConfig,
  type JetStreamManager,
  jetstreamManager,
  RetentionPolicy,
  StorageType,
} from "@nats-io/jetstream";
import { nanos, type NatsConnection } from "@nats-io/nats-core";
import { BrokerError } from "../../src/consumer/errors.ts";
import { directLane, poolLane } from "../../src/consumer/names.ts";
import { ensureLane, type LanePlan, lanePlan, lookUpLane } from "../../src/consumer/provisioning.ts";
import { connectNats } from "../harness/nats_client.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { TestFolder } from "../harness/process.ts";
import { LANE, settingsFor } from "./support.ts";

const STREAM = "WORK_POOL_default";
const DURABLE = "default_l4_default";
const FILTER = "sie.work.default.l4.default.*";

/** Runs `body` with an own server and the pool lane's plan. */
async function withBroker(
  body: (api: JetStreamManager, plan: LanePlan, nats: NatsConnection) => Promise<void>,
  environment: Record<string, string> = {},
): Promise<void> {
  using folder = new TestFolder();
  await using server = await NatsServer.start({ folder: folder.path });
  const nats = await connectNats({ servers: server.url });
  try {
    await body(await jetstreamManager(nats), lanePlan("pool", poolLane(LANE), settingsFor(environment).nats), nats);
  } finally {
    await nats.close();
  }
}

Deno.test("both lanes come into being as the contract says", () =>
  withBroker(async (api, pool) => {
    const facts = await ensureLane(api, pool);
    const { streamCreated, ...state } = facts;
    assert.deepEqual(state, { ackWaitMs: 30_000, maxAckPending: 1000, pending: 0, ackPending: 0, paused: false });
    assert.equal(streamCreated, (await api.streams.info(STREAM)).created);
    const { config: stream } = await api.streams.info(STREAM);
    assert.deepEqual(stream.subjects, ["sie.work.default.*.*.*"]);
    assert.equal(stream.retention, "workqueue");
    assert.equal(stream.storage, "memory");
    assert.equal(stream.max_age, nanos(1_800_000));
    assert.equal(stream.max_msgs, 100_000);
    assert.equal(stream.discard, "new");
    assert.equal(stream.num_replicas, 1);
    const { config: consumer } = await api.consumers.info(STREAM, DURABLE);
    assert.equal(consumer.filter_subject, FILTER);
    assert.equal(consumer.ack_policy, "explicit");
    assert.equal(consumer.ack_wait, nanos(30_000));
    assert.equal(consumer.max_deliver, 20);
    assert.equal(consumer.max_ack_pending, 1000);
    assert.equal(consumer.inactive_threshold ?? 0, 0);

    const direct = await ensureLane(api, lanePlan("direct", directLane(LANE), settingsFor().nats));
    assert.equal(direct.ackWaitMs, 300_000);
    const { config: worker } = await api.streams.info("WORK_WORKER_worker-1");
    assert.deepEqual(worker.subjects, ["sie.work.default.l4.default.*.worker-1"]);
    assert.equal(worker.max_age, nanos(6_000_000));
    const { config: gen } = await api.consumers.info("WORK_WORKER_worker-1", "gen-worker-1");
    assert.equal(gen.filter_subject, "sie.work.default.l4.default.*.worker-1");
    // A second time nothing changes.
    await ensureLane(api, pool);
  }));

Deno.test("a stream that somebody made otherwise is corrected field by field and keeps its messages", () =>
  withBroker(async (api, plan, nats) => {
    await api.streams.add({
      name: STREAM,
      subjects: ["sie.work.default.*.*.*", "sie.work.legacy.>"],
      retention: RetentionPolicy.Workqueue,
      storage: StorageType.File,
      max_age: nanos(60_000),
    });
    nats.publish("sie.work.default.l4.default.m", new Uint8Array(3));
    await nats.flush();
    await ensureLane(api, plan);
    const { config, state } = await api.streams.info(STREAM);
    assert.deepEqual(config.subjects, ["sie.work.default.*.*.*"]);
    assert.equal(config.max_age, nanos(1_800_000));
    assert.equal(config.discard, "new");
    // The storage is another one; it stays, and so do the messages.
    assert.equal(config.storage, "file");
    assert.equal(state.messages, 1);
  }));

Deno.test("stale consumers that overlap ours are swept; with the conservative switch only unused ones", () =>
  withBroker(async (api, plan) => {
    await api.streams.add({ name: STREAM, subjects: ["sie.work.default.*.*.*"], retention: RetentionPolicy.Workqueue });
    const add = (durable_name: string, filter_subject: string) =>
      api.consumers.add(STREAM, { durable_name, filter_subject, ack_policy: AckPolicy.Explicit });
    await add("old", "sie.work.default.l4.default.a");
    await add("elsewhere", "sie.work.default.h100.default.*");
    await ensureLane(api, plan);
    const names = [];
    for await (const { name } of api.consumers.list(STREAM)) names.push(name);
    assert.deepEqual(names.sort(), [DURABLE, "elsewhere"].sort());
  }));

Deno.test("a consumer in use survives the conservative sweep, and the start says why it fails", () =>
  withBroker(async (api, plan, nats) => {
    await api.streams.add({ name: STREAM, subjects: ["sie.work.default.*.*.*"], retention: RetentionPolicy.Workqueue });
    await api.consumers.add(STREAM, {
      durable_name: "used",
      filter_subject: "sie.work.default.l4.default.a",
      ack_policy: AckPolicy.Explicit,
    });
    const inbox = nats.subscribe("held.inbox");
    nats.publish(`$JS.API.CONSUMER.MSG.NEXT.${STREAM}.used`, JSON.stringify({ batch: 1, expires: nanos(30_000) }), {
      reply: "held.inbox",
    });
    await nats.flush();
    await assert.rejects(
      ensureLane(api, plan),
      (error: unknown) =>
        error instanceof BrokerError && /create consumer default_l4_default.*10100/.test(error.message),
    );
    assert.equal((await api.consumers.info(STREAM, "used")).num_waiting, 1);
    inbox.unsubscribe();
  }, { SIE_NATS_CONSERVATIVE_CLEANUP: "1" }));

const FOREIGN_FILTERS: readonly [string, Partial<ConsumerConfig>][] = [
  ["another single filter", { filter_subject: "sie.work.default.l4.default.m" }],
  ["several filters", { filter_subjects: ["sie.work.default.l4.default.m", "sie.work.default.l4.other.*"] }],
  ["extra filters", { filter_subjects: [FILTER, "sie.work.default.l4.other.*"] }],
];

for (const [what, foreign] of FOREIGN_FILTERS) {
  Deno.test(`our consumer with ${what} gets ours back, and the work that lay there`, () =>
    withBroker(async (api, plan, nats) => {
      await api.streams.add({
        name: STREAM,
        subjects: ["sie.work.default.*.*.*"],
        retention: RetentionPolicy.Workqueue,
      });
      await api.consumers.add(STREAM, { durable_name: DURABLE, ack_policy: AckPolicy.Explicit, ...foreign });
      for (const model of ["m", "n"]) nats.publish(`sie.work.default.l4.default.${model}`, new Uint8Array(1));
      await nats.flush();
      assert.equal(await lookUpLane(api, plan), undefined);
      const facts = await ensureLane(api, plan);
      assert.equal(facts.pending, 2);
      const { config } = await api.consumers.info(STREAM, DURABLE);
      assert.equal(config.filter_subject, FILTER);
      assert.equal(config.filter_subjects, undefined);
      assert.equal((await lookUpLane(api, plan))?.pending, 2);
    }));
}

Deno.test("our filter in the list form is left alone", () =>
  withBroker(async (api, plan) => {
    await api.streams.add({ name: STREAM, subjects: ["sie.work.default.*.*.*"], retention: RetentionPolicy.Workqueue });
    await api.consumers.add(STREAM, {
      durable_name: DURABLE,
      ack_policy: AckPolicy.Explicit,
      filter_subjects: [FILTER],
      ack_wait: nanos(7_000),
    });
    const facts = await ensureLane(api, plan);
    // Its own tuning counts, not ours.
    assert.equal(facts.ackWaitMs, 7_000);
  }));

Deno.test("what the broker cannot do is said with its reason", async (t) => {
  await t.step("more replicas than servers", () =>
    withBroker(async (api, plan) => {
      await assert.rejects(ensureLane(api, plan), (error: unknown) =>
        error instanceof BrokerError && error.fault === "provision" &&
        /create stream WORK_POOL_default.*SIE_STREAM_REPLICAS/.test(error.message));
    }, { SIE_STREAM_REPLICAS: "3" }));
  await t.step("another stream has the subjects", () =>
    withBroker(async (api, plan) => {
      await api.streams.add({ name: "OTHER", subjects: ["sie.work.default.l4.>"] });
      await assert.rejects(ensureLane(api, plan), (error: unknown) =>
        error instanceof BrokerError && /another stream has the lane's subjects/.test(error.message));
    }));
});

Deno.test("two replicas that start at once end with one stream and one consumer", () =>
  withBroker(async (api, plan) => {
    const other = { ...plan, ackWaitMs: 20_000 };
    await Promise.all([ensureLane(api, plan), ensureLane(api, other), ensureLane(api, plan)]);
    const names = [];
    for await (const { name } of api.consumers.list(STREAM)) names.push(name);
    assert.deepEqual(names, [DURABLE]);
  }));
