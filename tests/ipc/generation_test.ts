import assert from "node:assert/strict";
import { IpcError } from "../../src/ipc/errors.ts";
import { generateEvents } from "../../src/ipc/generation.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";
import { failureOf } from "./clients.ts";
import { FakeBackend } from "./fake_stream.ts";
import { chunkFrame, okAnswer } from "./frames.ts";

const FRAME_LIMIT = 300_000;

function setup(signal?: AbortSignal) {
  const backend = new FakeBackend();
  const clock = new VirtualClock();
  const options = {
    path: "backend.sock",
    connect: backend.connect,
    clock,
    frameTimeoutMs: FRAME_LIMIT,
    requestId: "w-1",
    signal,
  };
  const events = generateEvents(options, { modelId: "m", workItemMsgpack: Uint8Array.of(0x80) });
  return { backend, clock, events };
}

function event(kind: string, requestId = "w-1"): Uint8Array {
  return okAnswer(requestId, { kind, reply_subject: "r", payload: { $bin: "01" }, delay_ms: null, error: null });
}

function kindOf(thrown: unknown): string {
  assert.ok(thrown instanceof IpcError, String(thrown));
  return thrown.io === undefined ? thrown.kind : `${thrown.kind} ${thrown.io}`;
}

Deno.test("an event is read only when it is asked for", async () => {
  const { backend, events } = setup();
  assert.equal(backend.tries, 0);
  const first = events.next();
  await settle();
  const stream = backend.stream(1);
  assert.deepEqual(stream.requests().map(({ method }) => method), ["ProcessGenerate"]);
  stream.push(event("in_progress"));
  await first;
  const reads = stream.reads;
  stream.push(event("publish"));
  await settle();
  assert.equal(stream.reads, reads);
  assert.equal((await events.next()).value?.kind, "publish");
  await events.return();
  assert.equal(stream.closed, true);
});

Deno.test("the stream ends after done, and the connection is closed", async () => {
  const { backend, events } = setup();
  const next = events.next();
  await settle();
  backend.stream(1).push(event("done"), event("publish"));
  assert.equal((await next).value?.kind, "done");
  assert.equal((await events.next()).done, true);
  assert.equal(backend.stream(1).closed, true);
});

Deno.test("each frame has the limit for itself", async () => {
  const { backend, clock, events } = setup();
  for (let round = 0; round < 3; round++) {
    const next = events.next();
    await clock.advance(FRAME_LIMIT - 1);
    backend.stream(1).push(event("in_progress"));
    await next;
  }
  const late = failureOf(events.next());
  await clock.advance(FRAME_LIMIT);
  assert.equal(kindOf(await late), "timeout");
  assert.equal(backend.stream(1).closed, true);
  assert.equal(clock.timerCount, 0);
});

Deno.test("aborting closes the connection, before, while connecting, writing and reading", async () => {
  const early = setup(AbortSignal.abort());
  assert.equal(kindOf(await failureOf(early.events.next())), "io closed");
  assert.equal(early.backend.tries, 0);

  const connecting = new AbortController();
  const one = setup(connecting.signal);
  const first = failureOf(one.events.next());
  connecting.abort();
  assert.equal(kindOf(await first), "io closed");
  assert.equal(one.backend.stream(1).closed, true);

  const writing = new AbortController();
  const two = setup(writing.signal);
  const second = failureOf(two.events.next());
  // It is connected, and the write has not begun.
  two.backend.stream(1).stuck = true;
  await settle();
  writing.abort();
  assert.equal(kindOf(await second), "io closed");

  const reading = new AbortController();
  const three = setup(reading.signal);
  const third = failureOf(three.events.next());
  await settle();
  reading.abort();
  assert.equal(kindOf(await third), "io closed");
  assert.equal(three.clock.timerCount, 0);
});

Deno.test("it is never tried again", async () => {
  const { backend, events } = setup();
  backend.refuse(new Deno.errors.NotFound("test"));
  assert.equal(kindOf(await failureOf(events.next())), "io not_found");
  assert.equal(backend.tries, 1);
});

Deno.test("foreign answers and chunks break the stream", async () => {
  for (
    const [frame, expected] of [
      [event("publish", "w-2"), "response_chunk"],
      [chunkFrame("w-1", new Uint8Array(32), 0, 9, 33_554_433, Uint8Array.of(1)), "decode"],
      [okAnswer("w-1", { kind: 5 }), "decode"],
      [okAnswer("w-1", null), "server"],
    ] as const
  ) {
    const { backend, events } = setup();
    const next = failureOf(events.next());
    await settle();
    backend.stream(1).push(frame);
    assert.equal(kindOf(await next), expected);
    assert.equal(backend.stream(1).closed, true);
  }
});

Deno.test("an unknown kind is handed on by its name", async () => {
  const { backend, events } = setup();
  const next = events.next();
  await settle();
  backend.stream(1).push(event("applause"));
  assert.deepEqual((await next).value, { kind: "unknown", name: "applause" });
  await events.return();
});
