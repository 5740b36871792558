/** One connection: protocol faults, ids, operations side by side (spec/local-ingest.md 3, 4, 10). */
import assert from "node:assert/strict";
import { MAX_DEPTH } from "../../src/wire/msgpack/reader.ts";
import { msgpack } from "../harness/work_items.ts";
import { settle } from "../sim/virtual_clock.ts";
import { cancelFrame, framed, IngestRig, pingFrame, requestFrame, type RigClient, workFrame } from "./rig.ts";

async function endOf(client: RigClient): Promise<RigClient["end"]> {
  client.stream.end();
  return await client.ended;
}

Deno.test("frames may come in any pieces", async () => {
  const rig = new IngestRig();
  const bytes = [...pingFrame(1), ...pingFrame(2), ...cancelFrame(3, "x"), ...pingFrame(4)];
  for (const size of [1, 3, 7, bytes.length]) {
    const client = rig.connect();
    for (let at = 0; at < bytes.length; at += size) await client.send(Uint8Array.from(bytes.slice(at, at + size)));
    assert.deepEqual(client.responses().map(({ id, ok }) => [id, ok]), [[1n, true], [2n, true], [3n, true], [
      4n,
      true,
    ]]);
    assert.deepEqual(await endOf(client), { kind: "ended_by_client" });
  }
});

Deno.test("an id that is active closes the connection without a word; afterwards it is free again", async () => {
  const rig = new IngestRig({ intake: { accept: () => Promise.resolve() } });
  const client = rig.connect();
  await client.send(pingFrame(7));
  await client.send(pingFrame(7));
  assert.equal(client.answersTo(7).length, 2);
  await client.send(workFrame(8, "req"));
  await client.send(pingFrame(8));
  assert.deepEqual(await client.ended, { kind: "broken", reason: "id 8 is active already" });
  assert.equal(client.answersTo(8).length, 0);
  assert.equal(client.stream.closed, true);
});

Deno.test("the same id on two connections is two operations", async () => {
  const rig = new IngestRig();
  const clients = [rig.connect(), rig.connect()];
  for (const client of clients) await client.send(workFrame(1, `req-${clients.indexOf(client)}`));
  await rig.clock.advance(50);
  for (const client of clients) {
    assert.equal(client.answersTo(1).length, 1);
    await endOf(client);
  }
});

Deno.test("ids of 64 bits come back exactly", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  const ids = [0n, 2n ** 53n + 1n, 2n ** 64n - 1n];
  for (const id of ids) await client.send(requestFrame(id, "ping"));
  assert.deepEqual(client.responses().map(({ id }) => id), ids);
  await endOf(client);
});

Deno.test("an unknown op is answered with its name in quotes, and the connection goes on", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  await client.send(requestFrame(1, 'a"b\\c\n\u0001'), pingFrame(2));
  assert.deepEqual(client.errorsOf(1), ['ValueError: unknown op: "a\\"b\\\\c\\n\\u{1}"']);
  assert.equal(client.answersTo(2).length, 1);
  await endOf(client);
});

Deno.test("hostile frames end the connection and nothing else", async () => {
  const rig = new IngestRig();
  const deep = new Uint8Array(MAX_DEPTH + 10).fill(0x91);
  const hostile: readonly [string, Uint8Array][] = [
    ["a map that announces 4 billion entries", framed(Uint8Array.of(0xdf, 0xff, 0xff, 0xff, 0xff))],
    ["an array of a body", framed(msgpack([1, "ping", {}]))],
    ["a positional body", framed(msgpack({ id: 1, op: "ping", body: ["lane"] }))],
    ["too much depth", framed(Uint8Array.of(0x81, 0xa1, 0x78, ...deep))],
    ["a repeated key", framed(Uint8Array.from([0x82, 0xa2, 0x69, 0x64, 1, 0xa2, 0x69, 0x64, 2]))],
    ["text that is no UTF-8", framed(Uint8Array.of(0x82, 0xa2, 0x69, 0x64, 1, 0xa2, 0x6f, 0x70, 0xa1, 0xff))],
    [
      "a bin of 4 GiB",
      framed(Uint8Array.of(0x82, 0xa2, 0x69, 0x64, 1, 0xa2, 0x6f, 0x70, 0xc6, 0xff, 0xff, 0xff, 0xff)),
    ],
  ];
  for (const [what, bytes] of hostile) {
    const client = rig.connect();
    await client.send(bytes);
    assert.equal(client.end?.kind, "broken", what);
    assert.equal(client.stream.written().length, 0, what);
  }
});

Deno.test("a hostile header of 24,000 bytes costs next to nothing", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  // Each of 8,000 nested arrays announces 65,535 elements.
  const nested = new Uint8Array(24_000);
  for (let at = 0; at < nested.length; at += 3) nested.set([0xdc, 0xff, 0xff], at);
  await client.send(framed(nested));
  assert.equal(client.end?.kind, "broken");
});

Deno.test("bin fields may come as text or as arrays of bytes", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  const body = { dispatch_context: "text", payload_digest: [1, 2, 255], params: new Uint8Array(0) };
  await client.send(framed(msgpack({ id: 1, op: "publish_work", body })));
  assert.deepEqual(client.errorsOf(1), ["InvalidTransportBinding: payload_digest must be 32 bytes"]);
  await client.send(framed(msgpack({ id: 2, op: "publish_work", body: { ...body, payload_digest: [256] } })));
  assert.equal(client.end?.kind, "broken");
});

Deno.test("more items than are allowed are refused by their number, not decoded", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  const items = new Uint8Array(5 + 5000).fill(0xc0);
  items.set([0xdd, 0, 0, 0x13, 0x88]);
  const call = requestFrame(1, "publish_work", {
    items,
    requestId: "req",
    dispatchContext: Uint8Array.of(1),
  });
  await client.send(call);
  assert.deepEqual(client.errorsOf(1), ["InvalidTransportBinding: 5000 work items exceeds maximum 4096"]);
  await endOf(client);
});

Deno.test("an answer that was ready goes out even if the client has ended its side", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  client.stream.feed(pingFrame(1));
  client.stream.end();
  assert.deepEqual(await client.ended, { kind: "ended_by_client" });
  assert.equal(client.answersTo(1).length, 1);
});

Deno.test("a client that does not read loses its connection, and holds up nobody else", async () => {
  const rig = new IngestRig();
  const slow = rig.connect(), other = rig.connect();
  slow.stream.stall();
  await slow.send(pingFrame(1));
  await other.send(pingFrame(1));
  assert.equal(other.answersTo(1).length, 1);
  await rig.clock.advance(5000);
  assert.deepEqual(await slow.ended, { kind: "broken", reason: "a frame was not written within 5000 ms" });
  await other.send(pingFrame(2));
  assert.equal(other.answersTo(2).length, 1);
  await endOf(other);
});

Deno.test("a read that fails ends the connection", async () => {
  const rig = new IngestRig();
  const client = rig.connect();
  await settle();
  client.stream.close();
  client.stream.close = () => {};
  assert.deepEqual(await client.ended, { kind: "broken", reason: "the stream is closed" });
});
