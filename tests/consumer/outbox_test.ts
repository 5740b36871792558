/** Publications as bytes on the wire, and flow control. */
import assert from "node:assert/strict";
import type { ProtocolHandler } from "@nats-io/nats-core/internal";
import { BrokerError } from "../../src/consumer/errors.ts";
import { FlowWindow } from "../../src/consumer/flow_window.ts";
import { isPublishable, Outbox } from "../../src/consumer/outbox.ts";

/** An outbox over something that only collects. */
function collecting() {
  const sent: Uint8Array[] = [];
  const protocol = {
    connected: true,
    outbound: { size: () => 0 },
    transport: { send: (part: Uint8Array) => void sent.push(part.slice()) },
  } as unknown as ProtocolHandler;
  const text = () => sent.map((part) => new TextDecoder().decode(part)).join("");
  return { outbox: new Outbox(protocol), sent, text };
}

const bytes = (text: string) => new TextEncoder().encode(text);

Deno.test("publications are what the protocol says, in order, and go out together", async () => {
  const { outbox, sent, text } = collecting();
  outbox.publish("a.b", bytes("hello"));
  outbox.publish("$JS.ACK.x", bytes("+ACK"));
  outbox.publish("$JS.API.NEXT", bytes("{}"), "_INBOX_WORKER.1");
  outbox.publish("empty");
  outbox.publish("modèle.語", bytes("é"));
  assert.equal(sent.length, 0, "nothing is sent before the turn is over");
  await Promise.resolve();
  assert.equal(sent.length, 1);
  assert.equal(
    text(),
    "PUB a.b 5\r\nhello\r\nPUB $JS.ACK.x 4\r\n+ACK\r\nPUB $JS.API.NEXT _INBOX_WORKER.1 2\r\n{}\r\nPUB empty 0\r\n\r\n" +
      "PUB modèle.語 2\r\né\r\n",
  );
});

Deno.test("lengths of every number of digits", async () => {
  const { outbox, text } = collecting();
  const sizes = [0, 1, 9, 10, 99, 100, 999, 1_000, 9_999, 10_000, 32_768, 32_769];
  for (const size of sizes) outbox.publish("s", new Uint8Array(size).fill(120));
  outbox.flush();
  await Promise.resolve();
  const lengths = [...text().matchAll(/PUB s (\d+)\r\n/g)].map((match) => Number(match[1]));
  assert.deepEqual(lengths, sizes);
});

Deno.test("large messages are not copied here, and keep their place", async () => {
  const { outbox, sent, text } = collecting();
  outbox.publish("first", bytes("1"));
  outbox.publish("large", new Uint8Array(100_000).fill(120));
  outbox.publish("last", bytes("2"));
  await Promise.resolve();
  assert.deepEqual(
    [...text().matchAll(/PUB (\w+) (\d+)/g)].map((match) => [match[1], match[2]]),
    [["first", "1"], ["large", "100000"], ["last", "1"]],
  );
  assert.equal(sent.some((part) => part.length === 100_000), true);
});

Deno.test("more than the buffer holds goes out on the way", () => {
  const { outbox, sent } = collecting();
  for (let i = 0; i < 100; i++) outbox.publish("s", new Uint8Array(2_000));
  assert.ok(sent.length >= 1);
  outbox.flush();
  assert.equal(sent.reduce((sum, part) => sum + part.length, 0), 100 * ("PUB s 2000\r\n".length + 2_002));
});

Deno.test("a subject can never smuggle a command in", async () => {
  for (const subject of ["", "a b", "a\r\nPUB x 1", "a\tb", "a\u0000b", "a\u007fb", `${"x".repeat(20_000)} y`]) {
    const { outbox, text } = collecting();
    assert.equal(isPublishable(subject), false);
    assert.throws(() => outbox.publish(subject, bytes("p")), BrokerError);
    assert.throws(() => outbox.publish(subject, new Uint8Array(100_000)), BrokerError);
    assert.throws(() => outbox.publish("good", bytes("p"), subject === "" ? " " : subject), BrokerError);
    outbox.publish("after", bytes("q"));
    await Promise.resolve();
    assert.equal(text(), "PUB after 1\r\nq\r\n", JSON.stringify(subject));
  }
});

const MIB = 1024 * 1024;

Deno.test("flow: round trips are made on the way, and publishers wait when too much is", async () => {
  const trips: (() => void)[] = [];
  const window = new FlowWindow(() => new Promise((resolve) => trips.push(resolve)));
  assert.equal(window.handed(MIB - 1), undefined);
  assert.equal(trips.length, 0);
  assert.equal(window.handed(8 * MIB), undefined);
  assert.equal(trips.length, 1);
  let released = false;
  const waiting = window.handed(9 * MIB);
  assert.ok(waiting instanceof Promise);
  const done = waiting.then(() => released = true);
  assert.equal(trips.length, 2);
  await Promise.resolve();
  assert.equal(released, false);
  trips[0]?.();
  await done;
  assert.equal(window.onTheWay, MIB);
});

Deno.test("flow: a broken connection tells those that wait, and is forgotten", async () => {
  const window = new FlowWindow(() => new Promise(() => {}));
  const waiting = window.handed(20 * MIB);
  window.reset(new Error("broken"));
  await assert.rejects(Promise.resolve(waiting), /broken/);
  assert.equal(window.onTheWay, 0);
  assert.equal(window.handed(21 * MIB), undefined);
});
