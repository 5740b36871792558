/** `publish_generate_stream` and `cancel` (spec/local-ingest.md 7 and 9) on virtual time. */
import assert from "node:assert/strict";
import { IpcError } from "../../src/ipc/errors.ts";
import type { GenerateEvent } from "../../src/ipc/backend.ts";
import { decodeValue } from "../../src/client/values.ts";
import { settle } from "../sim/virtual_clock.ts";
import { cancelFrame, chunk, generateFrame, IngestRig, pingFrame, type RigClient } from "./rig.ts";
import { TalkingBackend } from "./talking_backend.ts";

class Rig extends IngestRig {
  readonly talking: TalkingBackend;

  constructor(options: ConstructorParameters<typeof IngestRig>[0] = {}) {
    const backend = new TalkingBackend();
    super({ ...options, backend });
    this.talking = backend;
  }
}

/** The frame of a generation that streams as {@link TalkingBackend} is told. */
function talkFrame(id: number, requestId: string, parameters: Record<string, string | number | boolean>, timeout = 0n) {
  return generateFrame(id, requestId, { timeoutMs: timeout }, { generate: parameters });
}

/** Kinds of the answers with an id, chunks with their numbers. */
function kindsOf(client: RigClient, id: number): string[] {
  return client.answersTo(id).map((answer) => {
    if (!answer.ok) return answer.error;
    const { body } = answer;
    return body.kind === "chunk" ? `chunk ${body.seq}` : body.kind === "final" ? `final ${body.chunks}` : body.kind;
  });
}

async function ended(rig: IngestRig, ...clients: readonly RigClient[]): Promise<void> {
  for (const client of clients) client.stream.end();
  await rig.clock.advance(11_000);
  await Promise.all(clients.map((client) => client.ended));
  assert.equal(rig.parts.claims.size, 0);
  assert.equal(rig.parts.barrier.sharedHolders, 0);
  assert.equal(rig.clock.timerCount, 0);
}

Deno.test("chunks in order, then the final answer, then nothing", async () => {
  const rig = new Rig();
  const client = rig.connect();
  await client.send(talkFrame(1, "gen", { chunks: 3 }));
  assert.deepEqual(kindsOf(client, 1), ["chunk 0", "chunk 1", "chunk 2", "chunk 3", "final 4"]);
  assert.equal(rig.talking.talks.get("gen")?.ended, "whole");
  assert.deepEqual(rig.backend.cancelled, []);
  await ended(rig, client);
});

Deno.test("the next event is asked for only when the chunk has been written", async () => {
  const rig = new Rig();
  const client = rig.connect();
  client.stream.stall();
  await client.send(talkFrame(1, "gen", { chunks: 10 }));
  assert.equal(rig.talking.talks.get("gen")?.taken, 0);
  client.stream.resume();
  await settle();
  assert.equal(kindsOf(client, 1).at(-1), "final 11");
  await ended(rig, client);
});

Deno.test("streams of one connection interleave, each in its order", async () => {
  const rig = new Rig();
  const client = rig.connect();
  await client.send(...[1, 2, 3].map((id) => talkFrame(id, `gen-${id}`, { chunks: 20 })));
  const all = Array.from({ length: 21 }, (_, i) => `chunk ${i}`);
  for (const id of [1, 2, 3]) assert.deepEqual(kindsOf(client, id), [...all, "final 21"]);
  const order = client.responses().map(({ id }) => Number(id));
  assert.ok(order.lastIndexOf(1) > order.indexOf(3), "they ran one after the other");
  await ended(rig, client);
});

Deno.test("a request id runs once in the process, whichever connection it is on; then it is free again", async () => {
  const rig = new Rig();
  const client = rig.connect(), other = rig.connect();
  await client.send(talkFrame(1, "gen", { chunks: 1, hold: true }));
  await client.send(talkFrame(2, "gen", { chunks: 1 }));
  await other.send(talkFrame(1, "gen", { chunks: 1 }));
  const duplicate = 'DUPLICATE_REQUEST: generation request "gen" is already active';
  assert.deepEqual(client.errorsOf(2), [duplicate]);
  assert.deepEqual(other.errorsOf(1), [duplicate]);
  await client.send(cancelFrame(3, "gen"));
  assert.equal(kindsOf(client, 1).at(-1), "final 2");
  await other.send(talkFrame(2, "gen", { chunks: 0 }));
  assert.deepEqual(kindsOf(other, 2), ["chunk 0", "final 1"]);
  await ended(rig, client, other);
});

Deno.test("the 65th stream of a connection is refused; another connection may have it", async () => {
  const rig = new Rig();
  const client = rig.connect(), other = rig.connect();
  for (let id = 1; id <= 64; id++) await client.send(talkFrame(id, `gen-${id}`, { chunks: 0, hold: true }));
  await client.send(talkFrame(65, "gen-65", { chunks: 0 }));
  assert.deepEqual(client.errorsOf(65), ["CAPACITY_EXHAUSTED: connection already has 64 active generation streams"]);
  await other.send(talkFrame(1, "gen-65", { chunks: 0 }));
  assert.equal(kindsOf(other, 1).at(-1), "final 1");
  await ended(rig, client, other);
});

Deno.test("cancel before, during and after, on this connection and on another", async () => {
  const rig = new Rig();
  const client = rig.connect(), other = rig.connect();
  await client.send(cancelFrame(1, "gen"));
  assert.deepEqual(kindsOf(client, 1), ["empty"]);
  await client.send(talkFrame(2, "gen", { chunks: 2, hold: true }));
  await other.send(cancelFrame(1, "gen"));
  assert.deepEqual(kindsOf(other, 1), ["empty"]);
  assert.deepEqual(rig.backend.cancelled, []);
  await client.send(cancelFrame(3, "gen"));
  assert.deepEqual(kindsOf(client, 3), ["empty"]);
  assert.deepEqual(kindsOf(client, 2), ["chunk 0", "chunk 1", "chunk 2", "final 3"]);
  const [last] = client.answersTo(2).slice(-2);
  assert.ok(last?.ok && last.body.kind === "chunk");
  assert.equal((decodeValue(last.body.chunk) as { finish_reason?: string }).finish_reason, "cancelled");
  await client.send(cancelFrame(4, "gen"));
  assert.deepEqual(kindsOf(client, 4), ["empty"]);
  assert.deepEqual(rig.backend.cancelled, ["gen"]);
  await ended(rig, client, other);
});

Deno.test("a cancel that the backend does not take is an error answer; the stream goes on", async () => {
  const rig = new Rig();
  const client = rig.connect();
  const gate = Promise.withResolvers<void>();
  rig.talking.cancelGate = gate.promise;
  await client.send(talkFrame(1, "gen", { chunks: 0, hold: true }));
  await client.send(cancelFrame(2, "gen"));
  await rig.clock.advance(5000);
  assert.deepEqual(client.errorsOf(2), ["TimeoutError: cancellation RPC timed out"]);
  rig.talking.cancelGate = Promise.reject(new IpcError("io", "connection refused"));
  await client.send(cancelFrame(3, "gen"));
  assert.deepEqual(client.errorsOf(3), ["TRANSPORT_FAILURE: generation cancel IPC failed: connection refused"]);
  gate.resolve();
  await settle();
  assert.deepEqual(kindsOf(client, 1), ["chunk 0", "final 1"]);
  await ended(rig, client);
});

Deno.test("one cancel at a time: the next one waits for its answer", async () => {
  const rig = new Rig();
  const client = rig.connect();
  const gate = Promise.withResolvers<void>();
  rig.talking.cancelGate = gate.promise;
  await client.send(talkFrame(1, "gen", { chunks: 0, hold: true }));
  await client.send(cancelFrame(2, "gen"), cancelFrame(3, "nobody"), pingFrame(4));
  assert.deepEqual([2, 3, 4].map((id) => client.answersTo(id).length), [0, 0, 0]);
  gate.resolve();
  await settle();
  assert.deepEqual([2, 3, 4].map((id) => client.answersTo(id).length), [1, 1, 1]);
  await ended(rig, client);
});

Deno.test("the deadline: no more chunks, a cancel, the backend's end awaited, TIMEOUT", async () => {
  const rig = new Rig();
  const client = rig.connect();
  await client.send(talkFrame(1, "gen", { chunks: 2, hold: true }, 250n));
  await rig.clock.advance(249);
  assert.deepEqual(kindsOf(client, 1), ["chunk 0", "chunk 1"]);
  await rig.clock.advance(1);
  assert.deepEqual(kindsOf(client, 1), ["chunk 0", "chunk 1", "TIMEOUT: generation timed out after 250ms"]);
  assert.deepEqual(rig.backend.cancelled, ["gen"]);
  // The backend was let finish: its connection was not torn down.
  assert.equal(rig.talking.talks.get("gen")?.ended, "whole");
  await ended(rig, client);
});

Deno.test("the deadline with a backend that neither takes the cancel nor ends: 10 s later, with what failed", async () => {
  const rig = new Rig();
  const client = rig.connect();
  rig.talking.cancelGate = new Promise(() => {});
  await client.send(talkFrame(1, "gen", { chunks: 0, hold: true }, 250n));
  await rig.clock.advance(250 + 5000);
  assert.deepEqual(kindsOf(client, 1), []);
  assert.equal(rig.talking.running, 1);
  await rig.clock.advance(5000);
  assert.deepEqual(kindsOf(client, 1), [
    "TIMEOUT: generation timed out after 250ms; cancellation failed: cancellation RPC timed out; " +
    "backend cancellation drain timed out",
  ]);
  // Its connection was closed then.
  assert.equal(rig.talking.talks.get("gen")?.ended, "dropped");
  await ended(rig, client);
});

Deno.test("a deadline beyond what one timer holds is kept, too", async () => {
  const rig = new Rig();
  const client = rig.connect();
  const days = 30n * 24n * 3600n * 1000n;
  await client.send(talkFrame(1, "gen", { chunks: 0, hold: true }, days));
  await rig.clock.advance(Number(days) - 1);
  assert.deepEqual(kindsOf(client, 1), []);
  await rig.clock.advance(1);
  assert.deepEqual(kindsOf(client, 1), [`TIMEOUT: generation timed out after ${days}ms`]);
  await ended(rig, client);
});

Deno.test("a client that goes away: its streams are cancelled and nothing more is written", async () => {
  const rig = new Rig();
  const client = rig.connect();
  await client.send(talkFrame(1, "gen-1", { chunks: 1, hold: true }), talkFrame(2, "gen-2", { chunks: 1, hold: true }));
  const before = client.stream.written().length;
  client.stream.end();
  await client.ended;
  assert.deepEqual(rig.backend.cancelled.toSorted(), ["gen-1", "gen-2"]);
  assert.equal(rig.talking.running, 0);
  assert.equal(client.stream.written().length, before);
  await ended(rig);
});

Deno.test("a client that does not read: its stream is cancelled after the write limit", async () => {
  const rig = new Rig();
  const client = rig.connect();
  client.stream.stall();
  await client.send(talkFrame(1, "gen", { endless: true }));
  await rig.clock.advance(4999);
  assert.deepEqual(rig.backend.cancelled, []);
  await rig.clock.advance(1);
  assert.deepEqual(rig.backend.cancelled, ["gen"]);
  assert.equal((await client.ended).kind, "broken");
  assert.equal(rig.talking.running, 0);
  await ended(rig);
});

Deno.test("shutdown: running streams are cancelled and told so", async () => {
  const rig = new Rig();
  const client = rig.connect();
  await client.send(talkFrame(1, "gen", { chunks: 1, hold: true }));
  await Promise.all([client.connection.shutdown(), client.ended]);
  assert.deepEqual(kindsOf(client, 1), ["chunk 0", "DISCONNECTED: the sidecar is shutting down"]);
  assert.deepEqual(rig.backend.cancelled, ["gen"]);
  assert.equal(rig.talking.running, 0);
  await ended(rig);
});

Deno.test("shutdown while the model is being asked for: nothing was started, nothing is cancelled", async () => {
  const rig = new Rig();
  rig.backend.readiness = () => new Promise(() => {});
  const client = rig.connect();
  await client.send(talkFrame(1, "gen", { chunks: 1 }, 100n));
  await rig.clock.advance(100);
  assert.deepEqual(kindsOf(client, 1), ["TIMEOUT: generation timed out after 100ms"]);
  assert.deepEqual(rig.backend.cancelled, []);
  assert.equal(rig.talking.talks.size, 0);
  await ended(rig, client);
});

Deno.test("a stream that waits behind a configuration change gives its side back when it is stopped", async () => {
  const rig = new Rig();
  await rig.parts.barrier.enterExclusive();
  const client = rig.connect();
  await client.send(talkFrame(1, "gen", { chunks: 1 }, 100n));
  await rig.clock.advance(100);
  assert.deepEqual(kindsOf(client, 1), ["TIMEOUT: generation timed out after 100ms"]);
  rig.parts.barrier.leaveExclusive();
  await settle();
  assert.equal(rig.parts.barrier.sharedHolders, 0);
  await ended(rig, client);
});

Deno.test("a configuration change waits for the stream, and the stream sees the one it began under", async () => {
  const rig = new Rig({ hash: "h1" });
  const client = rig.connect();
  const frame = generateFrame(1, "gen", { bundleConfigHash: "h1" }, {
    bundle_config_hash: "h1",
    generate: { chunks: 1, hold: true },
  });
  await client.send(frame);
  let changed = false;
  const change = rig.parts.barrier.enterExclusive().then(() => changed = true);
  await settle();
  assert.equal(changed, false);
  await client.send(cancelFrame(2, "gen"));
  await change;
  assert.equal(kindsOf(client, 1).at(-1), "final 2");
  rig.parts.barrier.leaveExclusive();
  await ended(rig, client);
});

const READINESS: readonly [string, () => unknown, string][] = [
  ["loading started", () => ({ state: "loading_started" }), 'MODEL_LOADING: model "test/model" is loading'],
  ["loading in progress", () => ({ state: "loading_in_progress" }), 'MODEL_LOADING: model "test/model" is loading'],
  ["retry later", () => ({ state: "retry_later" }), 'MODEL_LOADING: model "test/model" is loading'],
  ["failed", () => ({ state: "failed" }), 'MODEL_LOAD_FAILED: model "test/model" failed to load'],
  [
    "no backend",
    () => Promise.reject(new IpcError("io", "connection refused")),
    "BACKEND_UNAVAILABLE: EnsureModelReady failed: connection refused",
  ],
];

for (const [what, readiness, error] of READINESS) {
  Deno.test(`a model that is not ready is answered at once: ${what}`, async () => {
    const rig = new Rig();
    rig.backend.readiness = readiness as Rig["backend"]["readiness"];
    const client = rig.connect();
    await client.send(talkFrame(1, "gen", { chunks: 1 }));
    assert.deepEqual(kindsOf(client, 1), [error]);
    await ended(rig, client);
  });
}

Deno.test("media that cannot be read is refused before the backend hears of it", async () => {
  const rig = new Rig();
  const client = rig.connect();
  const generate = { messages: [{ role: "user", images: [{ data: "!!" }] }] };
  await client.send(generateFrame(1, "gen", {}, { generate }));
  assert.match(client.errorsOf(1)[0] ?? "", /^INVALID_INPUT: /);
  assert.equal(rig.talking.talks.size, 0);
  await ended(rig, client);
});

Deno.test("a backend that dies in mid-stream is a transport failure, and a cancel is tried", async () => {
  const rig = new Rig();
  rig.talking.stream = async function* (): AsyncGenerator<GenerateEvent> {
    yield { kind: "publish", replySubject: "_LOCAL.gen", payload: chunk("gen", 0) };
    await Promise.resolve();
    throw new IpcError("io", "the connection was reset");
  };
  const client = rig.connect();
  await client.send(talkFrame(1, "gen", { chunks: 1 }));
  assert.deepEqual(kindsOf(client, 1), [
    "chunk 0",
    "TRANSPORT_FAILURE: generation backend stream failed: the connection was reset",
  ]);
  assert.deepEqual(rig.backend.cancelled, ["gen"]);
  await ended(rig, client);
});

Deno.test("a chunk that fits no frame fails the stream", async () => {
  const rig = new Rig();
  const huge = "x".repeat(64 * 1024 * 1024);
  const client = rig.connect();
  rig.talking.stream = async function* (): AsyncGenerator<GenerateEvent> {
    yield { kind: "publish", replySubject: "_LOCAL.gen", payload: chunk("gen", 0, { text_delta: huge }) };
    await Promise.resolve();
  };
  await client.send(talkFrame(1, "gen", { chunks: 1 }));
  assert.deepEqual(kindsOf(client, 1), [
    "TRANSPORT_FAILURE: generation backend stream failed: server returned error: " +
    "ResultTooLarge: response frame exceeds 67108864 bytes",
  ]);
  await ended(rig, client);
});
