/** One delivery by itself: settled once, never ACKed when its result may be lost. */
import assert from "node:assert/strict";
import type { BrokerConnection } from "../../src/consumer/broker_connection.ts";
import { BrokerError } from "../../src/consumer/errors.ts";
import { type DeliveryHost, JetStreamDelivery } from "../../src/consumer/jetstream_delivery.ts";
import { LaneSettlements } from "../../src/consumer/lane_settlements.ts";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";
import { CountingMetrics } from "./support.ts";

const ACK = "$JS.ACK.S.c.2.1.1.1.0";

/** A connection that the test breaks and mends. */
class FakeConnection {
  connected = true;
  closed = false;
  session: object = {};
  readonly maxPayload = 1_000;
  readonly sent: string[] = [];
  waiting: (() => void) | undefined;
  onPublished: () => void = () => {};

  get state(): string {
    return this.closed ? "closed" : this.connected ? "connected" : "reconnecting";
  }

  publish(subject: string, payload: Uint8Array): void {
    if (payload.length > this.maxPayload) throw new BrokerError("too_large", "too large");
    assert.ok(this.connected);
    this.sent.push(subject);
    this.onPublished();
  }

  untilConnected(patienceMs: number): Promise<void> {
    assert.ok(patienceMs > 0);
    return new Promise((resolve) => this.waiting = resolve);
  }

  send(subject: string, payload: Uint8Array): boolean {
    if (this.connected) this.sent.push(`${subject} ${new TextDecoder().decode(payload)}`);
    return this.connected;
  }

  break(): void {
    this.connected = false;
  }

  mend(): void {
    this.session = {};
    this.connected = true;
    this.waiting?.();
  }
}

function delivered() {
  const connection = new FakeConnection();
  const ledger = new SettlementLedger();
  const metrics = new CountingMetrics();
  const settled: JetStreamDelivery[] = [];
  const clock = new VirtualClock();
  const broker = { created: "A" as string | undefined, silent: false, gone: 0, sure: 0 };
  const settlements = new LaneSettlements({
    lane: "pool",
    connection: connection as unknown as BrokerConnection,
    clock,
    metrics,
    streamCreated: () => broker.silent ? Promise.reject(new Error("no leader")) : Promise.resolve(broker.created),
    onSure: () => broker.sure++,
    onGone: () => broker.gone++,
  }, { ackWaitMs: 30_000, maxAckPending: 0, pending: 0, ackPending: 0, paused: false, streamCreated: "A" });
  let permits = 1;
  const host: DeliveryHost = {
    connection: connection as unknown as BrokerConnection,
    settlements,
    ledger,
    metrics,
    lane: "pool",
    ackPrefix: "$JS.ACK.S.c.",
    settled: (delivery) => void settled.push(delivery),
    permitReleased: (delivery) => {
      if (delivery.holdsPermit) permits--;
      delivery.holdsPermit = false;
    },
  };
  const work = decodeWorkItem(workItemBytes());
  const deliver = (ackSubject = ACK) => new JetStreamDelivery(host, work, ackSubject, false, 100, 0);
  const lose = () => {
    connection.break();
    settlements.doubt();
  };
  const find = async () => {
    connection.mend();
    void settlements.resolve();
    await settle();
  };
  const parts = { connection, ledger, metrics, settled, clock, broker, settlements, deliver, lose, find };
  return { ...parts, delivery: deliver(), permits: () => permits };
}

Deno.test("a delivery tells what its subject says", () => {
  const { delivery } = delivered();
  assert.equal(delivery.attempt, 2);
  assert.equal(delivery.source, "pool");
  assert.equal(delivery.maxPayload, 1_000);
  assert.equal(delivery.delivery, delivery);
});

Deno.test("a second settlement is refused and counted, whatever the two are", () => {
  for (const first of ["ack", "nak", "leave"] as const) {
    for (const second of ["ack", "nak", "leave"] as const) {
      const { delivery, ledger, connection, settled } = delivered();
      const settle = (how: "ack" | "nak" | "leave") =>
        how === "ack"
          ? delivery.ack("completed")
          : how === "nak"
          ? delivery.nak(100, "retry")
          : delivery.leave("crashed");
      settle(first);
      const sent = connection.sent.length;
      settle(second);
      assert.equal(connection.sent.length, sent, `${second} after ${first} was sent`);
      assert.equal(ledger.counts.refused, 1);
      assert.equal(ledger.outstanding, 0);
      assert.equal(settled.length, 1);
      assert.equal(delivery.progress(), false, "progress after a settlement");
      assert.equal(connection.sent.length, sent);
    }
  }
});

Deno.test("a permit comes back once, early or at the settlement", () => {
  const { delivery, permits } = delivered();
  delivery.releasePermit();
  delivery.releasePermit();
  assert.equal(permits(), 0);
  delivery.ack("completed");
  delivery.releasePermit();
  assert.equal(permits(), 0);
});

Deno.test("result and ACK on one connection: both are sent, in order", () => {
  const { delivery, connection, ledger } = delivered();
  assert.equal(delivery.publish("_INBOX.a", new Uint8Array(10)), undefined);
  delivery.ack("completed");
  assert.deepEqual(connection.sent, ["_INBOX.a", `${ACK} +ACK`]);
  assert.equal(ledger.counts.acked, 1);
});

Deno.test("the connection broke between result and ACK: the item is left, not lost", () => {
  for (const mended of [false, true]) {
    const { delivery, connection, ledger } = delivered();
    delivery.publish("_INBOX.a", new Uint8Array(10));
    connection.break();
    if (mended) connection.mend();
    assert.equal(delivery.ack("completed").action, "left");
    assert.deepEqual(connection.sent, ["_INBOX.a"]);
    assert.deepEqual(ledger.counts, { opened: 1, acked: 0, naked: 0, left: 1, refused: 0 });
  }
});

Deno.test("a result made while the connection is away waits for it, and is then ACKed on it", async () => {
  const { delivery, connection } = delivered();
  connection.break();
  const waiting = delivery.publish("_INBOX.a", new Uint8Array(10));
  assert.ok(waiting instanceof Promise);
  connection.mend();
  await waiting;
  assert.equal(delivery.ack("completed").action, "ack");
  assert.deepEqual(connection.sent, ["_INBOX.a", `${ACK} +ACK`]);
});

Deno.test("a result that waited goes out on one connection, and is never ACKed on the next", async () => {
  const { delivery, connection, ledger } = delivered();
  connection.break();
  const waiting = delivery.publish("_INBOX.a", new Uint8Array(10));
  connection.mend();
  // The publication is on its way when the next connection takes over, before anybody who waits for it runs.
  connection.onPublished = () => queueMicrotask(() => connection.mend());
  await waiting;
  assert.equal(delivery.ack("completed").action, "left");
  assert.equal(ledger.counts.acked, 0);
});

Deno.test("settlements without a result wait until the connection is back and the stream is known", async () => {
  const { delivery, connection, metrics, broker, clock, lose, find, settlements } = delivered();
  lose();
  assert.equal(delivery.progress(), true, "progress is sent for all when the stream is known");
  delivery.nak(100, "retry");
  broker.silent = true;
  await find();
  assert.equal(settlements.waiting, 1);
  assert.deepEqual(Object.keys(metrics.counts), [], "counted before it is sent");
  broker.silent = false;
  await clock.advance(500);
  assert.deepEqual(connection.sent, [`${ACK} -NAK {"delay":100000000}`]);
  assert.equal(metrics.counts["nak pool success retry"], 1);
  assert.equal(broker.sure, 1);
});

Deno.test("only a closed connection fails settlements", () => {
  const { delivery, connection, metrics, lose } = delivered();
  lose();
  connection.closed = true;
  assert.equal(delivery.progress(), false);
  delivery.ack("completed");
  assert.equal(metrics.counts["ack pool error completed"], 1);
  assert.equal(metrics.counts["progress pool error none"], 1);
});

Deno.test("a NAK that waited so long that the broker has given the item to others is not sent; an ACK still is", async () => {
  const { deliver, connection, metrics, clock, lose, find } = delivered();
  const [dropped, refused] = [deliver("$JS.ACK.S.c.1.1.1.1.0"), deliver("$JS.ACK.S.c.1.2.2.1.0")];
  lose();
  await clock.advance(20_001);
  refused.nak(100, "retry");
  dropped.ack("completed");
  await find();
  assert.deepEqual(connection.sent, ["$JS.ACK.S.c.1.1.1.1.0 +ACK"]);
  assert.equal(metrics.counts["nak pool error retry"], 1);
});

Deno.test("what came from a stream that is gone is never settled in the one made after it", async () => {
  for (const created of ["B", undefined]) {
    const { deliver, connection, metrics, broker, lose, find } = delivered();
    const [early, waiting, late] = [deliver(), deliver(), deliver()];
    lose();
    early.nak(100, "retry");
    broker.created = created;
    const publishing = waiting.publish("_INBOX.a", new Uint8Array(1));
    await find();
    await publishing;
    waiting.ack("completed");
    assert.equal(late.progress(), true);
    late.ack("completed");
    assert.deepEqual(connection.sent, ["_INBOX.a"], `made anew: ${created}`);
    assert.equal(metrics.counts["nak pool error retry"], 1);
    assert.equal(broker.gone, created === undefined ? 1 : 0);
    deliver("$JS.ACK.S.c.1.1.1.1.0").ack("completed");
    assert.equal(connection.sent.at(-1), "$JS.ACK.S.c.1.1.1.1.0 +ACK");
  }
});

Deno.test("a result is ACKed on its own connection only, also when the ACK had to wait for the stream to be known", async () => {
  for (const breaks of [false, true]) {
    const { deliver, connection, broker, clock, lose, find } = delivered();
    const delivery = deliver();
    broker.silent = true;
    lose();
    await find();
    delivery.publish("_INBOX.a", new Uint8Array(1));
    delivery.ack("completed");
    if (breaks) {
      lose();
      await find();
    }
    broker.silent = false;
    await clock.advance(500);
    assert.deepEqual(connection.sent, breaks ? ["_INBOX.a"] : ["_INBOX.a", `${ACK} +ACK`]);
  }
});

Deno.test("an answer to a question from before the connection broke again settles nothing", async () => {
  const { delivery, connection, settlements } = delivered();
  const answers: ((created: string) => void)[] = [];
  const asked = new LaneSettlements({
    lane: "pool",
    connection: connection as unknown as BrokerConnection,
    clock: new VirtualClock(),
    metrics: new CountingMetrics(),
    streamCreated: () => new Promise((resolve) => answers.push(resolve)),
    onSure: () => {},
    onGone: () => {},
  }, { ackWaitMs: 30_000, maxAckPending: 0, pending: 0, ackPending: 0, paused: false, streamCreated: "A" });
  assert.equal(settlements.incarnation, 0);
  asked.doubt();
  void asked.resolve();
  asked.send({
    operation: "ack",
    reason: "completed",
    ackSubject: ACK,
    body: new Uint8Array(0),
    incarnation: 0,
    answeredOn: undefined,
  });
  asked.doubt();
  answers.shift()?.("A");
  await settle();
  assert.equal(asked.waiting, 1);
  answers.shift()?.("A");
  await settle();
  assert.equal(asked.waiting, 0);
  delivery.leave("crashed");
});

Deno.test("a message above the limit is refused before anything is sent", () => {
  const { delivery, connection } = delivered();
  assert.throws(() => delivery.publish("_INBOX.a", new Uint8Array(1_001)), BrokerError);
  assert.deepEqual(connection.sent, []);
  delivery.ack("completed");
  assert.deepEqual(connection.sent, [`${ACK} +ACK`]);
});
