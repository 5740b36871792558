/** Several backend processes behind one client. */
import assert from "node:assert/strict";
import { type BackendOptions, BackendPool, createBackend } from "../../src/ipc/backend_pool.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { failureOf } from "./clients.ts";
import { errorAnswer, okAnswer, pingAnswer } from "./frames.ts";
import { answering, type ReceivedRequest, ScriptedBackend } from "./scripted_backend.ts";

type Answers = (request: ReceivedRequest) => Uint8Array | undefined;

/** What a child says unless a test says otherwise. */
function usual({ method, requestId }: ReceivedRequest): Uint8Array {
  switch (method) {
    case "Ping":
      return pingAnswer(requestId);
    case "EnsureModelReady":
      return okAnswer(requestId, { state: "ready" });
    case "WorkerCapabilities":
      return okAnswer(requestId, { supports_execution_authority_v1: true });
    case "RunBatch":
    case "ProcessEncodeBatch":
      return okAnswer(requestId, { outcomes: [] });
    case "SignalGenerateCancel":
      return okAnswer(requestId, { matched: false });
    case "Drain":
      return okAnswer(requestId, { acknowledged: true });
    case "ApplyModelConfig":
    case "ReplaceModelConfigs":
      return okAnswer(requestId, { applied: true, bundle_config_hash: "h", config_version: 1 });
    default:
      throw new Error(`unexpected ${method}`);
  }
}

/** Two children whose answers a test may change while it runs. */
class TwoChildren implements AsyncDisposable {
  answers: [Answers, Answers] = [usual, usual];
  readonly backends = ([0, 1] as const).map((index) =>
    new ScriptedBackend(answering((request) => this.answers[index](request)))
  ) as [ScriptedBackend, ScriptedBackend];
  readonly readiness: number[] = [];
  readonly pool: BackendPool;

  constructor(options: Partial<BackendOptions> = {}) {
    this.pool = createBackend({
      sockets: this.backends.map(({ path }) => path),
      poolSize: 1,
      requestTimeoutMs: 60_000,
      modelReadyTimeoutMs: 60_000,
      generateFrameTimeoutMs: 60_000,
      onReadyChildren: (ready) => this.readiness.push(ready),
      ...options,
    });
  }

  asked(child: 0 | 1, method?: string): ReceivedRequest[] {
    return this.backends[child].requests.filter((request) => method === undefined || request.method === method);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.pool.close();
    for (const backend of this.backends) await backend[Symbol.asyncDispose]();
  }
}

function batch(modelId: string) {
  const entries = [{ work: decodeWorkItem(workItemBytes()), input: { payloadFetchMs: 0 } }];
  return { modelId, operation: "encode" as const, batchId: 0, loraKey: "", totalCost: 3, entries };
}

const CONFIG = {
  bundleId: "b",
  modelId: "m",
  epoch: 1,
  bundleConfigHash: "h",
  profilesAdded: [],
  modelConfig: "sie_id: m",
  bundleAdapters: undefined,
};

Deno.test("sockets are checked: at least one, none twice", () => {
  const options = { poolSize: 1, requestTimeoutMs: 1, modelReadyTimeoutMs: 1, generateFrameTimeoutMs: 1 };
  assert.throws(() => createBackend({ ...options, sockets: [] }), /at least one/);
  assert.throws(() => createBackend({ ...options, sockets: ["a", "b", "a"] }), /a is named twice/);
});

Deno.test("a model's readiness and batches go to its child; models spread", async () => {
  await using two = new TwoChildren();
  const { pool } = two;
  await pool.pingAll();
  await pool.ensureModelReady("a");
  await pool.ensureModelReady("b");
  await pool.runBatch(batch("a"));
  await pool.processBatch("encode", "b", batch("b").entries);
  assert.deepEqual(two.asked(0).map(({ method }) => method), [
    "Ping",
    "WorkerCapabilities",
    "EnsureModelReady",
    "RunBatch",
  ]);
  assert.deepEqual(two.asked(1).map(({ method }) => method), [
    "Ping",
    "WorkerCapabilities",
    "EnsureModelReady",
    "ProcessEncodeBatch",
  ]);
});

Deno.test("a failed call makes its child not ready and moves the model; a ping brings the child back", async () => {
  await using two = new TwoChildren();
  const { pool } = two;
  assert.equal((await pool.pingAll()).readyChildren, 2);
  await pool.ensureModelReady("a");
  two.answers[0] = (request) => errorAnswer(request.requestId, "RuntimeError: out of order");
  const error = await failureOf(pool.runBatch(batch("a")));
  assert.ok(error instanceof IpcError && error.kind === "server");
  assert.equal(pool.readyChildren, 1);
  await pool.runBatch(batch("a"));
  assert.equal(two.asked(1, "RunBatch").length, 1);
  two.answers[0] = usual;
  assert.equal((await pool.pingAll()).readyChildren, 2);
  assert.deepEqual(two.readiness, [1, 2, 1, 2]);
});

Deno.test("a ping round asks all children at once, and the ready ones for their capabilities", async () => {
  await using two = new TwoChildren();
  two.answers[1] = (request) => pingAnswer(request.requestId, { ready: false, loading_models: ["m"] });
  const round = await two.pool.pingAll();
  assert.equal(two.asked(0, "WorkerCapabilities").length, 1);
  assert.equal(two.asked(1, "WorkerCapabilities").length, 0);
  assert.deepEqual([round.successful, round.readyChildren, two.pool.readyChildren], [true, 1, 1]);
  assert.deepEqual(round.children[1]?.answer?.loadingModels, ["m"]);
});

Deno.test("a child that does not answer is reported with its error", async () => {
  await using two = new TwoChildren();
  await two.backends[1][Symbol.asyncDispose]();
  const round = await two.pool.pingAll();
  assert.equal(round.children[1]?.error?.io, "not_found");
  assert.equal(round.readyChildren, 1);
  two.backends[1] = new ScriptedBackend(answering(usual));
});

Deno.test("a cancel reaches all children and matches if one of them had the request", async () => {
  await using two = new TwoChildren();
  two.answers[1] = (request) => okAnswer(request.requestId, { matched: true });
  assert.equal(await two.pool.signalGenerateCancel("req"), true);
  assert.deepEqual(two.asked(0).map(({ body }) => body), [{ request_id: "req" }]);
  assert.deepEqual(two.asked(1).map(({ body }) => body), [{ request_id: "req" }]);
  two.answers[1] = (request) => errorAnswer(request.requestId, "no");
  assert.equal(await two.pool.signalGenerateCancel("req"), false);
  two.answers[0] = two.answers[1];
  assert.ok(await failureOf(two.pool.signalGenerateCancel("req")) instanceof IpcError);
});

Deno.test("Drain goes to one child after the other, and a failure does not stop it", async () => {
  const order: string[] = [];
  await using two = new TwoChildren();
  two.answers = [
    ({ requestId, body }) => {
      order.push(`first ${JSON.stringify(body)}`);
      assert.equal(two.asked(1).length, 0);
      return errorAnswer(requestId, "no");
    },
    (request) => {
      order.push("second");
      return usual(request);
    },
  ];
  const [first, second] = await two.pool.drain(15_000);
  assert.deepEqual(order, ['first {"deadline_ms":15000}', "second"]);
  assert.ok(first !== undefined && "error" in first && first.error.message === "no");
  assert.deepEqual(second, { child: 1, acknowledged: true });
});

Deno.test("from the start of a config fan-out until all have applied it there is no inference", async () => {
  await using two = new TwoChildren();
  const { pool } = two;
  await pool.pingAll();
  const reached = Promise.withResolvers<void>();
  two.answers[1] = (request) => {
    if (request.method !== "ApplyModelConfig") return usual(request);
    reached.resolve();
    return undefined;
  };
  const applying = pool.applyModelConfig(CONFIG);
  await reached.promise;
  // One after the other: the first child has answered before the second was asked.
  assert.equal(two.asked(0, "ApplyModelConfig").length, 1);
  assert.equal(pool.quarantined, true);
  assert.equal(pool.readyChildren, 0);
  for (
    const call of [pool.ensureModelReady("a"), pool.runBatch(batch("a")), pool.generate("a", new Uint8Array()).next()]
  ) {
    const error = await failureOf(call);
    assert.ok(error instanceof IpcError && error.kind === "server" && /quarantined/.test(error.message));
  }
  assert.equal(two.asked(0, "RunBatch").length, 0);
  two.pool.close();
  assert.ok(await failureOf(applying) instanceof IpcError);
  assert.equal(pool.quarantined, true);
});

Deno.test("a fan-out that all applied ends the quarantine and makes all children ready at once", async () => {
  await using two = new TwoChildren();
  const answer = await two.pool.replaceModelConfigs({ ...CONFIG, models: [{ modelId: "m", modelConfig: "x" }] });
  assert.equal(answer.applied, true);
  assert.deepEqual([two.pool.quarantined, two.pool.readyChildren], [false, 2]);
  assert.deepEqual(two.readiness, [0, 2]);
});

Deno.test("children that disagree, and one that fails, leave the pool quarantined; the next success lifts it", async () => {
  await using two = new TwoChildren();
  const { pool } = two;
  two.answers[1] = (request) =>
    request.method === "ApplyModelConfig"
      ? okAnswer(request.requestId, { applied: true, bundle_config_hash: "another" })
      : usual(request);
  assert.equal((await pool.applyModelConfig(CONFIG)).applied, false);
  assert.equal(pool.quarantined, true);
  // A ping cannot make a child ready now.
  const round = await pool.pingAll();
  assert.deepEqual([round.successful, round.supportsExecutionAuthorityV1, pool.readyChildren], [false, false, 0]);
  two.answers[0] = (request) => errorAnswer(request.requestId, "ValueError: no");
  assert.ok(await failureOf(pool.applyModelConfig(CONFIG)) instanceof IpcError);
  // The other child was told all the same.
  assert.equal(two.asked(1, "ApplyModelConfig").length, 2);
  two.answers = [usual, usual];
  await pool.applyModelConfig(CONFIG);
  assert.equal(pool.quarantined, false);
  await pool.runBatch(batch("a"));
});

Deno.test("models that take several batches at once grow their child's pool", async () => {
  const release = Promise.withResolvers<void>();
  let running = 0;
  const three = Promise.withResolvers<void>();
  await using backend = new ScriptedBackend(async (connection) => {
    for (let request = await connection.request(); request !== undefined; request = await connection.request()) {
      const { method, requestId } = request;
      if (method === "EnsureModelReady") {
        const descriptor = { max_concurrent_dispatch: 2 };
        await connection.send(okAnswer(requestId, { state: "ready", descriptor }));
      } else {
        if (++running === 3) three.resolve();
        await release.promise;
        await connection.send(okAnswer(requestId, { outcomes: [] }));
      }
    }
  });
  const pool = createBackend({
    sockets: [backend.path],
    poolSize: 1,
    requestTimeoutMs: 60_000,
    modelReadyTimeoutMs: 60_000,
    generateFrameTimeoutMs: 60_000,
  });
  await pool.ensureModelReady("wide");
  const calls = [1, 2, 3, 4].map(() => pool.runBatch(batch("wide")));
  await three.promise;
  assert.equal(running, 3);
  release.resolve();
  await Promise.all(calls);
  assert.equal(backend.connections, 3);
  pool.close();
});

Deno.test("the limit of a batch is the larger of its own and the ordinary one", async () => {
  const limits: number[] = [];
  const clock = {
    now: () => 0,
    unixMs: () => 0,
    after(ms: number) {
      limits.push(ms);
      return () => {};
    },
  };
  await using two = new TwoChildren({ clock, requestTimeoutMs: 1000, modelReadyTimeoutMs: 5000 });
  await two.pool.runBatch(batch("a"));
  await two.pool.runBatch(batch("a"), { atLeastMs: 500 });
  await two.pool.runBatch(batch("a"), { atLeastMs: 30_000 });
  await two.pool.ensureModelReady("a");
  assert.deepEqual(limits, [1000, 1000, 30_000, 5000]);
});

Deno.test("pings and cancellations do not wait behind batches", async () => {
  await using two = new TwoChildren();
  const { pool } = two;
  const arrived = Promise.withResolvers<void>();
  two.answers[0] = (request) => {
    if (request.method !== "RunBatch") return usual(request);
    arrived.resolve();
    return undefined;
  };
  await pool.ensureModelReady("a");
  const batches = [failureOf(pool.runBatch(batch("a"))), failureOf(pool.runBatch(batch("a")))];
  await arrived.promise;
  assert.equal((await pool.pingAll()).readyChildren, 2);
  assert.equal(await pool.signalGenerateCancel("r"), false);
  assert.deepEqual(await pool.drain(1000), [{ child: 0, acknowledged: true }, { child: 1, acknowledged: true }]);
  pool.close();
  await Promise.all(batches);
});
