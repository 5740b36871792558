/** The chart's narrow rights: enough for everything, and a missing one is named (spec/queue.md 1.7). */
import assert from "node:assert/strict";
import { jetstreamManager } from "@nats-io/jetstream";
import { Cancellations } from "../../src/consumer/cancellations.ts";
import { connectToBroker } from "../../src/consumer/connect.ts";
import { BrokerError } from "../../src/consumer/errors.ts";
import { startConsumer } from "../../src/consumer/start_consumer.ts";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { CapturedLog } from "../harness/captured_log.ts";
import { connectNats } from "../harness/nats_client.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { LANE, Rig, ScriptedIntake, settingsFor } from "./support.ts";

const PUBLISH = [
  "_INBOX.>",
  "sie.health.>",
  "$JS.ACK.>",
  "$JS.API.STREAM.INFO.*",
  "$JS.API.STREAM.CREATE.*",
  "$JS.API.STREAM.UPDATE.*",
  "$JS.API.CONSUMER.LIST.*",
  "$JS.API.CONSUMER.INFO.*.*",
  "$JS.API.CONSUMER.CREATE.*.>",
  "$JS.API.CONSUMER.DELETE.*.*",
  "$JS.API.CONSUMER.MSG.NEXT.*.*",
];
const SUBSCRIBE = ["sie.config.models.*", "cancel.>", "work_cancel.>", "batch_cancel.>", "_INBOX_WORKER.>"];

/** Server configuration with the chart's users, the worker's rights as given. */
function users(publish: readonly string[] = PUBLISH, subscribe: readonly string[] = SUBSCRIBE): string {
  const rights = (pub: readonly string[], sub: readonly string[]) =>
    `permissions: { publish: ${JSON.stringify(pub)}, subscribe: ${JSON.stringify(sub)} }`;
  const gatewayPublish = [
    "sie.work.>",
    "sie.dlq.>",
    "cancel.>",
    "work_cancel.>",
    "batch_cancel.>",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.CREATE.*",
    "$JS.API.STREAM.UPDATE.*",
    "$JS.API.CONSUMER.INFO.*.*",
  ];
  const gatewaySubscribe = ["sie.config.models._all", "sie.health.>", "_INBOX.>", "$JS.EVENT.ADVISORY.CONSUMER.>"];
  return `authorization { users: [
    { user: sie-worker, password: w, ${rights(publish, subscribe)} },
    { user: sie-gateway, password: g, ${rights(gatewayPublish, gatewaySubscribe)} },
    { user: admin, password: a } ] }`;
}

const WORKER = { SIE_NATS_USER: "sie-worker", SIE_NATS_PASSWORD: "w" };

Deno.test("with the chart's rights a worker provisions, pulls, answers, is cancelled and corrects its lane", async () => {
  await using rig = await Rig.start({
    config: users(),
    environment: WORKER,
    gateway: { connection: { user: "sie-gateway", pass: "g" } },
    admin: { user: "admin", pass: "a" },
  });
  await rig.gateway.send({ items: 50 });
  await rig.gateway.send({ items: 5, worker: LANE.workerId });
  await rig.gateway.answered();
  await rig.gateway.cancel("some-request");
  await eventually("the cancel has come", () => rig.cancellations.size.requests === 1);
  await rig.settled();
  await rig.manager.consumers.delete("WORK_POOL_default", "default_l4_default");
  await eventually("the consumer is back", async () => (await rig.consumerInfo()).name !== "");
  await rig.gateway.send({ items: 5 });
  await rig.gateway.answered();
  await rig.settled();
  await rig.stop();
});

Deno.test("the worker can neither publish work, nor read gateways' inboxes", async () => {
  await using rig = await Rig.start({
    config: users(),
    environment: WORKER,
    gateway: { connection: { user: "sie-gateway", pass: "g" } },
    admin: { user: "admin", pass: "a" },
  });
  const refused: string[] = [];
  rig.connection.listen({ refused: (operation, subject) => void refused.push(`${operation} ${subject}`) });
  rig.connection.send("sie.work.default.l4.default.m", new Uint8Array(1));
  rig.connection.subscribe("_INBOX.>", () => assert.fail("it can read"));
  await rig.connection.flush();
  await eventually("both are refused", () => refused.length === 2);
  assert.deepEqual(refused.sort(), ["publish sie.work.default.l4.default.m", "subscription _INBOX.>"]);
  await rig.stop();
});

/** Starts a consumer with these rights. */
async function startWith(publish: readonly string[], subscribe: readonly string[], prepare = false): Promise<void> {
  using folder = new TestFolder();
  await using server = await NatsServer.start({ folder: folder.path, config: users(publish, subscribe) });
  const settings = settingsFor(WORKER);
  const parts = () => ({
    settings,
    intake: new ScriptedIntake(),
    clock: systemClock,
    ledger: new SettlementLedger(),
    budget: new ByteBudget({ limit: 1 << 20 }),
    cancellations: new Cancellations({ clock: systemClock, deadlines: settings.deadlines }),
    admission: undefined,
    quantumMs: () => 2,
  });
  if (prepare) {
    const admin = await connectNats({ servers: server.url, user: "admin", pass: "a" });
    const manager = await jetstreamManager(admin);
    await manager.streams.add({ name: "WORK_POOL_default", subjects: ["sie.work.default.*.*.*"] });
    await admin.close();
  }
  const connection = await connectToBroker({
    url: server.url,
    security: settings.nats.security,
    clock: systemClock,
    name: "test",
  });
  try {
    const handle = await startConsumer({ ...parts(), connection });
    await handle.close();
  } finally {
    await connection.close();
  }
}

const without = (list: readonly string[], left: string) => list.filter((right) => right !== left);

for (
  const [right, needs] of [
    ["$JS.API.STREAM.INFO.*", false],
    ["$JS.API.STREAM.CREATE.*", false],
    ["$JS.API.STREAM.UPDATE.*", true],
    ["$JS.API.CONSUMER.INFO.*.*", false],
    ["$JS.API.CONSUMER.CREATE.*.>", false],
  ] as const
) {
  Deno.test(`without the right to publish to ${right} the start fails and names it`, async () => {
    await assert.rejects(startWith(without(PUBLISH, right), SUBSCRIBE, needs), (error: unknown) => {
      assert.ok(error instanceof BrokerError, String(error));
      assert.equal(error.fault, "permission");
      assert.ok(error.message.includes(`the worker's user needs '${right}'`), error.message);
      return true;
    });
  });
}

Deno.test("without the right to list consumers the start goes on: the sweep is not a must", () =>
  startWith(without(PUBLISH, "$JS.API.CONSUMER.LIST.*"), SUBSCRIBE));

for (const right of ["work_cancel.>", "batch_cancel.>"]) {
  Deno.test(`without the right to subscribe to ${right} the start fails and names it`, async () => {
    await assert.rejects(
      startWith(PUBLISH, without(SUBSCRIBE, right)),
      (error: unknown) =>
        error instanceof BrokerError && error.message === `the user lacks the right to subscribe to ${right}`,
    );
  });
}

Deno.test("without the right to subscribe to cancel.> the start goes on", () =>
  startWith(PUBLISH, without(SUBSCRIBE, "cancel.>")));

Deno.test("a missing right is said, not each refusal of it", async () => {
  using log = new CapturedLog();
  await using rig = await Rig.start({
    config: users(without(PUBLISH, "_INBOX.>"), without(SUBSCRIBE, "cancel.>")),
    environment: WORKER,
    gateway: { connection: { user: "sie-gateway", pass: "g" } },
    admin: { user: "admin", pass: "a" },
  });
  const refused = { publish: 0, subscription: 0 };
  rig.connection.listen({ refused: (operation) => refused[operation]++ });
  for (let router = 0; router < 10; router++) rig.connection.send(`_INBOX.gw-${router}.request`, new Uint8Array(1));
  await eventually("all answers are refused", () => refused.publish === 10);
  await eventually("the subscription is tried again and again", () => refused.subscription >= 3);
  assert.equal(log.matching(/no right to publish to/).length, 1);
  assert.equal(log.matching(/no right to subscribe to/).length, 1);
  assert.equal(log.matching(/the subscription cancel\.> ended/).length, 1);
  await rig.stop();
});

Deno.test("without the right to pull the lane is refused, says so, and goes on when it gets it", async () => {
  const config = (publish: readonly string[]) => users(publish);
  await using rig = await Rig.start({
    config: config(without(PUBLISH, "$JS.API.CONSUMER.MSG.NEXT.*.*")),
    environment: WORKER,
    gateway: { connection: { user: "sie-gateway", pass: "g" } },
    admin: { user: "admin", pass: "a" },
  });
  const pool = () => rig.consumer.report().lanes[0] ?? assert.fail();
  await eventually("the lane is refused", () => pool().state === "refused");
  assert.match(pool().detail, /lacks the right to publish to '\$JS\.API\.CONSUMER\.MSG\.NEXT\.WORK_POOL_default/);
  await rig.server.reload(config(PUBLISH));
  await rig.gateway.send({ items: 3 });
  await rig.gateway.answered();
  await eventually("the lane pulls", () => pool().state === "pulling");
  await rig.settled();
  await rig.stop();
});

Deno.test("without the right to hear answers the lane is refused, says so, and goes on when it gets it", async () => {
  await using rig = await Rig.start({
    config: users(),
    environment: WORKER,
    gateway: { connection: { user: "sie-gateway", pass: "g" } },
    admin: { user: "admin", pass: "a" },
  });
  const pool = () => rig.consumer.report().lanes[0] ?? assert.fail();
  await rig.gateway.send({ items: 3 });
  await rig.gateway.answered();
  await rig.server.reload(users(PUBLISH, without(SUBSCRIBE, "_INBOX_WORKER.>")));
  await eventually("the lane is refused", () => pool().state === "refused");
  await rig.server.reload(users());
  await rig.gateway.send({ items: 3 });
  await rig.gateway.answered();
  await eventually("the lane pulls", () => pool().state === "pulling");
  await rig.settled();
  await rig.stop();
});

for (const right of ["_INBOX.>", "$JS.ACK.>"]) {
  Deno.test(`without the right to publish to ${right} the lane stops pulling: work would be lost, or run for ever`, async () => {
    await using rig = await Rig.start({
      config: users(without(PUBLISH, right)),
      environment: { ...WORKER, SIE_NATS_FETCH_BUDGET: "4", SIE_PULL_LOOP_MAX_OUTSTANDING: "4" },
      gateway: { connection: { user: "sie-gateway", pass: "g" } },
      admin: { user: "admin", pass: "a" },
    });
    await rig.gateway.send({ items: 100 });
    const pool = () => rig.consumer.report().lanes[0] ?? assert.fail();
    await eventually("the lane is refused", () => pool().state === "refused");
    assert.ok(pool().detail.includes(`'${right}'`), pool().detail);
    assert.ok(rig.intake.arrivals.length < 100, "it went on as if nothing were wrong");
    await rig.stop();
  });
}
