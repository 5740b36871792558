/** Budgets of one connection (spec/local-ingest.md 10 and 13): what is read, what waits, what is refused. */
import assert from "node:assert/strict";
import type { WorkIntake } from "../../src/dispatch/intake.ts";
import { RequestBudget } from "../../src/local_ingest/request_budget.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import type { Arrival } from "../../src/dispatch/intake.ts";
import { settle } from "../sim/virtual_clock.ts";
import { cancelFrame, chunk, framed, generateFrame, IngestRig, pingFrame, workFrame } from "./rig.ts";

const MIB = 1024 * 1024;

/** Takes work and keeps it until it is told to let go. */
class Held implements WorkIntake {
  readonly arrivals: Arrival[] = [];

  accept(arrivals: readonly Arrival[]): Promise<void> {
    this.arrivals.push(...arrivals);
    return Promise.resolve();
  }

  /** Answers the oldest item. */
  finishOne(): void {
    const arrival = this.arrivals.shift();
    assert.ok(arrival !== undefined, "nothing is held");
    arrival.delivery.publish("", chunk("any", 0));
    arrival.delivery.ack("completed");
  }
}

/** A `publish_work` frame of about `bytes` bytes. */
function bigWorkFrame(id: number, bytes: number): Uint8Array {
  return workFrame(id, `req-${id}`, 1, { params: new Uint8Array(bytes) });
}

Deno.test("the counts: what may be read and started", () => {
  const budget = new RequestBudget();
  let releases = 0;
  budget.onRelease = () => releases++;
  const limit = 64 * MIB;
  assert.equal(budget.mayRead(limit, true), true);
  budget.read(limit);
  budget.startData(limit);
  assert.equal(budget.mayStartData(1), false);
  assert.equal(budget.refusal(), "connection already retains 67108864 request bytes");
  // The reserve for a cancel is all that is left.
  assert.equal(budget.mayRead(1024, true), true);
  assert.equal(budget.mayRead(1025, true), false);
  assert.equal(budget.mayRead(1025, false), false);
  budget.read(1000);
  budget.startControl();
  assert.equal(budget.mayStartControl(), false);
  assert.equal(budget.mayRead(25, true), false);
  budget.endControl(1000);
  assert.equal(budget.mayStartControl(), true);
  budget.endData(limit);
  assert.equal(releases, 2);
  assert.deepEqual([budget.bufferedBytes, budget.dataBytes, budget.dataOperations], [0, 0, 0]);
});

Deno.test("80 operations run; then only small frames are read, a cancel among them runs, one other is held", async () => {
  const held = new Held();
  const rig = new IngestRig({ intake: held });
  const client = rig.connect();
  for (let id = 1; id <= 80; id++) await client.send(workFrame(id, `req-${id}`));
  assert.equal(held.arrivals.length, 80);
  await client.send(cancelFrame(1000, "nobody"));
  assert.equal(client.answersTo(1000).length, 1);
  await client.send(pingFrame(81), cancelFrame(1001, "nobody"), pingFrame(82), cancelFrame(1002, "nobody"));
  // The first ping waits for its place, the second one stops the reader, and nothing behind that is looked at.
  assert.deepEqual([81, 1001, 82, 1002].map((id) => client.answersTo(id).length), [0, 1, 0, 0]);
  held.finishOne();
  await settle();
  assert.deepEqual([1, 81, 82, 1002].map((id) => client.answersTo(id).length), [1, 1, 1, 1]);
  client.stream.end();
  await client.ended;
  assert.equal(held.arrivals.length, 79);
});

Deno.test("while the operations are used up, the body of a larger frame is left where it is", async () => {
  const held = new Held();
  const rig = new IngestRig({ intake: held });
  const client = rig.connect();
  for (let id = 1; id <= 80; id++) await client.send(workFrame(id, `req-${id}`));
  const big = bigWorkFrame(81, 8 * MIB);
  await client.send(big, cancelFrame(1000, "nobody"));
  // Behind it nothing is reached: that is the price of not reading on. What was read ahead is one small buffer.
  assert.equal(client.answersTo(1000).length, 0);
  assert.ok(client.stream.unread > big.length - 32_768, `${client.stream.unread} of ${big.length} bytes are unread`);
  held.finishOne();
  await rig.clock.advance(0);
  assert.equal(client.answersTo(1).length, 1);
  assert.equal(client.answersTo(1000).length, 1);
  assert.equal(held.arrivals.length, 80);
  client.stream.end();
  await client.ended;
});

Deno.test("retained bytes pause the reader before the body", async () => {
  const held = new Held();
  const rig = new IngestRig({ intake: held });
  const client = rig.connect();
  for (let id = 1; id <= 4; id++) await client.send(bigWorkFrame(id, 15 * MIB));
  assert.equal(held.arrivals.length, 4);
  const fifth = bigWorkFrame(5, 15 * MIB);
  await client.send(fifth);
  assert.equal(held.arrivals.length, 4);
  assert.ok(client.stream.unread > fifth.length - 32_768);
  held.finishOne();
  await rig.clock.advance(0);
  assert.equal(held.arrivals.length, 4);
  assert.equal(client.stream.unread, 0);
  assert.equal(client.answersTo(1).length, 1);
  client.stream.end();
  await client.ended;
});

Deno.test("as the reference: what comes above the budgets is refused, and a cancel is still read", async () => {
  const held = new Held();
  const rig = new IngestRig({ intake: held, referenceCompatible: true });
  const client = rig.connect();
  for (let id = 1; id <= 80; id++) await client.send(workFrame(id, `req-${id}`));
  await client.send(pingFrame(81), generateFrame(82, "gen"), cancelFrame(1000, "nobody"), pingFrame(81));
  assert.deepEqual(client.errorsOf(81), [
    "CapacityExhausted: connection already has 80 active data operations",
    // The refusal has set the id free.
    "CapacityExhausted: connection already has 80 active data operations",
  ]);
  assert.deepEqual(client.errorsOf(82), [
    "CAPACITY_EXHAUSTED: connection already has 80 active data operations",
  ]);
  assert.equal(client.answersTo(1000).length, 1);
  client.stream.end();
  await client.ended;
});

Deno.test("as the reference: retained bytes are refused, or wait where they do not fit at all", async () => {
  const held = new Held();
  const rig = new IngestRig({ intake: held, referenceCompatible: true });
  const client = rig.connect();
  const overhead = bigWorkFrame(1, MIB).length - 4 - MIB;
  await client.send(bigWorkFrame(1, 64 * MIB - overhead - 100));
  assert.equal(held.arrivals.length, 1);
  await client.send(workFrame(2, "req-2"));
  assert.deepEqual(client.errorsOf(2), ["CapacityExhausted: connection already retains 67108864 request bytes"]);
  // Above the whole buffer it waits before the body, as with the seed's rule.
  await client.send(bigWorkFrame(3, 40_000));
  assert.equal(client.answersTo(3).length, 0);
  assert.ok(client.stream.unread > 0);
  held.finishOne();
  await rig.clock.advance(0);
  assert.equal(held.arrivals.length, 1);
  client.stream.end();
  await client.ended;
});

Deno.test("a client that goes away while the reader waits is noticed, and its generations are cancelled", async () => {
  const held = new Held();
  const rig = new IngestRig({ intake: held });
  rig.backend.stream = async function* () {
    yield { kind: "in_progress" };
    await new Promise(() => {});
  };
  const client = rig.connect();
  await client.send(generateFrame(1, "gen-1"));
  for (let id = 2; id <= 80; id++) await client.send(workFrame(id, `req-${id}`));
  await client.send(bigWorkFrame(81, 1024 * 1024).subarray(0, 4));
  client.stream.end();
  await settle();
  assert.deepEqual(rig.backend.cancelled, ["gen-1"]);
  // The backend does not end the stream: after the drain limit nothing of the connection is left.
  await rig.clock.advance(5000);
  assert.deepEqual(await client.ended, { kind: "ended_by_client" });
  assert.equal(rig.parts.claims.size, 0);
});

Deno.test("requests count in the byte budget of the process until their work is settled", async () => {
  const held = new Held();
  const budget = new ByteBudget({ limit: 100 * MIB, high: 4 * MIB, low: MIB });
  const rig = new IngestRig({ intake: held, budget });
  const client = rig.connect();
  await client.send(bigWorkFrame(1, 5 * MIB));
  assert.ok(budget.used > 5 * MIB);
  // Above the high mark nothing large is read, on any connection; small requests are.
  const other = rig.connect();
  await other.send(bigWorkFrame(1, 2 * MIB));
  assert.equal(held.arrivals.length, 1);
  await client.send(pingFrame(2));
  assert.equal(client.answersTo(2).length, 1);
  // The deadline answers the call; its items still run and still hold the bytes.
  await rig.clock.advance(1000);
  assert.deepEqual(client.errorsOf(1), [
    "TimeoutError: publish_work timed out after 1000ms (lane 'default|cpu|test/model')",
  ]);
  assert.ok(budget.used > 5 * MIB);
  assert.equal(held.arrivals.length, 1);
  held.finishOne();
  await rig.clock.advance(0);
  assert.equal(held.arrivals.length, 1);
  held.finishOne();
  await rig.clock.advance(0);
  assert.equal(other.answersTo(1).length, 1);
  assert.equal(budget.used, 0);
  for (const one of [client, other]) one.stream.end();
  await Promise.all([client.ended, other.ended]);
});

Deno.test("a generation that waits for its place is cancelled without ever being run", async () => {
  const held = new Held();
  const budget = new ByteBudget({ limit: 100 * MIB });
  const rig = new IngestRig({ intake: held, budget });
  const client = rig.connect();
  for (let id = 1; id <= 80; id++) await client.send(workFrame(id, `req-${id}`));
  const before = budget.used;
  await client.send(generateFrame(81, "gen"), cancelFrame(1000, "other"));
  assert.equal(client.answersTo(1000).length, 1);
  assert.deepEqual(client.answersTo(81), []);
  await client.send(cancelFrame(1001, "gen"));
  assert.equal(client.answersTo(1001)[0]?.ok, true);
  assert.deepEqual(client.errorsOf(81), ["TRANSPORT_FAILURE: generation was cancelled before it began"]);
  assert.deepEqual(rig.backend.cancelled, []);
  assert.equal(budget.used, before);
  // Its place and its id are free again.
  await client.send(pingFrame(81));
  held.finishOne();
  await settle();
  assert.deepEqual(client.answersTo(81).map(({ ok }) => ok), [false, true]);
  assert.deepEqual([held.arrivals.length, rig.parts.claims.size], [79, 0]);
  client.stream.end();
  await client.ended;
});

Deno.test("a request that waits for its place when the client goes away gives its bytes back", async () => {
  const held = new Held();
  const budget = new ByteBudget({ limit: 100 * MIB });
  const rig = new IngestRig({ intake: held, budget });
  const client = rig.connect();
  for (let id = 1; id <= 80; id++) await client.send(workFrame(id, `req-${id}`));
  await client.send(generateFrame(81, "gen", {}, { options: { blob: "" } }));
  client.stream.end();
  await client.ended;
  assert.equal(rig.parts.claims.size, 0);
  while (held.arrivals.length > 0) held.finishOne();
  await settle();
  assert.equal(budget.used, 0);
});

Deno.test("a stream that waits for its place is claimed when it has it", async () => {
  const held = new Held();
  const rig = new IngestRig({ intake: held });
  rig.backend.stream = async function* () {
    yield { kind: "in_progress" };
    await new Promise(() => {});
  };
  const client = rig.connect(), other = rig.connect();
  for (let id = 1; id <= 80; id++) await client.send(workFrame(id, `req-${id}`));
  await client.send(generateFrame(81, "gen"));
  await other.send(generateFrame(1, "gen"));
  assert.equal(rig.parts.claims.size, 1);
  held.finishOne();
  await settle();
  assert.deepEqual(client.errorsOf(81), ['DUPLICATE_REQUEST: generation request "gen" is already active']);
  for (const one of [client, other]) one.stream.end();
  await rig.clock.advance(10_000);
  await Promise.all([client.ended, other.ended]);
});

Deno.test("a broken request gives its bytes back", async () => {
  const budget = new ByteBudget({ limit: 100 * MIB });
  const rig = new IngestRig({ budget });
  for (const bytes of [framed(Uint8Array.of(0xc1)), workFrame(1, "req-1").subarray(0, 100)]) {
    const client = rig.connect();
    await client.send(bytes);
    client.stream.end();
    assert.equal((await client.ended).kind, "broken");
    assert.equal(budget.used, 0);
  }
});

Deno.test("a body gets its memory as its bytes arrive", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  const frame = bigWorkFrame(1, 32 * MIB);
  await client.send(frame.subarray(0, 4));
  assert.ok(client.stream.largestRead <= 65_536);
  await client.send(frame.subarray(4, 100_000));
  assert.ok(client.stream.largestRead <= 262_144, `${client.stream.largestRead}`);
  await client.send(frame.subarray(100_000));
  await rig.clock.advance(10);
  assert.equal(client.answersTo(1).length, 1);
  client.stream.end();
  await client.ended;
});

Deno.test("however many connections there are, the sum of what is read is bounded by the budget of the process", async () => {
  const held = new Held();
  const budget = new ByteBudget({ limit: 30 * MIB });
  const rig = new IngestRig({ intake: held, budget });
  const frame = bigWorkFrame(1, 8 * MIB);
  const clients = Array.from({ length: 20 }, () => rig.connect());
  let fed = 0, finished = 0;
  const overLimit = () => {
    const read = clients.slice(0, fed).reduce((sum, { stream }) => sum + frame.length - stream.unread, 0);
    // What a reader looks ahead is one small buffer; the frame that reaches the mark is read to its end.
    return Math.max(read - finished * frame.length, budget.used) - 30 * MIB - frame.length - clients.length * 16_384;
  };
  for (const client of clients) {
    client.stream.feed(frame);
    fed++;
    await rig.clock.advance(0);
    assert.ok(overLimit() <= 0, `${overLimit()} bytes above the limit`);
  }
  assert.equal(held.arrivals.length, 4);
  while (finished < clients.length) {
    held.finishOne();
    finished++;
    await rig.clock.advance(0);
    assert.ok(overLimit() <= 0, `${overLimit()} bytes above the limit after ${finished}`);
  }
  assert.deepEqual(clients.map((client) => client.answersTo(1).length), clients.map(() => 1));
  assert.equal(budget.used, 0);
  for (const { stream } of clients) stream.end();
  await Promise.all(clients.map(({ ended }) => ended));
});

Deno.test("a connection that nothing is written on holds one small buffer", async () => {
  const rig = new IngestRig();
  const before = Deno.memoryUsage().external;
  const clients = Array.from({ length: 500 }, () => rig.connect());
  for (const client of clients) await client.send(pingFrame(1));
  const held = Deno.memoryUsage().external - before;
  assert.equal(clients.filter((client) => client.answersTo(1).length === 1).length, clients.length);
  // What they read into, and a little for what was written.
  assert.ok(held < clients.length * 24_576, `${held} bytes for ${clients.length} connections`);
  for (const { stream } of clients) stream.end();
  await Promise.all(clients.map(({ ended }) => ended));
});
