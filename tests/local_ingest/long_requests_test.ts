/** Requests that take long to look at: others get their turn meanwhile, and what would take too long in one step is refused. */
import assert from "node:assert/strict";
import { MOST_ENTRIES } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { msgpack } from "../harness/work_items.ts";
import { settle } from "../sim/virtual_clock.ts";
import { callBody, framed, IngestRig, pingFrame, requestFrame, workFrame } from "./rig.ts";

const MIB = 1024 * 1024;

/** MessagePack of an array of `count` small numbers. */
function smallNumbers(count: number): Uint8Array {
  const writer = new MsgpackWriter(count + 5);
  writer.arrayHeader(count);
  writer.raw(new Uint8Array(count).fill(1));
  return writer.take();
}

/** The items of a call whose one item holds `value` under `item.extra`. */
function itemHolding(requestId: string, value: Uint8Array): Uint8Array {
  const { items = new Uint8Array(0) } = callBody(requestId, "encode", [{ item: { extra: "HERE" } }]);
  const here = msgpack("HERE");
  const at = items.findIndex((_byte, start) => here.every((byte, i) => items[start + i] === byte));
  assert.notEqual(at, -1);
  const writer = new MsgpackWriter(items.length + value.length);
  writer.raw(items, 0, at);
  writer.raw(value);
  writer.raw(items, at + here.length, items.length - at - here.length);
  return writer.take();
}

Deno.test("a large request is looked at in slices, and others get their turn between them", async () => {
  const rig = new IngestRig();
  const [large, small] = [rig.connect(), rig.connect()];
  large.stream.feed(workFrame(1, "req-1", 1, { params: new Uint8Array(8 * MIB) }));
  await settle();
  // The digest has been begun; it goes on when the event loop has been round.
  assert.deepEqual(large.responses(), []);
  assert.equal(rig.clock.timerCount, 1);
  small.stream.feed(pingFrame(1));
  await settle();
  assert.equal(small.answersTo(1).length, 1);
  assert.deepEqual(large.responses(), []);
  await rig.clock.advance(100);
  assert.equal(large.answersTo(1)[0]?.ok, true);
  large.stream.end();
  small.stream.end();
  await Promise.all([large.ended, small.ended]);
});

Deno.test("an item of more values than one step may look at is refused by their number", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  const frame = (id: number, count: number) =>
    workFrame(id, `req-${id}`, 1, { items: itemHolding(`req-${id}`, smallNumbers(count)) });
  client.stream.feed(frame(1, MOST_ENTRIES), frame(2, MOST_ENTRIES - 1000));
  await rig.clock.advance(200);
  const [refused = ""] = client.errorsOf(1);
  assert.match(refused, /^DecodeError: items is not a msgpack WorkItem array: field 'item': a container of 2097152 /);
  assert.equal(client.answersTo(2)[0]?.ok, true);
  client.stream.end();
  assert.deepEqual(await client.ended, { kind: "ended_by_client" });
});

Deno.test("envelopes with too many values or texts that are no names are no envelopes", async () => {
  const rig = new IngestRig();
  const endOf = async (frame: Uint8Array) => {
    const client = rig.connect();
    client.stream.feed(frame);
    const end = await client.ended;
    return end.kind === "broken" ? end.reason : end.kind;
  };
  const envelope = (key: string, value: Uint8Array): Uint8Array => {
    const writer = new MsgpackWriter(value.length + 64);
    writer.mapHeader(3);
    writer.text("id");
    writer.integer(1);
    writer.text("op");
    writer.text("ping");
    writer.text(key);
    writer.raw(value);
    return framed(writer.take());
  };
  assert.match(await endOf(envelope("unknown", smallNumbers(3 * MIB))), /too many in one value/);
  const body = new MsgpackWriter(3 * MIB + 64);
  body.mapHeader(1);
  body.text("items");
  body.raw(smallNumbers(3 * MIB));
  assert.match(await endOf(envelope("body", body.take())), /too many in one value/);
  const long = "x".repeat(65_537);
  assert.match(await endOf(requestFrame(1, long)), /text of 65537 bytes is longer than the 65536 bytes of a name/);
  assert.match(await endOf(requestFrame(1, "ping", { lane: long })), /text of 65537 bytes is longer/);
});

Deno.test("a name within an item has its limit, too", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  const { items = new Uint8Array(0) } = callBody("req-1", "encode", [{ model_id: "m".repeat(65_537) }]);
  await client.send(workFrame(1, "req-1", 1, { items }));
  assert.match(client.errorsOf(1)[0] ?? "", /field 'model_id': a text of 65537 bytes is longer than the 65536 bytes/);
  client.stream.end();
  await client.ended;
});
