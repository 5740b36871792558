/** Verification, swapping, policies and rollback of the serving version. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import type { CheckpointStore, StoreOptions } from "../../src/training/checkpoint_store.ts";
import { TrainingMetrics } from "../../src/training/metrics.ts";
import { effectivePolicy, removePin, writePin } from "../../src/training/operator_policy.ts";
import { GRAPH, MODEL, OPSET, TENSOR } from "../../src/training/onnx_format.ts";
import type { Params } from "../../src/training/params.ts";
import { ProtoWriter } from "../../src/training/protobuf.ts";
import { Scorer, type ScorerOptions } from "../../src/training/scorer.ts";
import { sha256Hex } from "../../src/training/sha256.ts";
import { VersionLoader } from "../../src/training/version_loader.ts";
import {
  parsePolicy,
  VERSION_STATES,
  type VersionPolicy,
  type VersionState,
} from "../../src/training/version_policy.ts";
import { join } from "../harness/paths.ts";
import { TestFolder } from "../harness/process.ts";
import { vectorsDir } from "../harness/vectors.ts";
import { constantModel, newLoader, openStore, sumModel, TestLog } from "./support.ts";

interface Rig {
  readonly store: CheckpointStore;
  readonly scorer: Scorer;
  readonly metrics: TrainingMetrics;
  readonly log: TestLog;
  policy: VersionPolicy;
  now: number;
}

async function newRig(
  folder: string,
  more: Partial<ScorerOptions> = {},
  storeOptions: Partial<StoreOptions> = {},
): Promise<Rig> {
  const log = new TestLog(), metrics = new TrainingMetrics();
  const store = await openStore(folder, { log, ...storeOptions });
  const { loader } = newLoader(store, log, metrics);
  const rig = { store, metrics, log, policy: { kind: "latest" } as VersionPolicy, now: 0 };
  const scorer = new Scorer({
    store,
    loader,
    seed: undefined,
    baseName: "online",
    policy: () => Promise.resolve(rig.policy),
    rollback: { windowMs: 300_000, threshold: 0.05, minCount: 20 },
    drainMs: 1000,
    clock: { ...systemClock, now: () => rig.now },
    log,
    metrics,
    ...more,
  });
  return Object.assign(rig, { scorer });
}

async function publish(store: CheckpointStore, params: Params, state: VersionState = "candidate"): Promise<string> {
  const { path, metadata } = await store.publish({ params, step: 0, samplesTotal: 0, parent: null });
  if (state !== "candidate") await store.mark(metadata.version, (before) => ({ ...before, state }));
  return path;
}

async function score(scorer: Scorer, value = 0): Promise<number> {
  return (await scorer.score(new Float32Array(3).fill(value), 1)).scores[0] ?? NaN;
}

Deno.test("before any model there is nothing to score with; a seed serves until a version does", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  await assert.rejects(score(rig.scorer), { code: "no_model" });
  const seeded = await newRig(folder.path, { seed: constantModel(7) });
  assert.equal(await score(seeded.scorer), 7);
  assert.equal(seeded.scorer.active?.version, null);
  await publish(seeded.store, constantModel(9));
  await seeded.scorer.reload();
  assert.deepEqual([await score(seeded.scorer), seeded.scorer.active?.modelVersion], [9, "online.1"]);
});

Deno.test("a digest that is wrong by one bit quarantines the version until its file changes", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  await publish(rig.store, constantModel(1));
  await rig.scorer.reload();
  const path = await publish(rig.store, constantModel(2));
  const good = Deno.readFileSync(path), bad = good.slice();
  bad[200] = (bad[200] as number) ^ 1;
  Deno.writeFileSync(path, bad);
  await rig.scorer.reload();
  await rig.scorer.reload();
  assert.equal(await score(rig.scorer), 1);
  const record = await rig.store.record(2);
  assert.equal(record?.metadata.state, "quarantined");
  assert.match(record?.metadata.reason ?? "", /^digest_mismatch: /);
  assert.equal(rig.metrics.versionsRejected.digest_mismatch, 1, "looked at once, not at every reload");
  Deno.writeFileSync(path, good);
  Deno.utimeSync(path, 1, 1);
  await rig.scorer.reload();
  assert.equal(await score(rig.scorer), 2);
  assert.equal((await rig.store.record(2))?.metadata.state, "candidate");
});

Deno.test("a digest that comes a moment later is waited for, one that is missing means not yet", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  const path = await publish(rig.store, constantModel(3));
  const digest = Deno.readTextFileSync(`${path}.sha256`);
  Deno.removeSync(`${path}.sha256`);
  await rig.scorer.reload();
  assert.equal(rig.scorer.active, undefined);
  assert.equal((await rig.store.record(1))?.metadata.state, "candidate");
  // The two files are replaced one after the other; the loader reads again.
  Deno.writeTextFileSync(`${path}.sha256`, "0".repeat(64));
  let attempts = 0;
  const hurried = new VersionLoader(rig.store, {
    nFeatures: 3,
    clock: {
      ...systemClock,
      after: (_delay, action) => {
        if (++attempts === 2) Deno.writeTextFileSync(`${path}.sha256`, digest);
        return systemClock.after(0, action);
      },
    },
    log: rig.log,
    metrics: rig.metrics,
  });
  const record = await rig.store.record(1);
  assert.ok(record !== undefined);
  assert.equal((await hurried.load(record)).kind, "loaded");
  assert.equal(attempts, 2);
});

Deno.test("every bad model file is quarantined and leaves the old version serving", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  await publish(rig.store, constantModel(1));
  await rig.scorer.reload();
  const names = [...Deno.readDirSync(join(vectorsDir(), "training/onnx"))].map((entry) => entry.name).filter((name) =>
    name.startsWith("bad_") || name === "torch_external_opset17.onnx"
  );
  assert.ok(names.length >= 7);
  for (const name of names) {
    const bytes = Deno.readFileSync(join(vectorsDir(), "training/onnx", name));
    const version = rig.store.highest + 1;
    const path = await publish(rig.store, constantModel(2));
    Deno.writeFileSync(path, bytes);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
    Deno.writeTextFileSync(`${path}.sha256`, `${digest}\n`);
    await rig.scorer.reload();
    const record = await rig.store.record(version);
    assert.match(`${record?.metadata.state} ${record?.metadata.reason}`, /^quarantined invalid_model: /, name);
    assert.equal(await score(rig.scorer), 1);
  }
  assert.equal(rig.metrics.versionsRejected.invalid_model, names.length);
});

Deno.test("a name of any length in a bad model leaves metadata that can be read, so it is looked at once", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  const path = await publish(rig.store, constantModel(1));
  const tensor = new ProtoWriter().integer(TENSOR.dataType, 7).string(TENSOR.name, "n".repeat(100_000));
  const bytes = new ProtoWriter().integer(MODEL.irVersion, 8)
    .message(MODEL.graph, new ProtoWriter().message(GRAPH.initializer, tensor))
    .message(MODEL.opsetImport, new ProtoWriter().integer(OPSET.version, 17)).finish();
  Deno.writeFileSync(path, bytes);
  Deno.writeTextFileSync(`${path}.sha256`, await sha256Hex(bytes, systemClock));
  await rig.scorer.reload();
  await rig.scorer.reload();
  const { state, reason = "" } = (await rig.store.record(1))?.metadata ?? {};
  assert.equal(state, "quarantined");
  assert.match(reason, /^invalid_model: tensor "nnn/);
  assert.ok(reason.length < 1000, `${reason.length}`);
  assert.equal(rig.metrics.versionsRejected.invalid_model, 1);
});

Deno.test("a file that cannot be read now is not condemned", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  await publish(rig.store, constantModel(1));
  const { loader } = newLoader(rig.store, rig.log, rig.metrics);
  const record = await rig.store.record(1);
  assert.ok(record !== undefined);
  // A name that no file system takes stands for every error of the system.
  const unreadable = { ...record, path: folder.file("x".repeat(1000)) };
  assert.deepEqual(await loader.load(unreadable), { kind: "waiting" });
  assert.equal((await rig.store.record(1))?.metadata.state, "candidate");
  assert.ok(rig.log.has("WARN model_v000001 cannot be read now"));
  assert.equal((await loader.load(record)).kind, "loaded");
});

Deno.test("a bad version that cannot be marked does not keep an older one from serving", async () => {
  using folder = new TestFolder();
  let full = false;
  const hook = (file: string) => {
    if (full && file.endsWith(".json")) throw new Error("No space left on device");
  };
  const rig = await newRig(folder.path, {}, { hook });
  await publish(rig.store, constantModel(1));
  Deno.writeTextFileSync(await publish(rig.store, constantModel(2)), "broken");
  full = true;
  await rig.scorer.reload();
  assert.equal(rig.scorer.active?.version, 1);
  assert.ok(rig.log.has("ERROR model_v000002 cannot be marked as quarantined: No space left on device"));
});

Deno.test("a version is taken back although the folder cannot be written, and marked when it can", async () => {
  using folder = new TestFolder();
  let full = false;
  const hook = (file: string) => {
    if (full && file.endsWith(".json")) throw new Error("No space left on device");
  };
  const rig = await newRig(folder.path, {}, { hook });
  for (const params of [constantModel(1), fragileModel()]) {
    await publish(rig.store, params);
    await rig.scorer.reload();
  }
  full = true;
  for (let i = 0; i < 20; i++) await score(rig.scorer, 9).catch(() => {});
  await rig.scorer.settled();
  assert.equal(rig.scorer.active?.version, 1);
  await rig.scorer.reload();
  assert.equal(rig.scorer.active?.version, 1, "not chosen again");
  assert.equal((await rig.store.record(2))?.metadata.state, "candidate");
  full = false;
  await rig.scorer.reload();
  assert.equal((await rig.store.record(2))?.metadata.state, "rolled_back");
  assert.deepEqual([rig.scorer.active?.version, rig.metrics.rollbacks], [1, 1]);
});

Deno.test("a thousand calls across a swap: each answer is one model's, none fails", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  await publish(rig.store, sumModel(1, 0));
  await rig.scorer.reload();
  await publish(rig.store, sumModel(-1, 1000));
  const features = new Float32Array(3 * 2000).fill(1);
  const calls = Array.from({ length: 1000 }, async (_, i) => {
    for (let turn = 0; turn < i % 50; turn++) await new Promise<void>((resolve) => setTimeout(resolve, 0));
    return await rig.scorer.score(features, 2000);
  });
  const reload = rig.scorer.reload();
  const counts = new Map<number | null, number>();
  for (const { scores, model } of await Promise.all(calls)) {
    const expected = model.version === 1 ? 3 : 997;
    assert.ok(scores.every((value) => value === expected));
    counts.set(model.version, (counts.get(model.version) ?? 0) + 1);
  }
  await reload;
  await rig.scorer.settled();
  assert.deepEqual([...counts.keys()].sort(), [1, 2], "both models had calls");
  assert.equal(rig.metrics.predictionsFailed, 0);
  assert.equal(rig.metrics.swaps, 2);
});

Deno.test("each policy chooses what its table says", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path, { seed: constantModel(100) });
  for (const state of VERSION_STATES) await publish(rig.store, constantModel(rig.store.highest + 1), state);
  // 1 candidate, 2 stable, 3 unstable, 4 quarantined, 5 rolled back
  await rig.store.mark(4, (before) => ({ ...before, quarantined_file: { size: 0, mtime_ms: 0, ino: 0 } }));
  const record = await rig.store.record(4);
  await rig.store.mark(
    4,
    (before) => ({ ...before, ...(record === undefined ? {} : { quarantined_file: record.identity }) }),
  );
  for (
    const [policy, serves] of [
      ["latest", 3],
      ["latest-stable", 2],
      ["pinned:1", 1],
      ["pinned:v000003", 3],
      ["pinned:model_v000002", 2],
      ["pinned:online.5", 5],
      ["pinned:4", 5],
      ["pinned:77", 5],
      ["latest-stable", 2],
    ] as const
  ) {
    rig.policy = parsePolicy(policy, "online");
    await rig.scorer.reload();
    assert.equal(rig.scorer.active?.version, serves, policy);
    if (policy === "pinned:77" || policy === "pinned:4") {
      assert.match(rig.scorer.note, /cannot be loaded; what served before goes on/);
    }
  }
  rig.policy = parsePolicy("pinned:3", "online");
  await rig.scorer.reload();
  assert.equal(rig.scorer.note, "model_v000003 is pinned although it is unstable");
  await rig.store.mark(2, (before) => ({ ...before, state: "rolled_back" }));
  rig.policy = { kind: "latest-stable" };
  await rig.scorer.reload();
  assert.equal(await score(rig.scorer), 100, "no version is eligible, so the seed serves");
  for (const text of ["", "stable", "pinned:", "pinned:x", "pinned:-1", "pinned:other.5", "LATEST"]) {
    assert.throws(() => parsePolicy(text, "online"), { code: "invalid_settings" });
  }
});

Deno.test("an operator's pin holds over the configured policy, and a damaged one is ignored", async () => {
  using folder = new TestFolder();
  const store = await openStore(folder.path);
  const log = new TestLog();
  const policy = () => effectivePolicy(store, { kind: "latest" }, log);
  assert.deepEqual(await policy(), { kind: "latest" });
  await writePin(store, 3);
  assert.deepEqual(await policy(), { kind: "pinned", version: 3 });
  for (const text of ["", "{}", '{"policy":7}', '{"policy":"stable"}', "null"]) {
    Deno.writeTextFileSync(folder.file("policy.json"), text);
    assert.deepEqual(await policy(), { kind: "latest" });
  }
  assert.ok(log.has("policy.json is ignored"));
  await removePin(store);
  await removePin(store);
});

/** A model that overflows on large features. */
function fragileModel(): Params {
  return sumModel(3e38, 1);
}

Deno.test("a version whose calls fail goes back to the one before, and is not chosen again", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  for (const params of [constantModel(1), fragileModel()]) {
    await publish(rig.store, params);
    await rig.scorer.reload();
  }
  for (let i = 0; i < 18; i++) await score(rig.scorer, 0);
  await assert.rejects(score(rig.scorer, 9), {
    code: "non_finite_score",
    message: "online.2 gave a score that is not finite",
  });
  assert.equal(rig.scorer.active?.version, 2, "19 calls are too few");
  await assert.rejects(score(rig.scorer, 9));
  await rig.scorer.settled();
  assert.deepEqual([rig.scorer.active?.version, rig.metrics.rollbacks], [1, 1]);
  const { state, reason } = (await rig.store.record(2))?.metadata ?? {};
  assert.deepEqual([state, reason], ["rolled_back", "2 of 20 scoring calls failed (10.0 %)"]);
  await rig.scorer.reload();
  assert.equal(rig.scorer.active?.version, 1);
  assert.ok(rig.log.has("ERROR online.2 is rolled back: 2 of 20"));
});

Deno.test("failures that are too few, too old or of the model before do not count", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  await publish(rig.store, constantModel(1));
  await rig.scorer.reload();
  await publish(rig.store, fragileModel());
  await rig.scorer.reload();
  for (let i = 0; i < 15; i++) await score(rig.scorer, 9).catch(() => {});
  rig.now = 301_000;
  for (let i = 0; i < 19; i++) await score(rig.scorer, 0);
  await score(rig.scorer, 9).catch(() => {});
  assert.equal(rig.metrics.rollbacks, 0, "exactly 5 percent of the window");
});

Deno.test("calls that began with the old model end with it after the swap and count for nobody", async () => {
  using folder = new TestFolder();
  const held: (() => void)[] = [];
  const after = (delay: number, action: () => void) => {
    if (delay > 0) return systemClock.after(delay, action);
    held.push(action);
    return () => {};
  };
  const rig = await newRig(folder.path, { clock: { ...systemClock, after } });
  for (const params of [fragileModel(), constantModel(3)]) await publish(rig.store, params);
  rig.policy = { kind: "pinned", version: 1 };
  await rig.scorer.reload();
  const rows = 60_000, features = new Float32Array(3 * rows).fill(9);
  const calls = Promise.allSettled(Array.from({ length: 40 }, () => rig.scorer.score(features, rows)));
  assert.equal(held.length, 40, "each call is in the middle");
  rig.policy = { kind: "latest" };
  await rig.scorer.reload();
  assert.equal(await score(rig.scorer), 3);
  while (held.length > 0) {
    for (const action of held.splice(0)) action();
    await Promise.resolve();
  }
  for (const call of await calls) {
    assert.equal(call.status === "rejected" && call.reason.message, "online.1 gave a score that is not finite");
  }
  await rig.scorer.settled();
  assert.deepEqual([rig.scorer.active?.version, rig.metrics.rollbacks, rig.metrics.predictionsFailed], [2, 0, 40]);
});

Deno.test("with nothing to go back to the version goes on and says so; a pinned one too", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  await publish(rig.store, fragileModel());
  await rig.scorer.reload();
  for (let i = 0; i < 40; i++) await score(rig.scorer, 9).catch(() => {});
  await rig.scorer.settled();
  await rig.scorer.reload();
  assert.deepEqual([rig.scorer.active?.version, rig.scorer.failing, rig.metrics.rollbacks], [1, true, 1]);
  await publish(rig.store, constantModel(2));
  await rig.scorer.reload();
  assert.deepEqual([rig.scorer.active?.version, rig.scorer.failing], [2, false]);

  await publish(rig.store, fragileModel());
  rig.policy = { kind: "pinned", version: 3 };
  await rig.scorer.reload();
  for (let i = 0; i < 100; i++) await score(rig.scorer, 9).catch(() => {});
  await rig.scorer.settled();
  assert.deepEqual([rig.scorer.active?.version, rig.metrics.rollbacks], [3, 2]);
  assert.equal((await rig.store.record(3))?.metadata.state, "rolled_back");
  assert.match(rig.scorer.note, /is pinned although it was rolled back/);
});

Deno.test("a version condemned by hand is not what a rollback goes back to; the seed is", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path, { seed: constantModel(50) });
  for (const params of [constantModel(1), fragileModel()]) {
    await publish(rig.store, params);
    await rig.scorer.reload();
  }
  await rig.store.mark(1, (before) => ({ ...before, state: "rolled_back" }));
  for (let i = 0; i < 20; i++) await score(rig.scorer, 9).catch(() => {});
  await rig.scorer.settled();
  assert.equal(await score(rig.scorer), 50);
});

Deno.test("one row can be scored at once", async () => {
  using folder = new TestFolder();
  const rig = await newRig(folder.path);
  const into = new Float32Array(1);
  assert.equal(rig.scorer.scoreOne(new Float32Array(3), into), undefined);
  await publish(rig.store, sumModel(2, 1));
  await rig.scorer.reload();
  assert.equal(rig.scorer.scoreOne(Float32Array.of(1, 2, 3), into)?.version, 1);
  assert.equal(into[0], 13);
});
