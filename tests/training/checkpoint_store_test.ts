/** The folder of versions: numbers, atomicity, damage, several processes. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { systemClock } from "../../src/runtime/clock.ts";
import { StoreCheckpointer } from "../../src/training/checkpointer.ts";
import type { CheckpointStore } from "../../src/training/checkpoint_store.ts";
import { TrainingMetrics } from "../../src/training/metrics.ts";
import { readOnnx } from "../../src/training/onnx_reader.ts";
import { seededRandom } from "../../src/training/random.ts";
import { SGD_DEFAULTS, SgdEma } from "../../src/training/sgd.ts";
import { TestFolder } from "../harness/process.ts";
import { openStore, someParams, TestLog } from "./support.ts";

function names(folder: string): string[] {
  return [...Deno.readDirSync(folder)].map((entry) => entry.name).sort();
}

async function publish(store: CheckpointStore, seed = 1) {
  return await store.publish({ params: someParams(seed), step: seed, samplesTotal: 10 * seed, parent: null });
}

Deno.test("a version is a model, its digest and its metadata", async () => {
  using folder = new TestFolder();
  const store = await openStore(folder.file("a/b/c"));
  const { path, metadata } = await publish(store, 7);
  assert.equal(path, folder.file("a/b/c/model_v000001.onnx"));
  assert.deepEqual(names(folder.file("a/b/c")), [
    "model_v000001.onnx",
    "model_v000001.onnx.json",
    "model_v000001.onnx.sha256",
  ]);
  const bytes = Deno.readFileSync(path);
  assert.deepEqual(readOnnx(bytes, 3).flat, someParams(7).flat);
  const hex = createHash("sha256").update(bytes).digest("hex");
  assert.equal(Deno.readTextFileSync(`${path}.sha256`), `${hex}\n`);
  assert.deepEqual(JSON.parse(Deno.readTextFileSync(`${path}.json`)), metadata);
  assert.match(metadata.created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  assert.deepEqual({ ...metadata, created_at: "" }, {
    version: 1,
    name: "model_v000001",
    model_version: "online.1",
    sha256: hex,
    n_features: 3,
    step: 7,
    samples_total: 70,
    created_at: "",
    parent: null,
    state: "candidate",
    reason: "",
    gate: null,
  });
});

Deno.test("numbers go on after whatever lies there, and nothing is ever overwritten", async () => {
  using folder = new TestFolder();
  const store = await openStore(folder.path);
  await publish(store);
  Deno.writeTextFileSync(folder.file("model_v000007.onnx"), "without digest");
  Deno.writeTextFileSync(folder.file("model_v000009.onnx.sha256"), "an orphan");
  Deno.writeTextFileSync(folder.file("model_v12.onnx"), "not our form of a number");
  Deno.writeTextFileSync(folder.file("model_v0000099.onnx"), "nor this one");
  const next = await openStore(folder.path);
  assert.equal(next.highest, 9);
  assert.equal((await publish(next)).metadata.version, 10);
  // A file that appears meanwhile, written by somebody else.
  Deno.writeTextFileSync(folder.file("model_v000011.onnx"), "foreign");
  Deno.writeTextFileSync(folder.file("model_v000012.onnx.json"), "foreign");
  assert.equal((await publish(next)).metadata.version, 13);
  assert.equal(Deno.readTextFileSync(folder.file("model_v000011.onnx")), "foreign");
  assert.equal(Deno.readTextFileSync(folder.file("model_v000007.onnx")), "without digest");
});

Deno.test("two processes on one folder never share a number", async () => {
  using folder = new TestFolder();
  const stores = await Promise.all([1, 2, 3, 4].map((seed) => openStore(folder.path, { random: seededRandom(seed) })));
  const published = await Promise.all(
    Array.from({ length: 32 }, (_, i) => publish(stores[i % 4] as CheckpointStore, i)),
  );
  assert.equal(new Set(published.map(({ metadata }) => metadata.version)).size, 32);
  for (const { path, metadata } of published) {
    assert.equal(createHash("sha256").update(Deno.readFileSync(path)).digest("hex"), metadata.sha256);
  }
  assert.ok(names(folder.path).every((name) => !name.endsWith(".tmp")));
});

Deno.test("our stale temporary files are removed at the start, nobody else's", async () => {
  using folder = new TestFolder();
  for (const name of [".model_v000001.onnx.0a1b2c3d.tmp", "x.tmp", ".hidden", "model_v000001.tmp.onnx"]) {
    Deno.writeTextFileSync(folder.file(name), "");
  }
  await openStore(folder.path);
  assert.deepEqual(names(folder.path), [".hidden", "model_v000001.tmp.onnx", "x.tmp"]);
});

Deno.test("an unusable folder stops the start with the system's error", async () => {
  using folder = new TestFolder();
  Deno.writeTextFileSync(folder.file("file"), "");
  await assert.rejects(openStore(folder.file("file")), /File exists|Not a directory/i);
  await assert.rejects(openStore(folder.file("file/below")), /Not a directory/);
});

Deno.test("a digest that cannot be written takes the model back and burns no number", async () => {
  using folder = new TestFolder();
  let failing = true;
  const store = await openStore(folder.path, {
    hook: (file, step) => {
      if (failing && file.endsWith(".sha256") && step === "written") throw new Error("disk full");
    },
  });
  await assert.rejects(publish(store), /disk full/);
  assert.deepEqual(names(folder.path), []);
  failing = false;
  assert.equal((await publish(store)).metadata.version, 1);
});

Deno.test("metadata that cannot be written leaves a complete pair, which counts as a candidate", async () => {
  using folder = new TestFolder();
  const log = new TestLog();
  const store = await openStore(folder.path, {
    log,
    hook: (file, step) => {
      if (file.endsWith(".json") && step === "created") throw new Error("disk full");
    },
  });
  await publish(store);
  assert.deepEqual(names(folder.path), ["model_v000001.onnx", "model_v000001.onnx.sha256"]);
  assert.ok(log.has("WARN model_v000001 has no durable metadata"));
  const [record] = await store.list();
  assert.equal(record?.metadata.state, "candidate");
  assert.equal(record?.metadata.sha256, record?.sha256);
});

Deno.test("damaged metadata counts as a candidate, with one line in the log", async () => {
  using folder = new TestFolder();
  const log = new TestLog();
  const store = await openStore(folder.path, { log });
  await publish(store);
  const file = folder.file("model_v000001.onnx.json");
  const good = Deno.readTextFileSync(file);
  for (
    const text of [
      "",
      "{",
      "[]",
      good.replace('"candidate"', '"king"'),
      good.replace('"version": 1', '"version": 2'),
      good.replace(/"step": \d+/, '"step": -1'),
    ]
  ) {
    assert.notEqual(text, good);
    Deno.writeTextFileSync(file, text);
    assert.equal((await store.record(1))?.metadata.reason, "no metadata beside the model", text);
  }
  assert.equal(log.lines.filter((line) => line.includes("is damaged")).length, 1);
});

Deno.test("changes of metadata by several processes all survive", async () => {
  using folder = new TestFolder();
  const stores = await Promise.all([1, 2].map((seed) => openStore(folder.path, { random: seededRandom(seed) })));
  await publish(stores[0] as CheckpointStore);
  await Promise.all(
    Array.from(
      { length: 40 },
      (_, i) => (stores[i % 2] as CheckpointStore).mark(1, (metadata) => ({ ...metadata, step: metadata.step + 1 })),
    ),
  );
  assert.equal((await stores[0]?.record(1))?.metadata.step, 41);
  assert.equal(await stores[0]?.mark(2, (metadata) => metadata), undefined);
});

Deno.test("a folder that stays full is told once, however many steps try", async () => {
  using folder = new TestFolder();
  let full = true;
  const hook = (file: string) => {
    if (full && file.endsWith(".onnx")) throw new Error("No space left on device");
  };
  const log = new TestLog(), store = await openStore(folder.path, { hook, log });
  const checkpointer = new StoreCheckpointer({
    store,
    sgd: new SgdEma(someParams(1), 1, SGD_DEFAULTS),
    intervalMs: 0,
    minSamples: 1,
    parent: null,
    clock: systemClock,
    log,
    metrics: new TrainingMetrics(),
    onCommitted: () => {},
  });
  for (let step = 1; step <= 20; step++) assert.equal(await checkpointer.afterStep(1, step, step), null);
  assert.deepEqual(log.lines, ["ERROR checkpoint at step 1 failed: No space left on device"]);
  full = false;
  assert.equal(await checkpointer.afterStep(1, 21, 21), folder.file("model_v000001.onnx"));
});

Deno.test("a read-only store marks in memory", async () => {
  using folder = new TestFolder();
  await publish(await openStore(folder.path));
  const before = names(folder.path);
  const reader = await openStore(folder.path, { readOnly: true });
  await reader.mark(1, (metadata) => ({ ...metadata, state: "quarantined" }));
  assert.equal((await reader.record(1))?.metadata.state, "quarantined");
  assert.equal((await (await openStore(folder.path)).record(1))?.metadata.state, "candidate");
  assert.deepEqual(names(folder.path), before);
});

Deno.test("a checkpoint is due when both gates are open; the first needs no time", async () => {
  using folder = new TestFolder();
  let now = 0;
  const clock = { ...systemClock, now: () => now };
  const sgd = new SgdEma(someParams(3), 1, SGD_DEFAULTS);
  let broken = false;
  const store = await openStore(folder.path, {
    hook: () => {
      if (broken) throw new Error("disk full");
    },
  });
  const committed: number[] = [], log = new TestLog(), metrics = new TrainingMetrics();
  const checkpointer = new StoreCheckpointer({
    store,
    sgd,
    intervalMs: 1000,
    minSamples: 10,
    parent: 4,
    clock,
    log,
    metrics,
    onCommitted: ({ version }) => committed.push(version),
  });
  assert.equal(checkpointer.afterStep(9, 1, 9), null);
  assert.equal(await checkpointer.afterStep(1, 2, 10), folder.file("model_v000001.onnx"));
  assert.equal(checkpointer.afterStep(50, 3, 60), null, "too early");
  now = 999;
  assert.equal(checkpointer.afterStep(1, 4, 61), null, "a millisecond too early");
  now = 1000;
  broken = true;
  assert.equal(await checkpointer.afterStep(1, 5, 62), null, "a failed export");
  assert.ok(checkpointer.failing);
  broken = false;
  assert.equal(
    await checkpointer.afterStep(1, 6, 63),
    folder.file("model_v000002.onnx"),
    "tried again at once, same number",
  );
  assert.deepEqual(committed, [1, 2]);
  assert.deepEqual((await store.list()).map((record) => record.metadata.parent), [4, 1]);
  assert.deepEqual([metrics.checkpointsCompleted, metrics.checkpointsFailed], [2, 1]);
  assert.ok(log.has("ERROR checkpoint at step 5 failed: disk full"));
});
