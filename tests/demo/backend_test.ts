/** The demonstration's backend, driven by the real client and, where it must be strict, by raw bytes. */
import assert from "node:assert/strict";
import { DemoBackend, type DemoBackendOptions } from "../../demo/backend/server.ts";
import { createBackend } from "../../src/ipc/backend_pool.ts";
import type { BackendPool } from "../../src/ipc/backend_pool.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { BACKEND_FRAMES, FrameReader } from "../../src/wire/frames.ts";
import type { BatchOperation } from "../../src/wire/ipc/batch_items.ts";
import type { BatchOutcome, ItemOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { decodeNotation, encodeNotation } from "../harness/notation.ts";
import { fromHex, join } from "../harness/paths.ts";
import { TestFolder } from "../harness/process.ts";
import { listVectorFiles, vectorsDir } from "../harness/vectors.ts";
import { workItemBytes } from "../harness/work_items.ts";

const CORPUS = Deno.readTextFileSync(new URL("../../demo/corpus.txt", import.meta.url));

class Setup implements AsyncDisposable {
  readonly #folder = new TestFolder();
  readonly socketPath = this.#folder.file("demo.sock");
  readonly server: DemoBackend;
  readonly client: BackendPool;

  constructor(options: Partial<DemoBackendOptions> = {}) {
    this.server = DemoBackend.start({ socketPath: this.socketPath, corpus: CORPUS, wordMs: 0, ...options });
    this.client = createBackend({
      sockets: [this.socketPath],
      poolSize: 2,
      requestTimeoutMs: 60_000,
      modelReadyTimeoutMs: 60_000,
      generateFrameTimeoutMs: 60_000,
    });
  }

  async ready(model: string): Promise<void> {
    for (;;) {
      const { state } = await this.client.ensureModelReady(model);
      if (state === "ready") return;
      assert.ok(state === "loading_started" || state === "loading_in_progress", state);
    }
  }

  async run(
    operation: BatchOperation,
    items: readonly Record<string, unknown>[],
    model = "demo/all",
  ): Promise<BatchOutcome> {
    const entries = items.map((fields, index) => ({
      work: decodeWorkItem(workItemBytes({ request_id: "r", item_index: index, operation, ...fields } as never)),
      input: { payloadFetchMs: 0 },
    }));
    return await this.client.runBatch({ modelId: model, operation, batchId: 0, loraKey: "", totalCost: 1, entries });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    await this.server[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }
}

function dense(outcome: ItemOutcome | undefined): Float32Array {
  assert.ok(outcome?.rawOutput?.kind === "dense", JSON.stringify(outcome));
  return outcome.rawOutput.values;
}

function cosine(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, at) => sum + value * (b[at] ?? 0), 0);
}

function result(answer: BatchOutcome, index = 0): Record<string, unknown> {
  const outcome = answer.outcomes[index];
  assert.ok(outcome !== undefined && outcome.disposition === "publish_and_ack", outcome?.error);
  const bytes = answer.bytes.subarray(outcome.resultAt, outcome.resultAt + outcome.resultLength);
  return decodeNotation(bytes) as Record<string, unknown>;
}

Deno.test("a model is loaded when it is asked for, and an unknown one never", async () => {
  await using setup = new Setup();
  const early = await setup.run("encode", [{ item: { text: "too early" } }]);
  assert.equal(early.outcomes[0]?.error, "Model 'demo/all' is not loaded");
  assert.equal((await setup.client.ensureModelReady("demo/all")).state, "loading_started");
  await setup.ready("demo/all");
  assert.equal((await setup.client.ensureModelReady("no/such")).state, "retry_later");
  const round = await setup.client.pingAll();
  assert.deepEqual(round.loadedModels, ["demo/all"]);
  assert.equal(round.successful, true);
});

Deno.test("embeddings are normalised, deterministic, and near for texts that share words", async () => {
  await using setup = new Setup();
  await setup.ready("demo/ngram-256");
  const texts = [
    "The pump lost its pressure",
    "Pumps lose pressure",
    "A choir sings on Sunday",
    "The pump lost its pressure",
  ];
  const answer = await setup.run("encode", texts.map((text) => ({ item: { text } })), "demo/ngram-256");
  const [a, b, c, again] = answer.outcomes.map(dense) as [Float32Array, Float32Array, Float32Array, Float32Array];
  assert.equal(a.length, 256);
  assert.ok(Math.abs(cosine(a, a) - 1) < 1e-5);
  assert.deepEqual(a, again);
  assert.ok(cosine(a, b) > cosine(a, c) + 0.2, `${cosine(a, b)} against ${cosine(a, c)}`);
});

Deno.test("sparse output, both outputs together, and outputs it does not have", async () => {
  await using setup = new Setup();
  await setup.ready("demo/all");
  const answer = await setup.run("encode", [
    { item: { text: "a bolt and a nut" }, output_types: ["sparse"] },
    { item: { id: "d", text: "a bolt" }, output_types: ["dense", "sparse"] },
    { item: { text: "a bolt" }, output_types: ["multivector"] },
    { item: { text: "a bolt" }, output_types: [] },
    { item: { text: 5 } },
  ]);
  const [sparse, , ...refused] = answer.outcomes;
  assert.ok(sparse?.rawOutput?.kind === "sparse");
  const { indices } = sparse.rawOutput;
  assert.deepEqual([...indices], [...indices].sort((a, b) => a - b));
  assert.equal(new Set(indices).size, indices.length);
  const both = result(answer, 1);
  assert.deepEqual(Object.keys(both), ["id", "dense", "sparse"]);
  assert.equal(both.id, "d");
  assert.deepEqual(refused.map(({ errorCode }) => errorCode), ["INVALID_INPUT", "INVALID_INPUT", "INVALID_INPUT"]);
});

Deno.test("scores prefer the document that answers the query", async () => {
  await using setup = new Setup();
  await setup.ready("demo/lexical");
  const items = [{ id: "weather", text: "It rained all day" }, { text: "The welder joined two steel plates" }];
  const fields = { query_item: { text: "welding steel" }, score_items: items };
  const answer = await setup.run("score", [fields], "demo/lexical");
  const raw = answer.outcomes[0]?.rawOutput;
  assert.ok(raw?.kind === "score");
  assert.deepEqual(raw.itemIds, ["weather", "item-1"]);
  assert.equal(raw.scores[0], 0);
  assert.ok((raw.scores[1] ?? 0) > 0);
});

Deno.test("entities are found with their places, and only those that are asked for", async () => {
  await using setup = new Setup();
  await setup.ready("demo/patterns");
  const text =
    "😀 Write to ada@example.org before 12 May 2024; Grace Hopper pays € 1,250.00. See https://example.org/a?b=1.";
  const answer = await setup.run(
    "extract",
    [{ item: { text } }, { item: { text }, labels: ["money"] }],
    "demo/patterns",
  );
  const all = result(answer) as { entities: { text: string; label: string; start: number; end: number }[]; id: string };
  assert.deepEqual(all.entities.map(({ text, label }) => [label, text]), [
    ["email", "ada@example.org"],
    ["date", "12 May 2024"],
    ["name", "Grace Hopper"],
    ["amount", "€ 1,250.00"],
    ["url", "https://example.org/a?b=1"],
  ]);
  for (const { text: found, start, end } of all.entities) assert.equal([...text].slice(start, end).join(""), found);
  assert.equal(all.id, "item-0");
  const some = result(answer, 1) as { entities: { label: string }[] };
  assert.deepEqual(some.entities.map(({ label }) => label), ["money"]);
});

Deno.test("an answer above 32 MiB comes in chunks", async () => {
  await using setup = new Setup();
  await setup.ready("demo/patterns");
  const count = 550_000;
  const answer = await setup.run("extract", [{ item: { text: "a@b.cd ".repeat(count) } }], "demo/patterns");
  assert.ok(answer.bytes.length > 33_554_432, `${answer.bytes.length} bytes`);
  const outcome = answer.outcomes[0];
  assert.ok(outcome !== undefined && outcome.resultLength > 33_000_000);
});

function generation(fields: Record<string, unknown>, outer: Record<string, unknown> = {}): Uint8Array {
  return encodeNotation({ request_id: "gen", reply_subject: "_INBOX.r.gen", generate: fields, ...outer });
}

async function events(setup: Setup, work: Uint8Array, model = "demo/markov") {
  const kinds: string[] = [];
  const chunks: Record<string, unknown>[] = [];
  for await (const event of setup.client.generate(model, work)) {
    kinds.push(event.kind);
    if (event.kind === "publish") chunks.push(decodeNotation(event.payload) as Record<string, unknown>);
  }
  return { kinds, chunks };
}

Deno.test("a generation streams chunks in order and is the same for the same seed", async () => {
  await using setup = new Setup();
  const work = generation({ prompt: "The pump", max_new_tokens: 30, seed: 7 });
  const first = await events(setup, work);
  assert.equal(first.kinds[0], "in_progress");
  assert.deepEqual(first.kinds.slice(-3), ["publish", "ack", "done"]);
  assert.deepEqual(first.chunks.map(({ seq }) => seq), first.chunks.map((_, index) => index));
  assert.equal(first.chunks.filter(({ is_first }) => is_first === true).length, 1);
  assert.equal(new Set(first.chunks.map(({ attempt_id }) => attempt_id)).size, 1);
  const last = first.chunks.at(-1);
  assert.equal(last?.done, true);
  assert.equal(last?.finish_reason, "length");
  const text = ({ chunks }: typeof first) => chunks.map(({ text_delta }) => text_delta).join("");
  assert.equal(text(first).split(" ").length, 30);
  assert.equal(text(await events(setup, work)), text(first));
});

Deno.test("a generation is cancelled while it runs, and before it began", async () => {
  await using setup = new Setup({ wordMs: 1 });
  const work = generation({ prompt: "A bolt", max_new_tokens: 4000 });
  const kinds: string[] = [];
  let last: Record<string, unknown> = {};
  for await (const event of setup.client.generate("demo/markov", work)) {
    kinds.push(event.kind);
    if (event.kind !== "publish") continue;
    last = decodeNotation(event.payload) as Record<string, unknown>;
    if (last.seq === 0) assert.equal(await setup.client.signalGenerateCancel("gen"), true);
  }
  assert.equal(last.finish_reason, "cancelled");
  assert.deepEqual(kinds.slice(-2), ["ack", "done"]);
  assert.equal(await setup.client.signalGenerateCancel("gen"), false);
  const after = await events(setup, work);
  assert.equal((after.chunks[0]?.error as { code: string }).code, "transport_failure");
});

Deno.test("bad parameters, unknown models, foreign hashes and nobody to answer", async () => {
  await using setup = new Setup({ configHash: "h" });
  const bad = await events(setup, generation({ prompt: "x", max_new_tokens: 0 }));
  assert.equal((bad.chunks[0]?.error as { code: string }).code, "invalid_request");
  const unknown = await events(setup, generation({ prompt: "x", max_new_tokens: 1 }), "no/such");
  assert.deepEqual(unknown.chunks.map(({ kind, reason }) => [kind, reason]), [["nak", "model_not_loaded"]]);
  const stale = generation({ prompt: "x", max_new_tokens: 1 }, { bundle_config_hash: "old", model_id: "demo/markov" });
  assert.deepEqual((await events(setup, stale)).kinds, ["nak", "done"]);
  const silent = generation({ prompt: "x", max_new_tokens: 1 }, { reply_subject: "" });
  assert.deepEqual((await events(setup, silent)).kinds, ["in_progress", "ack", "done"]);
  const noMap = setup.client.generate("demo/markov", encodeNotation([1]))[Symbol.asyncIterator]().next();
  await assert.rejects(noMap, (thrown) => thrown instanceof IpcError && thrown.kind === "server");
});

Deno.test("hashed work runs only under the backend's own hash", async () => {
  await using setup = new Setup({ configHash: "right" });
  await setup.ready("demo/all");
  const item = { text: "a bolt" };
  const mixed = await setup.run("encode", [{ item, bundle_config_hash: "right" }, {
    item,
    bundle_config_hash: "wrong",
  }]);
  assert.deepEqual(mixed.outcomes.map((outcome) => [outcome.disposition, outcome.nakDelayMs]), [
    ["nak_retry", 5000],
    ["nak_retry", 5000],
  ]);
  const right = await setup.run("encode", [{ item, bundle_config_hash: "right" }, { item }]);
  assert.deepEqual(right.outcomes.map(({ disposition }) => disposition), ["publish_and_ack", "publish_and_ack"]);
});

Deno.test("after Drain nothing new is run, and the rest still answers", async () => {
  await using setup = new Setup();
  await setup.ready("demo/all");
  assert.deepEqual(await setup.client.drain(5000), [{ child: 0, acknowledged: true }]);
  const error = await setup.run("encode", [{ item: { text: "x" } }]).catch((thrown: unknown) => thrown);
  assert.ok(error instanceof IpcError && error.draining);
  assert.equal((await setup.client.pingAll()).successful, true);
});

/** What comes back for raw bytes: frames, then whether the server closed the connection. */
async function exchange(path: string, bytes: Uint8Array): Promise<{ answers: unknown[]; closed: boolean }> {
  const connection = await Deno.connect({ transport: "unix", path });
  try {
    await connection.write(bytes);
    const reader = new FrameReader(connection, BACKEND_FRAMES);
    const ping = encodeNotation({ version: 1, method: "Ping", request_id: "after", body: { timestamp_ms: 1 } });
    const header = new Uint8Array(4);
    new DataView(header.buffer).setUint32(0, ping.length);
    await connection.write(new Uint8Array([...header, ...ping])).catch(() => {});
    const answers: unknown[] = [];
    for (;;) {
      const frame = await reader.readFrame().catch(() => undefined);
      if (frame === undefined) return { answers, closed: true };
      const answer = decodeNotation(frame) as { request_id: unknown };
      if (answer.request_id === "after") return { answers, closed: false };
      answers.push(answer);
    }
  } finally {
    connection.close();
  }
}

Deno.test("malformed requests are treated as the real backend treats them", async (t) => {
  await using setup = new Setup();
  const files = listVectorFiles().filter((file) => file.startsWith("ipc/bad_request_"));
  assert.ok(files.length > 0);
  for (const file of files) {
    const vector = JSON.parse(Deno.readTextFileSync(join(vectorsDir(), file)));
    // Half a frame would wait for the rest, which the ping that follows would be taken for.
    if (vector.name.includes("truncated")) continue;
    await t.step(vector.name, async () => {
      const { answers, closed } = await exchange(setup.socketPath, fromHex(vector.hex));
      assert.deepEqual(answers, vector.answer === undefined ? [] : [vector.answer]);
      assert.equal(closed, vector.expected === "connection closed, nothing written");
    });
  }
});
