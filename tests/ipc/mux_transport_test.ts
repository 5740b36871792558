import assert from "node:assert/strict";
import { IpcError } from "../../src/ipc/errors.ts";
import { EnsureModelReady, Ping } from "../../src/wire/ipc/methods.ts";
import { encodeNotation } from "../harness/notation.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";
import { client, failureOf } from "./clients.ts";
import { FakeBackend } from "./fake_stream.ts";
import { chunkFrame, framed, pingAnswer } from "./frames.ts";

const LIMIT = 60_000;
const PAUSE = 100;

function setup() {
  const backend = new FakeBackend();
  const clock = new VirtualClock();
  const dropped: string[] = [];
  const { transport } = client({
    mode: "mux",
    connect: backend.connect,
    clock,
    calls: { dropped: (id) => dropped.push(id) },
  });
  return { backend, clock, dropped, transport, ping: (limitMs = LIMIT) => transport.call(Ping, 1.5, limitMs) };
}

function ids(backend: FakeBackend, connection: number): string[] {
  return backend.stream(connection).requests().map(({ request_id }) => request_id);
}

function kindOf(thrown: unknown): string {
  assert.ok(thrown instanceof IpcError, String(thrown));
  return thrown.io === undefined ? thrown.kind : `${thrown.kind} ${thrown.io}`;
}

Deno.test("answers find their calls in any order, on one connection", async () => {
  const { backend, transport, ping } = setup();
  const names: string[] = [];
  const calls = ["a", "b", "c"].map((name) => ping().then(({ workerId }) => names.push(`${name}=${workerId}`)));
  await settle();
  assert.deepEqual(ids(backend, 1), ["w-1", "w-2", "w-3"]);
  for (const number of [3, 1, 2]) backend.stream(1).push(pingAnswer(`w-${number}`, { worker_id: String(number) }));
  await Promise.all(calls);
  assert.deepEqual(names, ["c=3", "a=1", "b=2"]);
  assert.equal(backend.tries, 1);
  transport.close();
});

Deno.test("answers are routed whatever the order of their keys", async () => {
  const { backend, transport, ping } = setup();
  const call = ping();
  await settle();
  const body = { worker_id: "last", timestamp_ms: 1 };
  const fields = { body, error: null, ok: true, kind: "future", request_id: "w-1", version: 1 };
  backend.stream(1).push(framed(encodeNotation(fields)));
  assert.equal((await call).workerId, "last");
  transport.close();
});

Deno.test("a missing socket is waited for, a try every 100 ms, until the call's own limit", async () => {
  const { backend, clock, transport, ping } = setup();
  backend.refuse(new Deno.errors.NotFound("test"));
  const short = failureOf(ping(1000));
  const long = ping();
  await clock.advance(950);
  assert.equal(backend.tries, 10);
  await clock.advance(50);
  assert.equal(kindOf(await short), "timeout");
  backend.refuse(undefined);
  await clock.advance(PAUSE);
  // The call that gave up is not written.
  assert.deepEqual(ids(backend, 1), ["w-2"]);
  backend.stream(1).push(pingAnswer("w-2"));
  await long;
  transport.close();
});

Deno.test("when the connection ends everything written is tried once more, on the next one after a pause", async () => {
  const { backend, clock, transport, ping } = setup();
  const [first, second] = [ping(), ping()];
  await settle();
  backend.stream(1).end();
  await settle();
  assert.equal(backend.tries, 1);
  await clock.advance(PAUSE);
  assert.deepEqual(ids(backend, 2), ["w-1", "w-2"]);
  assert.deepEqual(backend.stream(1).written, backend.stream(2).written);
  backend.stream(2).push(pingAnswer("w-1"));
  await first;
  backend.stream(2).fail(new Deno.errors.ConnectionReset("test"));
  assert.equal(kindOf(await failureOf(second)), "io connection_reset");
  transport.close();
});

Deno.test("a failed write ends the connection as a failed read does", async () => {
  const { backend, clock, transport, ping } = setup();
  const first = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-1"));
  await first;
  backend.stream(1).fail(new Deno.errors.BrokenPipe("test"));
  const second = ping();
  await clock.advance(PAUSE);
  backend.stream(2).push(pingAnswer("w-2"));
  await second;
  transport.close();
});

Deno.test("a write that hangs does not keep the next connection from being used", async () => {
  const { backend, clock, transport, ping } = setup();
  const first = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-1"));
  await first;
  backend.stream(1).stuck = true;
  const second = ping();
  const third = ping();
  await settle();
  backend.stream(1).end();
  await clock.advance(PAUSE);
  assert.deepEqual(ids(backend, 2).sort(), ["w-2", "w-3"]);
  backend.stream(2).push(pingAnswer("w-2"), pingAnswer("w-3"));
  await Promise.all([second, third]);
  transport.close();
});

Deno.test("an answer that comes too late is dropped and the connection goes on", async () => {
  const { backend, clock, dropped, transport, ping } = setup();
  const failure = failureOf(ping());
  await clock.advance(LIMIT);
  assert.equal(kindOf(await failure), "timeout");
  const next = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-1"), pingAnswer("w-2"));
  await next;
  assert.deepEqual(dropped, ["w-1"]);
  assert.equal(backend.tries, 1);
  transport.close();
});

Deno.test("a request above 32 MiB fails alone", async () => {
  const { backend, transport, ping } = setup();
  const large = failureOf(transport.call(EnsureModelReady, "x".repeat(33_554_432), LIMIT));
  const small = ping();
  await settle();
  assert.equal(kindOf(await large), "frame_too_large");
  assert.deepEqual(ids(backend, 1), ["w-2"]);
  backend.stream(1).push(pingAnswer("w-2"));
  await small;
  transport.close();
});

Deno.test("a chunk error fails its own call; later chunks for it are dropped", async () => {
  const { backend, dropped, transport, ping } = setup();
  const [bad, good] = [failureOf(ping()), ping()];
  await settle();
  const chunk = (index: number) => chunkFrame("w-1", new Uint8Array(32), index, 9, 33_554_433, Uint8Array.of(1));
  backend.stream(1).push(chunk(0), chunk(2), chunk(3), pingAnswer("w-2"));
  assert.equal(kindOf(await bad), "response_chunk");
  await good;
  assert.deepEqual(dropped, ["w-1"]);
  assert.equal(backend.tries, 1);
  transport.close();
});

Deno.test("closing fails everything, and nothing is connected afterwards", async () => {
  const { backend, clock, transport, ping } = setup();
  const running = failureOf(ping());
  await settle();
  transport.close();
  assert.equal(kindOf(await running), "io closed");
  assert.equal(kindOf(await failureOf(ping())), "io closed");
  await clock.advance(10 * PAUSE);
  assert.equal(backend.tries, 1);
  assert.equal(clock.timerCount, 0);
});
