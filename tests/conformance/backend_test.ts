/** Our client against the real backend: every method, large answers, streams, races and crashes, over both transports. */
import assert from "node:assert/strict";
import { type BackendPool, createBackend } from "../../src/ipc/backend_pool.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { callFault, judgeRequest } from "../../src/wire/ipc/request.ts";
import { BACKEND_FRAMES, FrameReader, writeAll } from "../../src/wire/frames.ts";
import type { BatchEntry, BatchOperation } from "../../src/wire/ipc/batch_items.ts";
import type { BatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import type { GenerateEvent } from "../../src/wire/ipc/generate_event.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { decodeNotation, encodeNotation } from "../harness/notation.ts";
import { fromHex, join } from "../harness/paths.ts";
import { startBackend, startIpcHarness } from "../harness/peers.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { vectorsDir } from "../harness/vectors.ts";
import { type Value, workItemBytes } from "../harness/work_items.ts";
import { type Mode, MODES } from "../ipc/clients.ts";
import { framed } from "../ipc/frames.ts";

const LIMIT_MS = 60_000;

function connect(socket: string, mode: Mode, poolSize = 4): BackendPool & Disposable {
  const pool = createBackend({
    sockets: [socket],
    poolSize,
    requestTimeoutMs: LIMIT_MS,
    modelReadyTimeoutMs: LIMIT_MS,
    generateFrameTimeoutMs: LIMIT_MS,
    mux: mode === "mux",
  });
  return Object.assign(pool, { [Symbol.dispose]: () => pool.close() });
}

function entries(operation: BatchOperation, items: readonly { readonly [key: string]: Value }[]): BatchEntry[] {
  return items.map((fields, index) => ({
    work: decodeWorkItem(workItemBytes({ request_id: "r", item_index: index, operation, ...fields })),
    input: { payloadFetchMs: 0 },
  }));
}

function batch(operation: BatchOperation, modelId: string, items: readonly { readonly [key: string]: Value }[]) {
  return { modelId, operation, batchId: 1, loraKey: "", totalCost: items.length, entries: entries(operation, items) };
}

async function ready(pool: BackendPool, model: string): Promise<void> {
  await eventually(`${model} is ready`, async () => (await pool.ensureModelReady(model)).state === "ready");
}

function dispositions(answer: BatchOutcome): string[] {
  return answer.outcomes.map(({ disposition, error }) => error ?? disposition);
}

async function failure(call: Promise<unknown>): Promise<IpcError> {
  try {
    await call;
  } catch (thrown) {
    if (thrown instanceof IpcError) return thrown;
    throw thrown;
  }
  throw new Error("the call succeeded");
}

/** How a batch ended, in words. */
async function outcome(call: Promise<BatchOutcome>): Promise<string> {
  try {
    return dispositions(await call).join();
  } catch (thrown) {
    if (thrown instanceof IpcError) return `${thrown.kind} ${thrown.io ?? thrown.message}`;
    throw thrown;
  }
}

/** The body of a recorded request. */
function recorded(name: string): { readonly [key: string]: unknown } {
  const path = join(vectorsDir(), "backend", `${name}.json`);
  return JSON.parse(Deno.readTextFileSync(path)).decoded.request.body;
}

function generation(model: string, fields: { readonly [key: string]: Value }, requestId = "gen-1"): Uint8Array {
  return workItemBytes({
    request_id: requestId,
    operation: "generate",
    model_id: model,
    reply_subject: `_INBOX.gw.${requestId}`,
    generate: { prompt: "hello", max_new_tokens: 16, ...fields },
  });
}

async function collect(
  stream: AsyncIterable<GenerateEvent>,
): Promise<{ kinds: string[]; last: Record<string, unknown> }> {
  const kinds: string[] = [];
  let last: Record<string, unknown> = {};
  for await (const event of stream) {
    kinds.push(event.kind);
    if (event.kind === "publish") last = decodeNotation(event.payload) as Record<string, unknown>;
  }
  return { kinds, last };
}

for (const mode of MODES) {
  Deno.test(`${mode}: all methods`, async (t) => {
    using folder = new TestFolder();
    const socket = folder.file("ipc.sock");
    await using _backend = await startBackend({ socket });
    using pool = connect(socket, mode);

    await t.step("Ping and WorkerCapabilities", async () => {
      const round = await pool.pingAll();
      assert.equal(round.successful, true);
      assert.equal(round.children[0]?.answer?.workerId, "peer-worker-1");
      assert.match(round.bundleConfigHash, /^[0-9a-f]{64}$/);
      assert.equal(round.supportsExecutionAuthorityV1, true);
      const capabilities = await pool.workerCapabilities();
      assert.ok(capabilities.supportedModels.includes("Peer/dense-384.v1"));
      assert.ok(capabilities.generationModels.includes("peer-fake"));
    });

    await t.step("EnsureModelReady", async () => {
      assert.equal((await pool.ensureModelReady("no/such-model")).state, "retry_later");
      await ready(pool, "peer-fake");
      const readiness = await pool.ensureModelReady("peer-fake");
      assert.ok(readiness.state === "ready");
      assert.equal(readiness.batchBudget, 64);
      assert.equal(readiness.descriptor?.supportsRunBatch, true);
    });

    await t.step("RunBatch", async () => {
      const items = [{ item: { text: "hello" } }, { item: { id: "b", text: "wörld" } }, { item: { text: 5 } }];
      const encoded = await pool.runBatch(batch("encode", "peer-fake", items));
      // Outcomes come in any order.
      const codes = encoded.outcomes.map(({ disposition, errorCode }) => errorCode ?? disposition).sort();
      assert.deepEqual(codes, ["INVALID_INPUT", "publish_and_ack", "publish_and_ack"]);
      const raw = encoded.outcomes.find(({ rawOutput }) => rawOutput !== undefined)?.rawOutput;
      assert.ok(raw?.kind === "dense" && raw.values.length === 8);
      const query = { query_item: { text: "q" }, score_items: [{ id: "a", text: "x" }, { text: "y" }] };
      const scored = await pool.runBatch(batch("score", "peer-fake", [query]));
      assert.ok(scored.outcomes[0]?.rawOutput?.kind === "score");
      const extracted = await pool.runBatch(batch("extract", "peer-fake", [{ item: { text: "Ada met Grace" } }]));
      assert.ok((extracted.outcomes[0]?.resultLength ?? 0) > 0);
    });

    await t.step("a batch of several output types, with bin map keys and 64-bit integers passed through", async () => {
      const metadata = { big: 18_446_744_073_709_551_615n, bytes: Uint8Array.of(1, 2, 3) };
      const answer = await pool.runBatch(batch("encode", "peer-fake", [
        { item: { text: "three little words", metadata }, output_types: ["dense", "sparse", "multivector"] },
      ]));
      assert.deepEqual(dispositions(answer), ["publish_and_ack"]);
    });

    await t.step("the older batch methods", async () => {
      const texts = [{ item: { text: "a" } }];
      const query = { query_item: { text: "q" }, score_items: [{ text: "x" }] };
      for (const [operation, items] of [["encode", texts], ["score", [query]], ["extract", texts]] as const) {
        const answer = await pool.processBatch(operation, "peer-fake", entries(operation, items));
        assert.deepEqual(dispositions(answer), ["publish_and_ack"], operation);
      }
    });

    await t.step("ProcessGenerate", async () => {
      const { kinds, last } = await collect(pool.generate("peer-fake", generation("peer-fake", {})));
      assert.equal(kinds[0], "in_progress");
      assert.deepEqual(kinds.slice(-3), ["publish", "ack", "done"]);
      assert.equal(last.done, true);
    });

    await t.step("SignalGenerateCancel", async () => {
      const model = "peer-fake:slow-gen";
      const kinds: string[] = [];
      let last: Record<string, unknown> = {};
      for await (const event of pool.generate(model, generation(model, { max_new_tokens: 200 }, "gen-c"))) {
        kinds.push(event.kind);
        if (event.kind !== "publish") continue;
        last = decodeNotation(event.payload) as Record<string, unknown>;
        if (last.seq === 0) assert.equal(await pool.signalGenerateCancel("gen-c"), true);
      }
      assert.equal(last.finish_reason, "cancelled");
      assert.deepEqual(kinds.slice(-2), ["ack", "done"]);
      assert.equal(await pool.signalGenerateCancel("gen-never"), false);
    });

    await t.step("a stream that is left early does not disturb anything", async () => {
      const model = "peer-fake:slow-gen";
      for await (const event of pool.generate(model, generation(model, { max_new_tokens: 200 }, "gen-l"))) {
        if (event.kind === "publish") break;
      }
      assert.equal((await pool.pingAll()).successful, true);
    });

    await t.step("a hash that is not the backend's own", async () => {
      const items = [{ item: { text: "a" }, bundle_config_hash: "0".repeat(64) }];
      const answer = await pool.runBatch(batch("encode", "peer-fake", items));
      assert.deepEqual(answer.outcomes.map((each) => [each.disposition, each.nakDelayMs]), [["nak_retry", 5000]]);
    });

    await t.step("ApplyModelConfig and ReplaceModelConfigs", async () => {
      const apply = recorded("apply-config") as Record<string, string> & { epoch: number; profiles_added: string[] };
      const before = (await pool.pingAll()).bundleConfigHash;
      const applied = await pool.applyModelConfig({
        bundleId: apply.bundle_id ?? "",
        modelId: apply.model_id ?? "",
        epoch: Number(apply.epoch),
        bundleConfigHash: apply.bundle_config_hash ?? "",
        profilesAdded: apply.profiles_added as string[],
        modelConfig: apply.model_config ?? "",
        bundleAdapters: undefined,
      });
      assert.equal(applied.applied, true);
      assert.notEqual(applied.bundleConfigHash, before);
      assert.equal((await pool.pingAll()).bundleConfigHash, applied.bundleConfigHash);
      const replace = recorded("replace-configs-restore");
      const models = replace.models as { model_id: string; model_config: string }[];
      const replaced = await pool.replaceModelConfigs({
        bundleId: String(replace.bundle_id),
        epoch: Number(replace.epoch),
        bundleConfigHash: String(replace.bundle_config_hash),
        models: models.map((model) => ({ modelId: model.model_id, modelConfig: model.model_config })),
        bundleAdapters: undefined,
      });
      assert.equal(replaced.applied, true);
      for (const { model_id } of models) assert.ok(replaced.appliedModels.includes(model_id), model_id);
      assert.equal(pool.quarantined, false);
      const none = await failure(pool.applyModelConfig({
        bundleId: "",
        modelId: "m",
        epoch: 1,
        bundleConfigHash: "",
        profilesAdded: [],
        modelConfig: "x",
        bundleAdapters: [],
      }));
      assert.deepEqual([none.kind, none.message], ["server", "ValueError: bundle_id is required"]);
      assert.equal(pool.quarantined, true);
    });

    await t.step("Drain", async () => {
      using fresh = connect(socket, mode);
      assert.deepEqual(await fresh.drain(5000), [{ child: 0, acknowledged: true }]);
      const refused = await failure(fresh.runBatch(batch("encode", "peer-fake", [{ item: { text: "a" } }])));
      assert.equal(refused.draining, true);
      const stream = await failure(
        fresh.generate("peer-fake", generation("peer-fake", {}))[Symbol.asyncIterator]().next(),
      );
      assert.equal(stream.draining, true);
      assert.equal((await fresh.pingAll()).successful, true);
    });
  });

  Deno.test(`${mode}: answers of 37 MB come in chunks, also two at once`, async () => {
    using folder = new TestFolder();
    const socket = folder.file("ipc.sock");
    await using _backend = await startBackend({ socket });
    using pool = connect(socket, mode);
    const model = "Peer/dense-384.v1";
    await ready(pool, model);
    const count = 10_000;
    const body = batch("encode", model, Array.from({ length: count }, (_, i) => ({ item: { text: `text ${i}` } })));
    const ping = async () => {
      await pool.pingAll();
      return undefined;
    };
    for (const answer of await Promise.all([pool.runBatch(body), pool.runBatch(body), ping()])) {
      if (answer === undefined) continue;
      assert.ok(answer.bytes.length > 33_554_432);
      assert.equal(answer.outcomes.length, count);
      for (const { rawOutput } of answer.outcomes) {
        assert.ok(rawOutput?.kind === "dense" && rawOutput.values.length === 384);
      }
    }
  });

  Deno.test(`${mode}: a load and a batch that are held, and a backend that dies in the middle of it`, async () => {
    using folder = new TestFolder();
    const socket = folder.file("ipc.sock");
    const load = folder.file("load"), dispatch = folder.file("dispatch");
    const faults = { "peer-fake": { load_latch_file: load, dispatch_latch_file: dispatch } };
    const options = { socket, env: { SIE_FAKE_FAULTS: JSON.stringify(faults) } };
    using pool = connect(socket, mode);
    let held: Promise<string>;
    {
      await using backend = await startBackend(options);
      assert.equal((await pool.ensureModelReady("peer-fake")).state, "loading_started");
      assert.equal((await pool.ensureModelReady("peer-fake")).state, "loading_in_progress");
      assert.deepEqual((await pool.pingAll()).children[0]?.answer?.loadingModels, ["peer-fake"]);
      Deno.writeTextFileSync(load, "");
      await ready(pool, "peer-fake");
      // Held until the latch is there: calls beside it are answered meanwhile.
      held = outcome(pool.runBatch(batch("encode", "peer-fake", [{ item: { text: "a" } }])));
      assert.equal((await pool.pingAll()).successful, true);
      assert.equal(await Promise.race([held, Promise.resolve("held")]), "held");
      await backend.stop("SIGKILL");
      // The pool tries once more at once: nobody listens, or the dying process is just closing its socket. The mux waits.
      if (mode === "pool") {
        assert.match(await held, /^io (connection_refused|connection_reset|broken_pipe|unexpected_eof)$/);
      }
    }
    Deno.writeTextFileSync(dispatch, "");
    await using _again = await startBackend(options);
    if (mode === "mux") assert.equal(await held, `"Model 'peer-fake' is not loaded"`);
    await ready(pool, "peer-fake");
    const answer = await pool.runBatch(batch("encode", "peer-fake", [{ item: { text: "a" } }]));
    assert.deepEqual(dispositions(answer), ["publish_and_ack"]);
  });
}

/** What the server did with the bytes: the one answer it gave, and whether it closed the connection. */
async function exchange(socket: string, bytes: Uint8Array): Promise<unknown> {
  const connection = await Deno.connect({ transport: "unix", path: socket });
  try {
    const ping = framed(encodeNotation({ version: 1, method: "Ping", request_id: "after", body: { timestamp_ms: 1 } }));
    const reader = new FrameReader(connection, BACKEND_FRAMES);
    await writeAll(connection, new Uint8Array([...bytes, ...ping]));
    const answers: unknown[] = [];
    for (;;) {
      const frame = await reader.readFrame().catch(() => undefined);
      if (frame === undefined) return { answers, closed: true };
      const answer = decodeNotation(frame) as { request_id: unknown; ok: boolean; error: string | null };
      if (answer.request_id === "after") return { answers, closed: false };
      answers.push(answer.ok ? "ok" : answer.error);
    }
  } finally {
    connection.close();
  }
}

/** What our own judgement says of a frame. */
function judged(frame: Uint8Array): unknown {
  const verdict = judgeRequest(frame);
  if (verdict.kind === "hang_up") return { answers: [], closed: true };
  const error = verdict.kind === "refuse" ? verdict.error : callFault(verdict.method, verdict.body) ?? "ok";
  return { answers: [error], closed: false };
}

/** A small generator of numbers, the same in every run. */
function generator(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor(state / 4_294_967_296 * below);
  };
}

Deno.test("damaged requests are judged as the real server judges them", async () => {
  using folder = new TestFolder();
  const socket = folder.file("ipc.sock");
  await using _harness = await startIpcHarness(socket);
  const originals = [
    "ping",
    "ensure_model_ready",
    "set_pinned_models",
    "drain",
    "signal_generate_cancel",
    "worker_capabilities",
  ]
    .map((name) => JSON.parse(Deno.readTextFileSync(join(vectorsDir(), "ipc", `req_${name}.json`))).hex as string)
    .map((hex) => fromHex(hex).subarray(4));
  const random = generator(20_240_601);
  let judgements = 0;
  for (let round = 0; round < 600; round++) {
    const original = originals[round % originals.length] ?? new Uint8Array();
    const damaged = original.slice();
    for (let hits = 1 + random(2); hits > 0; hits--) damaged[random(damaged.length)] = random(256);
    // Inline methods only: they are answered before the ping behind them.
    const found = await exchange(socket, framed(damaged));
    assert.deepEqual(found, judged(damaged), `round ${round}: ${JSON.stringify([...damaged])}`);
    judgements++;
  }
  assert.equal(judgements, 600);
});
