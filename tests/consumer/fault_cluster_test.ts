/** A cluster of three loses the leader of the stream while 20,000 items flow. */
import assert from "node:assert/strict";
import { jetstreamManager } from "@nats-io/jetstream";
import { nanos, type NatsConnection } from "@nats-io/nats-core";
import type { BrokerConnection } from "../../src/consumer/broker_connection.ts";
import { connectToBroker } from "../../src/consumer/connect.ts";
import { Cancellations } from "../../src/consumer/cancellations.ts";
import { startConsumer } from "../../src/consumer/start_consumer.ts";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import type { Settings } from "../../src/settings/settings.ts";
import { printLine } from "../../scripts/lib/print.ts";
import { FakeGateway } from "../fake_gateway/gateway.ts";
import { connectNats } from "../harness/nats_client.ts";
import { eventually } from "../harness/process.ts";
import { DURABLE, STREAM } from "./fault_support.ts";
import { NatsCluster } from "./nats_cluster.ts";
import { Pace } from "./paced.ts";
import { LANE, ScriptedIntake, settingsFor } from "./support.ts";

const ITEMS = 20_000;

/** A connection to this one of the servers, that knows them all. */
async function connectTo(cluster: NatsCluster, name: string, settings: Settings): Promise<BrokerConnection> {
  return await eventually(`a connection to ${name}`, async () => {
    const { nats } = settings;
    const url = cluster.urls(name).join(",");
    const connection = await connectToBroker({ url, security: nats.security, clock: systemClock, name: "test" });
    if (connection.nats.info?.server_name === name) return connection;
    await connection.close();
    return undefined;
  });
}

/**
 * Items that the broker still has, once the stream and the consumer have new leaders. ACKs are not confirmed, and a leader takes
 * those with it that it has not told the others of; how many depends on how busy the machine is.
 */
async function remainingItems(nats: NatsConnection, oldLeader: string): Promise<number> {
  // Without the question whether JetStream is there: nobody answers it while the cluster has no leader either.
  const manager = await jetstreamManager(nats, { checkAPI: false });
  return await eventually("stream and consumer have new leaders", async () => {
    // Nobody answers while there is no leader: the question is put again.
    const asked = await Promise.all([manager.streams.info(STREAM), manager.consumers.info(STREAM, DURABLE)])
      .catch(() => undefined);
    if (asked === undefined) return undefined;
    const [stream, consumer] = asked;
    const leaders = [stream.cluster?.leader, consumer.cluster?.leader];
    if (leaders.includes(undefined) || leaders.includes(oldLeader)) return undefined;
    return Math.max(stream.state.messages, consumer.num_pending + consumer.num_ack_pending);
  });
}

/** Lets the leader of the stream lead the consumer too, so that it takes both with it. */
async function leadBoth(nats: NatsConnection, leader: string): Promise<void> {
  const manager = await jetstreamManager(nats, { checkAPI: false });
  await eventually(`${leader} leads the consumer`, async () => {
    const { cluster } = await manager.consumers.info(STREAM, DURABLE);
    if (cluster?.leader === leader) return true;
    if (cluster?.leader !== undefined) await nats.request(`$JS.API.CONSUMER.LEADER.STEPDOWN.${STREAM}.${DURABLE}`);
    return false;
  });
}

Deno.test("fault: three nodes, the stream's leader is killed while 20,000 items flow", async () => {
  await using cluster = await NatsCluster.start();
  const settings = settingsFor({
    SIE_STREAM_STORAGE: "file",
    SIE_STREAM_REPLICAS: "3",
    SIE_NATS_FETCH_BUDGET: "256",
    SIE_PULL_LOOP_MAX_OUTSTANDING: "256",
  });
  // The stream exists before anybody knows who leads it.
  const first = await connectNats({ servers: cluster.urls() });
  const manager = await jetstreamManager(first);
  await manager.streams.add({
    name: STREAM,
    subjects: ["sie.work.default.*.*.*"],
    retention: "workqueue",
    storage: "file",
    num_replicas: 3,
    max_msgs: 100_000,
    discard: "new",
    max_age: nanos(settings.nats.streamMaxAgeMs),
  });
  const leader = await eventually(
    "the stream has a leader",
    async () => (await manager.streams.info(STREAM)).cluster?.leader,
  );
  await first.close();
  const survivors = [...cluster.servers.keys()].filter((name) => name !== leader);

  // The worker sits at the leader, the gateway does not: what it publishes into its inbox must not be lost with the node.
  const connection = await connectTo(cluster, leader, settings);
  using pace = new Pace();
  const intake = new ScriptedIntake(pace.script());
  const ledger = new SettlementLedger();
  const consumer = await startConsumer({
    settings,
    connection,
    intake,
    clock: systemClock,
    ledger,
    budget: new ByteBudget({ limit: 1 << 28 }),
    cancellations: new Cancellations({ clock: systemClock, deadlines: settings.deadlines }),
    admission: undefined,
    quantumMs: () => 2,
  });
  await using gateway = await FakeGateway.connect({
    url: cluster.urls(...survivors).slice(0, 2).join(","),
    lane: LANE,
    connection: { servers: cluster.urls(...survivors).slice(0, 2), noRandomize: true },
  });
  await eventually("the ack wait is short", async () => {
    const api = await jetstreamManager(gateway.nats);
    return await api.consumers.update(STREAM, DURABLE, { ack_wait: nanos(2_000) });
  });
  await consumer.reconcile();
  await leadBoth(gateway.nats, leader);

  const request = await gateway.send({ items: ITEMS });
  consumer.startPulling();
  pace.run(100);
  await eventually("a quarter is answered", () => request.results.size >= ITEMS / 4);
  // Nothing is answered between the fault and the look at what the broker has left.
  pace.halt();
  await cluster.servers.get(leader)?.process.stop("SIGKILL");
  const killed = performance.now();
  assert.ok(request.results.size < ITEMS, "all was done before the fault");
  const remaining = await remainingItems(gateway.nats, leader);
  const unacknowledged = intake.executions().size - (ITEMS - remaining);
  const atRecovery = request.results.size;
  pace.run(100);
  // More than was held: new work has come.
  await eventually("work goes on", () => request.results.size > atRecovery + 256);
  const recovered = performance.now() - killed;
  await gateway.answered(120_000);
  await eventually("everything is settled", () => ledger.outstanding === 0);
  let duplicates = 0;
  for (const count of intake.executions().values()) duplicates += count - 1;
  printLine(
    `fault: leader of a three-node stream killed | sent ${ITEMS} | answered ${request.results.size} | run twice ${duplicates}` +
      ` (unacknowledged ${unacknowledged}) | recovered in ${Math.round(recovered)} ms`,
  );
  assert.equal(request.results.size, ITEMS);
  assert.deepEqual(gateway.violations(), []);
  assert.equal(ledger.counts.refused, 0);
  assert.ok(duplicates <= unacknowledged, `${duplicates} run twice, ${unacknowledged} were unacknowledged`);
  await consumer.close();
  await connection.close();
});
