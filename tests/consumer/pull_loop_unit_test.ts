/** The pull loop on virtual time and a connection that is only played: what would take hours, or cannot be provoked. */
import assert from "node:assert/strict";
import { headers, type MsgHdrs } from "@nats-io/nats-core";
import type { BrokerConnection, BrokerMessage, ConnectionListener } from "../../src/consumer/broker_connection.ts";
import { noConsumerMetrics } from "../../src/consumer/consumer_metrics.ts";
import { poolLane } from "../../src/consumer/names.ts";
import { type LaneFacts, lanePlan } from "../../src/consumer/provisioning.ts";
import { PullLoop } from "../../src/consumer/pull_loop.ts";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";
import { LANE, ScriptedIntake, settingsFor } from "./support.ts";

interface Asked {
  readonly batch: number;
  readonly reply: string;
  readonly at: number;
}

const FACTS: LaneFacts = { ackWaitMs: 30_000, maxAckPending: 1_000, pending: 0, ackPending: 0, paused: false };

/** A loop whose broker is the test. */
class Played {
  readonly clock = new VirtualClock();
  readonly asked: Asked[] = [];
  readonly intake = new ScriptedIntake(({ delivery }) => void delivery.ack("completed"));
  readonly loop: PullLoop;
  connected = true;
  reconnects = 0;
  ensures = 0;
  lookUp: () => Promise<LaneFacts | undefined> = () => Promise.resolve(FACTS);
  ensure: () => Promise<LaneFacts> = () => Promise.resolve(FACTS);
  #deliver: (message: BrokerMessage) => void = () => assert.fail("not subscribed");
  #listener: ConnectionListener = {};
  #sequence = 0;

  constructor(environment: Record<string, string> = {}) {
    const settings = settingsFor(environment);
    const isConnected = () => this.connected;
    const connection = {
      get connected() {
        return isConnected();
      },
      state: "connected",
      session: {},
      maxPayload: 1 << 20,
      send: (subject: string, payload: Uint8Array, reply = "") => {
        if (subject.startsWith("$JS.API.CONSUMER.MSG.NEXT.")) {
          const { batch } = JSON.parse(new TextDecoder().decode(payload)) as { batch: number };
          this.asked.push({ batch, reply, at: this.clock.now() });
        }
        return true;
      },
      sendEventually: () => true,
      subscribe: (_: string, handler: (message: BrokerMessage) => void) => {
        this.#deliver = handler;
        return { close: () => {} };
      },
      listen: (listener: ConnectionListener) => {
        this.#listener = listener;
        return () => {};
      },
      reconnect: () => void this.reconnects++,
    };
    this.loop = new PullLoop({
      plan: lanePlan("pool", poolLane(LANE), settings.nats),
      facts: FACTS,
      connection: connection as unknown as BrokerConnection,
      intake: this.intake,
      clock: this.clock,
      ledger: new SettlementLedger(),
      budget: new ByteBudget({ limit: 1 << 28 }),
      metrics: noConsumerMetrics,
      pull: settings.pull,
      nakDelayMs: 5_000,
      reference: false,
      quantumMs: () => 2,
      keeping: {
        deadlines: { skewToleranceS: 5, maxBudgetS: 180 },
        enforce: false,
        longestMs: 1_800_000,
        mayProgress: () => true,
      },
      gate: () => undefined,
      ensure: () => {
        this.ensures++;
        return this.ensure();
      },
      lookUp: () => this.lookUp(),
      reconcile: () => Promise.resolve(FACTS),
    });
    this.loop.start();
  }

  get last(): Asked {
    return this.asked.at(-1) ?? assert.fail("nothing was asked");
  }

  /** Sends a status to a request's inbox. */
  status(code: number, text: string, unserved?: number, request = this.last): void {
    const set = headers(code, text);
    if (unserved !== undefined) set.set("Nats-Pending-Messages", String(unserved));
    this.#deliver(message(request.reply, "", new Uint8Array(0), set));
  }

  /** Sends a work item. */
  work(): void {
    const sequence = ++this.#sequence;
    const reply = `$JS.ACK.WORK_POOL_default.default_l4_default.1.${sequence}.${sequence}.1.0`;
    this.#deliver(message("sie.work.default.l4.default.test__model", reply, workItemBytes()));
  }

  disconnect(): void {
    this.connected = false;
    this.#listener.disconnected?.();
  }

  reconnect(): void {
    this.connected = true;
    this.#listener.reconnected?.();
  }
}

function message(subject: string, reply: string, data: Uint8Array, set?: MsgHdrs): BrokerMessage {
  return { subject, reply, data, ...(set === undefined ? {} : { headers: set }) } as BrokerMessage;
}

Deno.test("100,000 empty pulls: each is followed by the next, and nothing grows", async () => {
  const played = new Played();
  const heapAfter = async (pulls: number) => {
    for (let i = 0; i < pulls; i++) {
      played.status(408, "Request Timeout", played.last.batch);
      await Promise.resolve();
      if (i % 1_000 === 0) await settle();
    }
    return Deno.memoryUsage().heapUsed;
  };
  await heapAfter(5_000);
  assert.equal(played.asked.length, 5_001);
  // What the test itself keeps is not the loop's.
  played.asked.splice(0, played.asked.length - 1);
  const before = await heapAfter(5_000);
  played.asked.splice(0, played.asked.length - 1);
  let after = 0;
  for (let round = 0; round < 9; round++) {
    after = await heapAfter(10_000);
    assert.equal(played.asked.length, 10_001);
    played.asked.splice(0, played.asked.length - 1);
  }
  assert.ok(after - before < 16 * 1024 * 1024, `the heap grew by ${after - before} bytes`);
  assert.equal(played.loop.report().credit, 64);
  played.loop.close();
});

Deno.test("silence: asked again, looked at, and then another connection, within seconds", async () => {
  const played = new Played();
  await played.clock.advance(3_500);
  assert.equal(played.asked.length, 1);
  await played.clock.advance(500);
  assert.equal(played.loop.report().state, "stalled");
  assert.equal(played.loop.report().repulls, 1);
  assert.equal(played.asked.length, 2);
  await played.clock.advance(4_000);
  assert.equal(played.ensures, 1);
  assert.equal(played.loop.report().rebuilds, 1);
  await played.clock.advance(4_000);
  assert.equal(played.reconnects, 1);
  played.disconnect();
  played.reconnect();
  assert.equal(played.loop.report().state, "pulling");
  assert.ok(played.clock.now() < 13_000);
  played.loop.close();
});

Deno.test("heartbeats keep a quiet lane from being healed", async () => {
  const played = new Played();
  for (let i = 0; i < 60; i++) {
    await played.clock.advance(1_250);
    played.status(100, "Idle Heartbeat");
    if (i % 4 === 3) played.status(408, "Request Timeout", played.last.batch);
  }
  const { state, repulls, rebuilds } = played.loop.report();
  assert.deepEqual({ state, repulls, rebuilds }, { state: "pulling", repulls: 0, rebuilds: 0 });
  played.loop.close();
});

Deno.test("work that waits at a broker that is alive and sends none: asked again, then looked at as a whole", async () => {
  const played = new Played();
  played.lookUp = () => Promise.resolve({ ...FACTS, pending: 7 });
  for (let i = 0; i < 40 && played.ensures === 0; i++) {
    await played.clock.advance(1_250);
    played.status(100, "Idle Heartbeat");
    if (i % 4 === 3) played.status(408, "Request Timeout", played.last.batch);
  }
  assert.equal(played.loop.report().repulls, 1);
  assert.equal(played.ensures, 1);
  played.work();
  await played.clock.advance(2);
  assert.equal(played.loop.report().state, "pulling");
  played.loop.close();
});

Deno.test("a deleted consumer is rebuilt until it stands, with every failure said", async () => {
  const played = new Played();
  let failures = 3;
  played.lookUp = () => Promise.resolve(undefined);
  played.ensure = () =>
    failures-- > 0 ? Promise.reject(new Error("the cluster has no leader")) : Promise.resolve(FACTS);
  played.status(409, "Consumer Deleted");
  await settle();
  assert.equal(played.loop.report().state, "rebuilding");
  assert.equal(played.loop.report().detail, "the cluster has no leader");
  assert.equal(played.loop.report().credit, 0);
  await played.clock.advance(5_000);
  assert.equal(played.loop.report().state, "pulling");
  assert.equal(played.ensures, 4);
  assert.equal(played.asked.length, 2);
  played.loop.close();
});

Deno.test("a limit of the consumer is learned: smaller batches, shorter waits", async () => {
  const played = new Played();
  assert.equal(played.last.batch, 64);
  played.status(409, "Exceeded MaxRequestBatch of 20");
  await settle();
  assert.equal(played.last.batch, 32);
  played.status(409, "Exceeded MaxRequestBatch of 20");
  await settle();
  assert.equal(played.last.batch, 16);
  played.status(409, "Exceeded MaxRequestExpires of 3s");
  await settle();
  assert.equal(played.loop.heartbeatMs, 625);
  played.loop.close();
});

Deno.test("a request turned down for the moment is repeated after a pause", async () => {
  const played = new Played();
  played.status(409, "Exceeded MaxWaiting");
  await played.clock.advance(400);
  assert.equal(played.asked.length, 1);
  await played.clock.advance(400);
  assert.equal(played.asked.length, 2);
  played.loop.close();
});

Deno.test("credit is asked for at half, within the permits, and once per burst", async () => {
  const played = new Played({ SIE_NATS_FETCH_BUDGET: "8", SIE_PULL_LOOP_MAX_OUTSTANDING: "10" });
  const free: (() => void)[] = [];
  played.intake.script = async ({ delivery }) => {
    await new Promise<void>((resolve) => free.push(resolve));
    delivery.ack("completed");
  };
  for (let i = 0; i < 3; i++) played.work();
  await settle();
  assert.deepEqual(played.asked.map(({ batch }) => batch), [8]);
  played.work();
  await settle();
  // Four held and four owed: two permits are left.
  assert.deepEqual(played.asked.map(({ batch }) => batch), [8, 2]);
  for (let i = 0; i < 6; i++) played.work();
  await played.clock.advance(2);
  assert.equal(played.loop.report().credit, 0);
  assert.equal(played.asked.length, 2);
  free.splice(0, 5).forEach((resolve) => resolve());
  await settle();
  assert.deepEqual(played.asked.map(({ batch }) => batch), [8, 2, 5]);
  free.splice(0).forEach((resolve) => resolve());
  await settle();
  played.loop.close();
});
