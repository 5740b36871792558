/** The client against a scripted server: every outcome of section 5. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import { FEEDBACK_LIMITS, FeedbackClient, type FeedbackLimits } from "../../src/training/feedback_client.ts";
import { encodeMessage, readAck } from "../../src/training/feedback_message.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { TestLog } from "./support.ts";

/** An answer, or what else happens to a request. */
type Reaction = string | "close" | "silence";

/** A server that answers the n-th request as told; the last reaction holds on until {@link reactions} is changed. */
class ScriptedServer implements AsyncDisposable {
  readonly folder = new TestFolder();
  readonly requests: Record<string, unknown>[] = [];
  connections = 0;
  #listener: Deno.Listener<Deno.UnixConn> | undefined;
  #open = new Set<Deno.Conn>();
  #work: Promise<void>[] = [];
  reactions: Reaction[];

  constructor(reactions: Reaction[]) {
    this.reactions = reactions;
  }

  get path(): string {
    return this.folder.file("s.sock");
  }

  listen(): this {
    this.#listener = Deno.listen({ transport: "unix", path: this.path });
    this.#work.push(this.#accept(this.#listener));
    return this;
  }

  async #accept(listener: Deno.Listener<Deno.UnixConn>): Promise<void> {
    for await (const connection of listener) {
      this.connections++;
      this.#open.add(connection);
      this.#work.push(this.#serve(connection).catch(() => {}));
    }
  }

  async #serve(connection: Deno.Conn): Promise<void> {
    let rest = "";
    for await (const text of connection.readable.pipeThrough(new TextDecoderStream())) {
      rest += text;
      for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n")) {
        this.requests.push(JSON.parse(rest.slice(0, end)) as Record<string, unknown>);
        rest = rest.slice(end + 1);
        const reaction = this.reactions.length > 1 ? this.reactions.shift() : this.reactions[0];
        if (reaction === "close") return connection.close();
        if (reaction !== "silence") await connection.write(new TextEncoder().encode(`${reaction}\n`));
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener?.close();
    for (const connection of this.#open) {
      try {
        connection.close();
      } catch { /* already closed */ }
    }
    await Promise.all(this.#work);
    this.folder[Symbol.dispose]();
  }
}

const OK = '{"ok":true,"step":1,"trained":false,"job_id":""}';
const FULL = '{"ok":false,"error":"pending training queue is full (1 samples); retry later","retryable":true}';

function newClient(server: ScriptedServer, limits: Partial<FeedbackLimits> = {}) {
  const log = new TestLog();
  const quick = { redialBackoffMs: { first: 1, longest: 5 }, connectBackoffMs: { first: 1, longest: 5 } };
  const client = new FeedbackClient({
    socketPath: server.path,
    clock: systemClock,
    log,
    limits: { ...quick, ...limits },
  });
  return { client, log };
}

function message(jobId: string, value = 1) {
  return { jobId, features: Float32Array.of(value, 0.1), trueScore: 50 };
}

async function settled(client: FeedbackClient): Promise<void> {
  while (client.outstanding > 0) await client.changed();
}

Deno.test("messages are delivered in order, one in flight, in the form that servers read", async () => {
  await using server = new ScriptedServer([OK]).listen();
  const { client } = newClient(server);
  for (let i = 0; i < 20; i++) {
    assert.ok(client.send({ ...message(`j${i}`), extra: { codec: "av1", job_id: "not this" } }));
  }
  client.start();
  client.start();
  await settled(client);
  assert.deepEqual(server.requests.map((request) => request["job_id"]), Array.from({ length: 20 }, (_, i) => `j${i}`));
  assert.deepEqual(server.requests[0], { codec: "av1", job_id: "j0", features: [1, 0.100000001], true_score: 50 });
  assert.deepEqual([client.delivered, client.dropped, client.rejected, server.connections], [20, 0, 0, 1]);
  await client.close();
});

Deno.test("send never waits: a full queue drops the newest and counts it", async () => {
  await using server = new ScriptedServer([OK]);
  const { client } = newClient(server, { queue: 3 });
  assert.deepEqual([1, 2, 3, 4, 5].map((i) => client.send(message(`j${i}`))), [true, true, true, false, false]);
  assert.equal(client.dropped, 2);
  server.listen();
  client.start();
  await settled(client);
  assert.deepEqual(server.requests.map((request) => request["job_id"]), ["j1", "j2", "j3"]);
  await client.close();
});

Deno.test("a retryable answer keeps the message, first on the next connection, without a place in the queue", async () => {
  await using server = new ScriptedServer([FULL]).listen();
  const { client } = newClient(server, { queue: 2 });
  client.send(message("first"));
  client.start();
  await eventually("the first refusal", () => server.requests.length >= 1);
  assert.equal(client.delivered, 0);
  while (client.hasRoom) client.send(message("later"));
  assert.equal(client.dropped, 0);
  await eventually("more refusals", () => server.requests.length >= 3);
  server.reactions = [OK];
  await settled(client);
  const jobs = server.requests.map((request) => request["job_id"]);
  assert.deepEqual(jobs, [...new Array<string>(jobs.length - 2).fill("first"), "later", "later"]);
  assert.deepEqual([client.delivered, client.dropped], [3, 0]);
  assert.equal(server.connections, jobs.length - 2, "each refusal ends its connection");
  await client.close();
});

Deno.test("a lost connection, a late answer and too many answers keep the message", async () => {
  for (const reaction of ["close", "silence", `${OK}\n${OK}`]) {
    await using server = new ScriptedServer([reaction, OK]).listen();
    const { client } = newClient(server, { exchangeMs: 50 });
    client.send(message("kept"));
    client.start();
    await settled(client);
    assert.deepEqual(server.requests.map((request) => request["job_id"]), ["kept", "kept"], reaction);
    assert.equal(client.delivered, 1);
    await client.close();
  }
});

Deno.test("rejected, deferred and unreadable answers settle their message and keep the connection", async () => {
  await using server = new ScriptedServer([
    '{"ok":false,"error":"bad width"}',
    '{"ok":true,"retry_queued":true,"training_error":"boom"}',
    "not JSON",
    '{"ok":true,"checkpoint":"/m/model_v000001.onnx","step":7}',
    '{"ok":true,"checkpoint":null}',
  ]).listen();
  const { client, log } = newClient(server);
  for (let i = 0; i < 5; i++) client.send(message(`j${i}`));
  client.start();
  await settled(client);
  assert.deepEqual([client.delivered, client.rejected, client.dropped, server.connections], [4, 1, 0, 1]);
  assert.ok(log.has('WARN feedback: job "j0" was rejected: bad width'));
  assert.ok(log.has("boom"));
  assert.ok(log.has("INFO feedback: checkpoint /m/model_v000001.onnx at step 7"));
  await client.close();
});

Deno.test("a message that cannot be written is dropped once, and the next one follows on the same connection", async () => {
  await using server = new ScriptedServer([OK]).listen();
  const { client } = newClient(server);
  for (const bad of [NaN, Infinity, -Infinity, 1e39]) {
    client.send({ jobId: "bad", features: [bad], trueScore: 1 });
    client.send({ jobId: "bad", features: [1], trueScore: bad });
  }
  client.send(message("good"));
  client.start();
  await settled(client);
  assert.deepEqual(server.requests.map((request) => request["job_id"]), ["good"]);
  assert.deepEqual([client.delivered, client.dropped, server.connections], [1, 8, 1]);
  await client.close();
});

Deno.test("a server that comes late is found", async () => {
  await using server = new ScriptedServer([OK]);
  const { client, log } = newClient(server);
  client.send(message("early"));
  client.start();
  await eventually("failed connects", () => log.lines.length >= 3);
  server.listen();
  await settled(client);
  assert.equal(client.delivered, 1);
  await client.close();
});

Deno.test("close without start, start after close, close twice, close while waiting for an answer", async () => {
  await using server = new ScriptedServer(["silence"]).listen();
  const idle = newClient(server).client;
  await idle.close();
  idle.send(message("never"));
  idle.start();
  await idle.close();
  assert.equal(idle.delivered + idle.dropped, 0);

  const { client } = newClient(server, { exchangeMs: 600_000 });
  client.send(message("unanswered"));
  client.start();
  await eventually("the request", () => server.requests.length === 1);
  await client.close();
  await client.close();
  assert.deepEqual([client.delivered, client.dropped], [0, 0]);
  const waiting = newClient(server).client;
  waiting.start();
  await waiting.close();
});

Deno.test("waits between connections follow the contract's numbers", async () => {
  await using server = new ScriptedServer([FULL]);
  const waits: number[] = [];
  // Limits never expire here, and waits take no time; what was asked for is noted.
  const after = (delay: number, action: () => void) => {
    const isLimit = delay === FEEDBACK_LIMITS.connectMs;
    if (!isLimit) waits.push(delay);
    return systemClock.after(isLimit ? 60_000 : 0, action);
  };
  const client = new FeedbackClient({ socketPath: server.path, clock: { ...systemClock, after }, log: new TestLog() });
  client.send(message("x"));
  client.start();
  await eventually("failed connects", () => waits.length >= 9);
  assert.deepEqual(waits.slice(0, 9), [2000, 4000, 8000, 16_000, 32_000, 64_000, 120_000, 120_000, 120_000]);
  await client.close();
});

Deno.test("refused again and again, the client redials at once, then ever more slowly, at most every 2 s", async () => {
  await using server = new ScriptedServer([FULL]).listen();
  const waits: number[] = [];
  const limits = { connectMs: 600_000, exchangeMs: 600_001 };
  const after = (delay: number, action: () => void) => {
    if (delay < 600_000) waits.push(delay);
    return systemClock.after(delay < 600_000 ? 0 : delay, action);
  };
  const client = new FeedbackClient({
    socketPath: server.path,
    clock: { ...systemClock, after },
    log: new TestLog(),
    limits,
  });
  client.send(message("x"));
  client.start();
  await eventually("refusals", () => waits.length >= 7);
  assert.deepEqual(waits.slice(0, 7), [100, 200, 400, 800, 1600, 2000, 2000]);
  assert.ok(server.connections >= 8, "the first redial needs no wait");
  server.reactions = [OK];
  await settled(client);
  await client.close();
});

Deno.test("float32 values survive the text, and answers are read with zero values", () => {
  for (const value of [0.1, 1 / 3, 16777217, 1.17549435e-38, 3.4028234e38, -0.1]) {
    const [parsed] =
      (JSON.parse(new TextDecoder().decode(encodeMessage({ jobId: "", features: [value], trueScore: 0 }))) as {
        features: number[];
      }).features;
    assert.equal(Math.fround(parsed ?? NaN), Math.fround(value));
  }
  assert.deepEqual(readAck("{}"), { kind: "rejected", error: "" });
  assert.deepEqual(readAck('{"ok":true,"checkpoint":null}'), {
    kind: "accepted",
    checkpoint: "",
    step: 0,
    trainingError: "",
  });
  assert.deepEqual(readAck("[true]"), { kind: "unreadable" });
});
