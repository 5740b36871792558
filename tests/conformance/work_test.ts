/**
 * Work through both ingests to the real backend and back. Its fake adapter computes from the text alone, so the results must be
 * those of the recordings in `tests/vectors/backend`, in the form that callers get.
 */
import assert from "node:assert/strict";
import { decodeNotation } from "../harness/notation.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import { startBackend } from "../harness/peers.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";
import { vectorsDir } from "../harness/vectors.ts";
import { type Value, workItemFields } from "../harness/work_items.ts";
import { LANE, LocalCaller, NatsCaller, type PlainResult } from "../e2e/rig.ts";

/** A model that is not loaded yet is asked for again after this time, not after the usual 5 s. */
const SETTINGS = { ...LANE, SIE_NAK_DELAY_S: "0.2" };

type Fields = { [key: string]: Value };

/** Sends items and gets their results by work item id, whichever way. */
type Send = (items: readonly Fields[]) => Promise<Map<string, PlainResult>>;

/** One item for the real backend. */
function item(operation: string, requestId: string, content: Fields, model = "peer-fake"): Fields {
  const common = { operation, request_id: requestId, model_id: model, engine: "fake" };
  const { item: _, output_types: __, ...fields } = workItemFields({ ...common, ...content });
  return { ...fields, ...content };
}

/** Outcomes of a recording, in plain values. */
function recordedOutcomes(name: string): { raw_output: unknown; result_msgpack: { $bin: string } | null }[] {
  const recording = JSON.parse(Deno.readTextFileSync(`${vectorsDir()}/backend/${name}.json`));
  const frame = decodeNotation(fromHex(recording.response_hex).subarray(4)) as { body: { outcomes: never[] } };
  return frame.body.outcomes;
}

/** The content of a successful result. */
function contentOf(results: Map<string, PlainResult>, id: string): Record<string, unknown> {
  const result = results.get(id);
  assert.equal(result?.success, true, JSON.stringify(result));
  return decodeNotation(fromHex(result?.result_msgpack?.$bin ?? "")) as Record<string, unknown>;
}

/** A number of the notation, tagged or plain. */
function plain(value: unknown): number {
  return typeof value === "object" && value !== null && "$f64" in value ? Number(value.$f64) : Number(value);
}

async function checkOperations(send: Send): Promise<void> {
  const dense = await send([item("encode", "enc", { item: { text: "hello" }, output_types: ["dense"] })]);
  const [recorded] = recordedOutcomes("run-encode");
  const values = (recorded?.raw_output as { dense: { values: unknown[] } }).dense.values.map(plain);
  const found = contentOf(dense, "enc.0")["dense"] as Record<string, unknown>;
  assert.equal(found["dims"], 8);
  assert.equal(found["dtype"], "float32");
  const bytes = JSON.stringify(found["values"]);
  assert.ok(bytes.includes(toHex(new Uint8Array(Float32Array.from(values).buffer))), bytes);

  const scores = await send([item("score", "sco", {
    query_item: { text: "q" },
    score_items: [{ text: "alpha" }, { id: "b", text: "beta" }],
  })]);
  const score = (recordedOutcomes("run-score")[0]?.raw_output as { score: { scores: unknown[] } }).score;
  const text = JSON.stringify(contentOf(scores, "sco.0"));
  for (const value of score.scores) assert.ok(text.includes(String(plain(value))), `${plain(value)} is not in ${text}`);
  assert.ok(text.indexOf('"item-0"') < text.indexOf('"b"'), "the best one comes first");

  const extracted = await send([item("extract", "ext", {
    item: { text: "Ada met Grace" },
    labels: ["person", "place"],
  })]);
  const [extract] = recordedOutcomes("extract");
  assert.equal(extracted.get("ext.0")?.result_msgpack?.$bin, extract?.result_msgpack?.$bin);
}

async function checkModels(send: Send): Promise<void> {
  const encode = (
    model: string,
  ) => [item("encode", model, { item: { text: "hello" }, output_types: ["dense"] }, model)];
  contentOf(await send(encode("peer-fake:slow-load")), "peer-fake:slow-load.0");
  contentOf(await send(encode("Peer/dense-384.v1")), "Peer/dense-384.v1.0");
  const failed = (await send(encode("peer-fake:bad-load"))).get("peer-fake:bad-load.0");
  assert.equal(failed?.success, false, JSON.stringify(failed));
  assert.equal(failed?.error_code, "MODEL_LOAD_FAILED");
}

async function checkLoad(send: Send): Promise<void> {
  const items = Array.from(
    { length: 300 },
    (_, index) =>
      item("encode", `load-${index}`, { item: { id: `doc-${index}`, text: `text ${index}` }, output_types: ["dense"] }),
  );
  const results = await send(items);
  assert.equal(results.size, items.length);
  const distinct = new Set<string>();
  for (const [index] of items.entries()) {
    const content = contentOf(results, `load-${index}.0`);
    assert.equal(content["id"], `doc-${index}`);
    distinct.add(JSON.stringify(content["dense"]));
  }
  assert.equal(distinct.size, items.length, "each text has its own vector");
}

Deno.test("local ingest and the real backend", async (t) => {
  using folder = new TestFolder();
  const socket = folder.file("ipc.sock");
  await using backend = await startBackend({ socket });
  const ingest = { SIE_SIDECAR_INGEST: "local", SIE_SIDECAR_LOCAL_SOCKET: folder.file("ingest.sock") };
  await using sidecar = await Sidecar.start({ env: { ...SETTINGS, ...ingest, SIE_IPC_SOCKET_PATH: socket } });
  {
    using caller = await LocalCaller.connect(folder.file("ingest.sock"));
    const send: Send = async (items) => {
      const results = new Map<string, PlainResult>();
      for (const fields of items) {
        for (const result of await caller.publishWork([fields])) results.set(result.work_item_id, result);
      }
      return results;
    };
    await t.step("each operation gives the recorded result", () => checkOperations(send));
    await t.step("models load, slowly too, or fail to load", () => checkModels(send));
    await t.step("300 items, each with its own result", () => checkLoad(send));
  }
  await sidecar.stop();
  assert.equal(backend.running, true);
});

Deno.test("NATS and the real backend", async (t) => {
  using folder = new TestFolder();
  const socket = folder.file("ipc.sock");
  await using nats = await NatsServer.start({ folder: folder.path });
  await using _backend = await startBackend({ socket });
  await using sidecar = await Sidecar.start({
    env: { ...SETTINGS, SIE_NATS_URL: nats.url, SIE_IPC_SOCKET_PATH: socket },
  });
  await using caller = await NatsCaller.connect(nats.url);
  const send: Send = (items) => caller.publishWork(items);
  await t.step("each operation gives the recorded result", () => checkOperations(send));
  await t.step("models load, slowly too, or fail to load", () => checkModels(send));
  await t.step("300 items, each with its own result", () => checkLoad(send));
  await sidecar.stop();
});

Deno.test("NATS: a backend that is killed in mid-batch costs time and nothing else", async () => {
  using folder = new TestFolder();
  const socket = folder.file("ipc.sock");
  const trace = folder.file("trace.jsonl");
  await using nats = await NatsServer.start({ folder: folder.path });
  await using first = await startBackend({ socket });
  const env = {
    ...SETTINGS,
    SIE_NATS_URL: nats.url,
    SIE_IPC_SOCKET_PATH: socket,
    SIE_TRACE_FILE: trace,
  };
  await using sidecar = await Sidecar.start({ env });
  await using caller = await NatsCaller.connect(nats.url);
  const model = "peer-fake:slow-batch";
  const items = Array.from(
    { length: 8 },
    (_, index) => item("encode", `kill-${index}`, { item: { text: `text ${index}` }, output_types: ["dense"] }, model),
  );
  const results = caller.publishWork(items);
  await eventually("a batch is running", () => Deno.readTextFileSync(trace).includes('"batch'));
  await first.stop("SIGKILL");
  await using _second = await startBackend({ socket });
  const done = await results;
  assert.equal(done.size, items.length);
  for (const [index] of items.entries()) contentOf(done, `kill-${index}.0`);
  await sidecar.stop();
});
