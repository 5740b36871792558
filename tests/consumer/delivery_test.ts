/** One delivery by itself: settled once, never ACKed when its result may be lost. */
import assert from "node:assert/strict";
import type { BrokerConnection } from "../../src/consumer/broker_connection.ts";
import { BrokerError } from "../../src/consumer/errors.ts";
import { type DeliveryHost, JetStreamDelivery } from "../../src/consumer/jetstream_delivery.ts";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { CountingMetrics } from "./support.ts";

const ACK = "$JS.ACK.S.c.2.1.1.1.0";

/** A connection that the test breaks and mends. */
class FakeConnection {
  connected = true;
  closed = false;
  session: object = {};
  readonly maxPayload = 1_000;
  readonly sent: string[] = [];
  readonly later: string[] = [];
  waiting: (() => void) | undefined;

  get state(): string {
    return this.closed ? "closed" : this.connected ? "connected" : "reconnecting";
  }

  publish(subject: string, payload: Uint8Array, patienceMs = 0): void | Promise<void> {
    if (payload.length > this.maxPayload) throw new BrokerError("too_large", "too large");
    if (this.connected) return void this.sent.push(subject);
    assert.ok(patienceMs > 0);
    return new Promise((resolve) =>
      this.waiting = () => {
        this.sent.push(subject);
        resolve();
      }
    );
  }

  send(subject: string, payload: Uint8Array): boolean {
    if (this.connected) this.sent.push(`${subject} ${new TextDecoder().decode(payload)}`);
    return this.connected;
  }

  sendEventually(subject: string, payload: Uint8Array): boolean {
    if (this.send(subject, payload)) return true;
    if (this.closed) return false;
    this.later.push(new TextDecoder().decode(payload));
    return true;
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
  let permits = 1;
  const host: DeliveryHost = {
    connection: connection as unknown as BrokerConnection,
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
  const delivery = new JetStreamDelivery(host, work, ACK, false, 100, 0);
  return { connection, ledger, metrics, settled, delivery, permits: () => permits };
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
    assert.deepEqual(connection.later, []);
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

Deno.test("settlements without a result wait for the connection; only a closed one fails them", () => {
  const away = delivered();
  away.connection.break();
  assert.equal(away.delivery.progress(), true, "progress is sent for all when the connection is back");
  away.delivery.nak(100, "retry");
  assert.deepEqual(away.connection.later, ['-NAK {"delay":100000000}']);
  assert.equal(away.metrics.counts["nak pool success retry"], 1);

  const closed = delivered();
  closed.connection.break();
  closed.connection.closed = true;
  assert.equal(closed.delivery.progress(), false);
  closed.delivery.ack("completed");
  assert.equal(closed.metrics.counts["ack pool error completed"], 1);
  assert.equal(closed.metrics.counts["progress pool error none"], 1);
});

Deno.test("a message above the limit is refused before anything is sent", () => {
  const { delivery, connection } = delivered();
  assert.throws(() => delivery.publish("_INBOX.a", new Uint8Array(1_001)), BrokerError);
  assert.deepEqual(connection.sent, []);
  delivery.ack("completed");
  assert.deepEqual(connection.sent, [`${ACK} +ACK`]);
});
