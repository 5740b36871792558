/** The server on a real socket, in real time: the faults that a machine can bring about. */
import assert from "node:assert/strict";
import { LocalIngestError } from "../../src/client/errors.ts";
import { startLocalIngest } from "../../src/local_ingest/server.ts";
import { SocketPathError } from "../../src/runtime/socket_node.ts";
import { decodeResponse } from "../../src/wire/ingest/response.ts";
import { FrameReader, LOCAL_FRAMES, writeAll } from "../../src/wire/frames.ts";
import { eventually } from "../harness/process.ts";
import { callBody, generateFrame, pingFrame, requestFrame, workFrame } from "./rig.ts";
import { ServerRig } from "./server_rig.ts";

/** The contract's limit for a cancel to reach the backend after its client has gone. */
const CANCEL_LIMIT_MS = 1000;

Deno.test("the socket is there while the server runs, and its place is refused to a second one", async () => {
  const rig = await ServerRig.start();
  assert.equal((Deno.lstatSync(rig.path).mode ?? 0) & 0o777, 0o600);
  const { budget: _, ...others } = rig.parts;
  await assert.rejects(startLocalIngest({ path: rig.path, ...others }), SocketPathError);
  using client = rig.client();
  await client.ping();
  await rig.server.close();
  await assert.rejects(Deno.lstat(rig.path), Deno.errors.NotFound);
  await rig[Symbol.asyncDispose]();
});

Deno.test("64 streams, one of them not read: the others are not held up, memory is bounded, its connection ends", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const slow = await rig.connect();
  await writeAll(slow, generateFrame(1, "slow", {}, { generate: { endless: true, text: "x".repeat(32_768) } }));
  await eventually("the slow stream has filled the socket", () => (rig.backend.talks.get("slow")?.taken ?? 0) > 0);
  const parameters = { chunks: 100, text: "x".repeat(1024) };
  const others = Array.from({ length: 63 }, () => client.generate({ model: "test/model", parameters }));
  const cancelled = Promise.withResolvers<string>();
  rig.backend.onCancel = cancelled.resolve;
  const counts = await Promise.all(others.map(async (stream) => {
    let count = 0;
    for await (const { textDelta } of stream) count += textDelta.length;
    return count;
  }));
  assert.deepEqual(counts, counts.map(() => 100 * 1024));
  // The unread stream has sent what the socket takes, and not a chunk more was asked of the backend.
  const taken = rig.backend.talks.get("slow")?.taken ?? 0;
  assert.ok(taken < 40, `${taken} chunks of 32 KiB were taken for a client that does not read`);
  assert.equal(await cancelled.promise, "slow");
  await eventually("its connection is gone", () => rig.server.connections === 0);
  assert.equal(rig.server.generations, 0);
  slow.close();
});

Deno.test("a client that goes away in mid-stream: the cancel reaches the backend within a second", async () => {
  await using rig = await ServerRig.start();
  const connection = await rig.connect();
  await writeAll(connection, generateFrame(1, "gen", {}, { generate: { chunks: 1, hold: true } }));
  const reader = new FrameReader(connection, LOCAL_FRAMES);
  assert.ok(await reader.readFrame());
  connection.close();
  await eventually("the backend is told", () => rig.backend.cancelled.includes("gen"), CANCEL_LIMIT_MS);
  await eventually("nothing of it is left", () => rig.server.connections === 0 && rig.backend.running === 0);
});

Deno.test("a duplicate request id on another connection is refused; the running one is not harmed", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const requestId = "the-same";
  const first = client.generate({ model: "test/model", requestId, parameters: { chunks: 1, hold: true } });
  const kinds: (string | undefined)[] = [];
  for await (const chunk of first) {
    kinds.push(chunk.finishReason);
    if (chunk.seq > 0) continue;
    const second = client.generate({ model: "test/model", requestId, parameters: { chunks: 1 } });
    await assert.rejects(
      second[Symbol.asyncIterator]().next(),
      (thrown) => thrown instanceof LocalIngestError && thrown.reason === "DUPLICATE_REQUEST",
    );
    await first.cancel();
  }
  assert.deepEqual(kinds, [undefined, "cancelled"]);
});

Deno.test("81 operations at once: all of them are answered", async () => {
  await using rig = await ServerRig.start();
  const connection = await rig.connect();
  const gate = Promise.withResolvers<void>();
  const { answer } = rig.backend;
  rig.backend.answer = async (body) => {
    await gate.promise;
    return await answer(body);
  };
  const frames = Array.from({ length: 81 }, (_, i) => workFrame(i + 1, `req-${i}`, 1, { timeoutMs: 60_000n }));
  for (const frame of frames) await writeAll(connection, frame);
  await eventually("80 of them have been taken", () => rig.parts.ledger.counts.opened === 80);
  gate.resolve();
  const reader = new FrameReader(connection, LOCAL_FRAMES);
  const ids = new Set<bigint>();
  while (ids.size < 81) {
    const frame = await reader.readFrame();
    assert.ok(frame !== undefined, `the connection ended after ${ids.size} answers`);
    const response = decodeResponse(frame);
    assert.equal(response.ok, true);
    ids.add(response.id);
  }
  connection.close();
});

Deno.test("a client that announces much and sends little holds little", async () => {
  await using rig = await ServerRig.start();
  const before = Deno.memoryUsage();
  const connections = await Promise.all(Array.from({ length: 50 }, () => rig.connect()));
  const header = new Uint8Array(4);
  new DataView(header.buffer).setUint32(0, 64 * 1024 * 1024, true);
  for (const connection of connections) await writeAll(connection, header);
  using client = rig.client();
  await client.ping();
  const after = Deno.memoryUsage();
  const grown = after.external + after.heapUsed - before.external - before.heapUsed;
  assert.ok(grown < 50 * 1024 * 1024, `${grown} bytes for 50 headers`);
  for (const connection of connections) connection.close();
  await eventually("they are gone", () => rig.server.connections === 1);
});

Deno.test("drain during a stream: it is cancelled, told so, and the socket is gone", async () => {
  const rig = await ServerRig.start();
  using client = rig.client();
  const stream = client.generate({ model: "test/model", parameters: { chunks: 1, hold: true } });
  const chunks = stream[Symbol.asyncIterator]();
  await chunks.next();
  const next = chunks.next();
  const [, refused] = await Promise.all([
    rig.server.close(),
    next.then(() => undefined, (thrown: unknown) => thrown),
  ]);
  assert.ok(refused instanceof LocalIngestError);
  assert.equal(refused.message, "DISCONNECTED: the sidecar is shutting down");
  assert.deepEqual(rig.backend.cancelled, [stream.requestId]);
  assert.equal(rig.server.connections, 0);
  await rig[Symbol.asyncDispose]();
});

Deno.test("closing waits for nobody who does not read", async () => {
  const rig = await ServerRig.start();
  const connection = await rig.connect();
  await writeAll(connection, requestFrame(1, "publish_work", callBody("req", "encode", [{}])));
  rig.backend.answer = () => new Promise(() => {});
  await eventually("it is running", () => rig.parts.ledger.counts.opened === 1);
  await rig.server.close();
  assert.equal(rig.server.connections, 0);
  connection.close();
  await rig[Symbol.asyncDispose]();
});

Deno.test("a thousand short streams, 64 at a time: nothing is left of them", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  let started = 0;
  const worker = async () => {
    while (started < 1000) {
      const n = started++;
      const stream = client.generate({ model: "test/model", parameters: { chunks: n % 5, text: "word " } });
      const taken: number[] = [];
      for await (const { seq } of stream) {
        taken.push(seq);
        // Some go away, some cancel, most read to the end.
        if (n % 10 === 3) break;
        if (n % 10 === 6) await stream.cancel();
      }
      if (n % 10 !== 3 && n % 10 !== 6) assert.equal(taken.length, n % 5 + 1);
    }
  };
  await Promise.all(Array.from({ length: 64 }, worker));
  await eventually("all connections are gone", () => rig.server.connections === 0);
  assert.equal(rig.server.generations, 0);
  assert.equal(rig.backend.running, 0);
  assert.equal(rig.backend.talks.size, 1000);
  assert.equal(rig.parts.barrier.sharedHolders, 0);
});

Deno.test("clients of every kind of badness do not disturb a good one", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const bad = await Promise.all(Array.from({ length: 30 }, () => rig.connect()));
  for (const [i, connection] of bad.entries()) {
    const frame = i % 3 === 0
      ? Uint8Array.of(1, 0, 0, 0, 0xc1)
      : i % 3 === 1
      ? pingFrame(1).subarray(0, 9)
      : pingFrame(1);
    await writeAll(connection, frame);
    if (i % 2 === 0) connection.close();
  }
  const inputs = Array.from({ length: 20 }, () => ({ item: { text: "good" } }));
  const results = await client.publishWork({ operation: "encode", model: "test/model", inputs });
  assert.equal(results.filter(({ success }) => success).length, 20);
  for (const [i, connection] of bad.entries()) if (i % 2 !== 0) connection.close();
  await eventually("they are gone", () => rig.server.connections === 1);
});
