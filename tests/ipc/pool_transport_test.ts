import assert from "node:assert/strict";
import { type IoKind, IpcError } from "../../src/ipc/errors.ts";
import { PoolTransport } from "../../src/ipc/pool_transport.ts";
import { EnsureModelReady, type IpcMethod, Ping } from "../../src/wire/ipc/methods.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";
import { client, failureOf } from "./clients.ts";
import { FakeBackend } from "./fake_stream.ts";
import { errorAnswer, okAnswer, pingAnswer } from "./frames.ts";
import { answering, ScriptedBackend } from "./scripted_backend.ts";

const LIMIT = 60_000;

function setup(poolSize = 1) {
  const backend = new FakeBackend();
  const clock = new VirtualClock();
  const finished: string[] = [];
  const slow: string[] = [];
  const made = client({
    mode: "pool",
    connect: backend.connect,
    clock,
    poolSize,
    calls: {
      finished: (method, _, kind) => finished.push(`${method} ${kind ?? "ok"}`),
      slow: (method, ms) => slow.push(`${method} ${ms}`),
    },
  });
  assert.ok(made.transport instanceof PoolTransport);
  const transport = made.transport;
  return { backend, clock, finished, slow, transport, ping: () => transport.call(Ping, 1.5, LIMIT) };
}

function isIpc(thrown: unknown, kind: string, io?: IoKind): thrown is IpcError {
  assert.ok(thrown instanceof IpcError, String(thrown));
  assert.deepEqual([thrown.kind, thrown.io], [kind, io]);
  return true;
}

Deno.test("nothing is connected before the first call, and a connection is kept for the next", async () => {
  const { backend, ping } = setup(2);
  await settle();
  assert.equal(backend.tries, 0);
  const first = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-1"));
  assert.equal((await first).workerId, "scripted");
  const second = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-2"));
  await second;
  assert.equal(backend.tries, 1);
  assert.deepEqual(backend.stream(1).requests().map(({ request_id }) => request_id), ["w-1", "w-2"]);
});

Deno.test("a request is one write, header and body together", async () => {
  const { backend, ping } = setup();
  const call = ping();
  await settle();
  assert.equal(backend.stream(1).written.length, 1);
  backend.stream(1).push(pingAnswer("w-1"));
  await call;
});

Deno.test("callers wait for a connection in order, and that waiting has no limit", async () => {
  const { backend, clock, ping } = setup();
  const order: number[] = [];
  const calls = [1, 2, 3].map((number) => ping().then(() => order.push(number)));
  await settle();
  for (const number of [1, 2, 3]) {
    // Each answer comes just in time; the third call has then waited for twice its limit.
    await clock.advance(LIMIT - 1);
    assert.equal(backend.stream(1).requests().length, number);
    backend.stream(1).push(pingAnswer(`w-${number}`));
    await settle();
  }
  await Promise.all(calls);
  assert.deepEqual(order, [1, 2, 3]);
  assert.equal(backend.tries, 1);
});

Deno.test("a grown pool serves those who wait", async () => {
  const { backend, transport, ping } = setup();
  const calls = [ping(), ping(), ping()];
  await settle();
  assert.equal(backend.tries, 1);
  transport.grow(2);
  transport.grow(1);
  await settle();
  assert.equal(backend.tries, 2);
  assert.equal(transport.size, 2);
  backend.stream(1).push(pingAnswer("w-1"));
  backend.stream(2).push(pingAnswer("w-2"));
  await settle();
  for (const stream of backend.streams) stream.push(pingAnswer("w-3"));
  await Promise.all(calls);
});

Deno.test("a call without an answer times out, is not tried again, and costs its connection", async () => {
  const { backend, clock, finished, ping } = setup();
  const failure = failureOf(ping());
  await clock.advance(LIMIT - 1);
  assert.equal(finished.length, 0);
  await clock.advance(1);
  isIpc(await failure, "timeout");
  assert.deepEqual(finished, ["Ping timeout"]);
  assert.equal(backend.stream(1).closed, true);
  const next = ping();
  await settle();
  backend.stream(2).push(pingAnswer("w-2"));
  await next;
  assert.equal(backend.tries, 2);
});

Deno.test("a timeout covers connecting, and a connection that comes too late is closed", async () => {
  const backend = new FakeBackend();
  const clock = new VirtualClock();
  const connected = Promise.withResolvers<void>();
  const late = client({
    mode: "pool",
    clock,
    connect: async () => {
      await connected.promise;
      return await backend.connect();
    },
  });
  const failure = failureOf(late.transport.call(Ping, 0, LIMIT));
  await clock.advance(LIMIT);
  isIpc(await failure, "timeout");
  connected.resolve();
  await settle();
  assert.equal(backend.stream(1).closed, true);
});

Deno.test("a write that hangs ends by the limit, and its buffer is not used again", async () => {
  const { backend, clock, ping } = setup();
  const first = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-1"));
  await first;
  backend.stream(1).stuck = true;
  const failure = failureOf(ping());
  await clock.advance(LIMIT);
  isIpc(await failure, "timeout");
  const next = ping();
  await settle();
  backend.stream(2).push(pingAnswer("w-3"));
  await next;
});

const ONCE_MORE: readonly (readonly [new (message: string) => Error, IoKind])[] = [
  [Deno.errors.BrokenPipe, "broken_pipe"],
  [Deno.errors.ConnectionReset, "connection_reset"],
  [Deno.errors.ConnectionAborted, "connection_aborted"],
  [Deno.errors.UnexpectedEof, "unexpected_eof"],
  [Deno.errors.NotFound, "not_found"],
  [Deno.errors.NotConnected, "not_connected"],
  [Deno.errors.WouldBlock, "would_block"],
];
const NEVER: readonly (readonly [new (message: string) => Error, IoKind])[] = [
  [Deno.errors.ConnectionRefused, "connection_refused"],
  [Deno.errors.PermissionDenied, "other"],
  [Error, "other"],
];

for (const [retried, kinds] of [[true, ONCE_MORE], [false, NEVER]] as const) {
  for (const [type, io] of kinds) {
    Deno.test(`${io} (${type.name}) is ${retried ? "tried once more" : "not tried again"}`, async () => {
      const { backend, finished, ping } = setup();
      backend.refuse(new type("test"));
      isIpc(await failureOf(ping()), "io", io);
      assert.equal(backend.tries, retried ? 2 : 1);
      assert.deepEqual(finished, ["Ping io"]);
    });
  }
}

Deno.test("the retry sends the same bytes", async () => {
  const { backend, ping } = setup(2);
  const call = ping();
  await settle();
  backend.stream(1).fail(new Deno.errors.ConnectionReset("test"));
  await settle();
  backend.stream(2).push(pingAnswer("w-1"));
  await call;
  assert.deepEqual(backend.stream(1).written, backend.stream(2).written);
});

Deno.test("after the backend was replaced every idle connection is dead, and calls still succeed", async () => {
  const { backend, ping } = setup(3);
  const calls = [ping(), ping(), ping()];
  await settle();
  backend.streams.forEach((stream, index) => stream.push(pingAnswer(`w-${index + 1}`)));
  await Promise.all(calls);
  for (const stream of backend.streams) stream.fail(new Deno.errors.BrokenPipe("the old process is gone"));
  const again = [ping(), ping(), ping()];
  await settle();
  assert.equal(backend.tries, 6);
  for (const number of [4, 5, 6]) {
    const [request] = backend.stream(number).requests();
    backend.stream(number).push(pingAnswer(request?.request_id ?? ""));
  }
  await Promise.all(again);
});

Deno.test("a request above 32 MiB is refused before any I/O", async () => {
  const { backend, transport } = setup();
  isIpc(await failureOf(transport.call(EnsureModelReady, "x".repeat(33_554_432), LIMIT)), "frame_too_large");
  assert.equal(backend.tries, 0);
});

Deno.test("a request that cannot be written is an encode error and leaves the connection", async () => {
  const { backend, transport, ping } = setup();
  const first = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-1"));
  await first;
  const broken: IpcMethod<number, unknown> = {
    ...Ping,
    writeBody() {
      throw new Error("no such number");
    },
  };
  isIpc(await failureOf(transport.call(broken, 1, LIMIT)), "encode");
  const next = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-3"));
  await next;
});

Deno.test("a refusal leaves the connection in step", async () => {
  const { backend, ping } = setup();
  const call = failureOf(ping());
  await settle();
  backend.stream(1).push(errorAnswer("w-1", "draining"));
  const error = await call;
  assert.ok(isIpc(error, "server") && error.draining);
  const next = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-2"));
  await next;
  assert.equal(backend.tries, 1);
});

Deno.test("an answer to an earlier request does not answer the next", async () => {
  const { backend, ping } = setup();
  const first = ping();
  await settle();
  backend.stream(1).push(pingAnswer("w-1"), pingAnswer("w-1"));
  await first;
  const second = failureOf(ping());
  isIpc(await second, "response_chunk");
  assert.equal(backend.stream(1).closed, true);
});

Deno.test("closing fails what runs, what waits and what comes", async () => {
  const { backend, transport, ping } = setup();
  const running = failureOf(ping());
  await settle();
  const waiting = failureOf(ping());
  transport.close();
  isIpc(await running, "io", "closed");
  isIpc(await waiting, "io", "closed");
  isIpc(await failureOf(ping()), "io", "closed");
  assert.equal(backend.tries, 1);
  assert.equal(backend.stream(1).closed, true);
});

Deno.test("calls of two seconds and more are told", async () => {
  const { backend, clock, slow, ping } = setup();
  for (const [number, ms] of [[1, 1999], [2, 2000]] as const) {
    const call = ping();
    await clock.advance(ms);
    backend.stream(1).push(pingAnswer(`w-${number}`));
    await call;
  }
  assert.deepEqual(slow, ["Ping 2000"]);
});

Deno.test("a large request does not leave its buffer behind, and the next request is whole", async () => {
  const model = "m".repeat(3_000_000);
  await using backend = new ScriptedBackend(answering(({ method, requestId, body }) => {
    if (method === "Ping") return pingAnswer(requestId);
    assert.equal((body as { model_id: string }).model_id.length, model.length);
    return okAnswer(requestId, { state: "failed" });
  }));
  using to = client({ mode: "pool", path: backend.path });
  assert.equal((await to.transport.call(EnsureModelReady, model, LIMIT)).state, "failed");
  assert.equal((await to.transport.call(Ping, 1, LIMIT)).workerId, "scripted");
  assert.equal(backend.connections, 1);
});
