/** The gate on stored versions: order, previous version, fixtures, decisions by hand. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import type { CheckpointStore, VersionRecord } from "../../src/training/checkpoint_store.ts";
import { loadFixtures } from "../../src/training/fixtures.ts";
import { Gatekeeper, type GatekeeperOptions } from "../../src/training/gatekeeper.ts";
import { TrainingMetrics } from "../../src/training/metrics.ts";
import type { Params } from "../../src/training/params.ts";
import { type LoadResult, VersionLoader } from "../../src/training/version_loader.ts";
import { TestFolder } from "../harness/process.ts";
import { constantModel, newLoader, openStore, sumModel, TestLog } from "./support.ts";

/** Fixtures whose score is the sum of the features, so that sumModel ranks them perfectly. */
function fixturesText(count: number, nFeatures = 3): string {
  const pairs = Array.from({ length: count }, (_, i) => {
    const features = Array.from({ length: nFeatures }, (_, j) => ((i * 7 + j * 3) % 11) / 10);
    return { id: `${i}`, features, score: features.reduce((sum, value) => sum + value) };
  });
  return JSON.stringify({ version: 1, n_features: nFeatures, pairs });
}

async function newRig(folder: TestFolder, more: Partial<GatekeeperOptions> = {}) {
  const store = await openStore(folder.file("v"));
  Deno.writeTextFileSync(folder.file("fixtures.json"), fixturesText(12));
  const fixtures = await loadFixtures(folder.file("fixtures.json"), 3, systemClock, new TestLog());
  const log = new TestLog(), metrics = new TrainingMetrics(), verdicts: number[] = [];
  const { loader } = newLoader(store, log, metrics);
  const options: GatekeeperOptions = {
    store,
    loader,
    fixtures,
    maxRegression: 0.005,
    seed: undefined,
    clock: systemClock,
    log,
    metrics,
    onVerdict: ({ version }) => verdicts.push(version),
    ...more,
  };
  return { store, log, metrics, verdicts, options, gatekeeper: new Gatekeeper(options) };
}

async function publish(store: CheckpointStore, params: Params): Promise<void> {
  await store.publish({ params, step: 0, samplesTotal: 0, parent: null });
}

/** Ranks worse the more one feature is overweighted. */
function skewed(weight: number): Params {
  const params = sumModel(1, 0);
  params.w0[0] = weight;
  return params;
}

async function judged(store: CheckpointStore): Promise<string[]> {
  return (await store.list()).map(({ metadata: { state, gate } }) =>
    `${state} ${gate?.result} ${gate?.previous_version}`
  );
}

Deno.test("versions are judged in order, each against the newest one that is still trusted", async () => {
  using folder = new TestFolder();
  const { store, gatekeeper, verdicts, metrics, log } = await newRig(folder);
  for (
    const params of [
      skewed(1.5),
      sumModel(1, 0),
      skewed(40),
      skewed(41),
      constantModel(5),
      sumModel(-1, 5),
      sumModel(2, 7),
    ]
  ) await publish(store, params);
  await Promise.all([gatekeeper.judgeAll(), gatekeeper.judgeAll()]);
  assert.deepEqual(await judged(store), [
    "stable skipped null",
    "stable passed 1",
    "unstable failed 2",
    "unstable failed 2",
    "unstable failed 2",
    "unstable failed 2",
    "stable passed 2",
  ]);
  assert.deepEqual(verdicts, [1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(metrics.gate, { passed: 2, failed: 4, skipped: 1 });
  assert.ok(log.has("WARN model_v000005: gate failed, the correlation with the fixtures is undefined"));
  const sixth = (await store.record(6))?.metadata.gate;
  assert.ok(Math.abs((sixth?.plcc ?? 0) + 1) < 1e-6 && Math.abs((sixth?.delta ?? 0) - 2) < 1e-6);
});

Deno.test("a seed model counts as the version before the first", async () => {
  using folder = new TestFolder();
  const { store, gatekeeper } = await newRig(folder, { seed: sumModel(1, 0) });
  await publish(store, skewed(40));
  await gatekeeper.judgeAll();
  assert.deepEqual(await judged(store), ["unstable failed null"]);
});

Deno.test("without fixtures every verdict is skipped and no version becomes stable; with them later, it is judged", async () => {
  using folder = new TestFolder();
  const { store, gatekeeper, metrics, options } = await newRig(folder, { fixtures: undefined });
  await publish(store, sumModel(1, 0));
  await gatekeeper.judgeAll();
  await gatekeeper.judgeAll();
  assert.deepEqual(await judged(store), ["candidate skipped null"]);
  assert.equal(metrics.gate.skipped, 1, "judged once");
  const fixtures = await loadFixtures(folder.file("fixtures.json"), 3, systemClock, new TestLog());
  await new Gatekeeper({ ...options, fixtures }).judgeAll();
  assert.deepEqual(await judged(store), ["stable skipped null"]);
});

Deno.test("what an operator decided stands, and an unfinished version waits", async () => {
  using folder = new TestFolder();
  const { store, gatekeeper } = await newRig(folder);
  await publish(store, skewed(40));
  await store.mark(1, (metadata) => ({ ...metadata, state: "stable", reason: "promoted by the operator" }));
  await publish(store, sumModel(1, 0));
  Deno.removeSync(folder.file("v/model_v000002.onnx.sha256"));
  await gatekeeper.judgeAll();
  assert.deepEqual(await judged(store), ["stable undefined undefined", "candidate undefined undefined"]);
});

Deno.test("a broken version is quarantined by the gate and the next one judged", async () => {
  using folder = new TestFolder();
  const { store, gatekeeper } = await newRig(folder);
  await publish(store, sumModel(1, 0));
  await publish(store, sumModel(1, 0));
  Deno.writeTextFileSync(folder.file("v/model_v000001.onnx"), "broken");
  await gatekeeper.judgeAll();
  assert.deepEqual(await judged(store), ["quarantined undefined undefined", "stable skipped null"]);
});

Deno.test("a version that was repaired is judged again, whoever found it broken", async () => {
  using folder = new TestFolder();
  const { store, gatekeeper, options, metrics } = await newRig(folder);
  await publish(store, sumModel(1, 0));
  await publish(store, sumModel(1, 0));
  const paths = [1, 2].map((version) => folder.file(`v/model_v00000${version}.onnx`));
  const good = paths.map((path) => Deno.readFileSync(path));
  Deno.writeTextFileSync(paths[0] ?? "", "broken");
  await gatekeeper.judgeAll();
  Deno.writeTextFileSync(paths[1] ?? "", "broken");
  const record = await store.record(2);
  assert.ok(record !== undefined);
  // The scorer has the same loader.
  assert.equal((await options.loader.load(record)).kind, "rejected");
  await gatekeeper.judgeAll();
  assert.deepEqual((await judged(store)).map((text) => text.split(" ")[0]), ["quarantined", "quarantined"]);
  assert.equal(metrics.versionsRejected.digest_mismatch, 2, "found out once each");
  paths.forEach((path, i) => {
    Deno.writeFileSync(path, good[i] as Uint8Array);
    Deno.utimeSync(path, 1, 1);
  });
  await gatekeeper.judgeAll();
  assert.deepEqual(await judged(store), ["stable skipped null", "stable passed 1"]);
});

Deno.test("a version that could not be read is judged later", async () => {
  using folder = new TestFolder();
  let away = true;
  const { store, options, metrics } = await newRig(folder);
  class Loader extends VersionLoader {
    override load(record: VersionRecord): Promise<LoadResult> {
      return away ? Promise.resolve({ kind: "waiting" }) : super.load(record);
    }
  }
  const loader = new Loader(store, { nFeatures: 3, clock: systemClock, log: new TestLog(), metrics });
  const gatekeeper = new Gatekeeper({ ...options, loader });
  await publish(store, sumModel(1, 0));
  await gatekeeper.judgeAll();
  assert.deepEqual(await judged(store), ["candidate undefined undefined"]);
  away = false;
  await gatekeeper.judgeAll();
  assert.deepEqual(await judged(store), ["stable skipped null"]);
});

Deno.test("the work of judging grows with the number of versions, not with its square", async () => {
  using folder = new TestFolder();
  const { store, gatekeeper } = await newRig(folder);
  const count = 40;
  for (let i = 0; i < count; i++) await publish(store, sumModel(1, i));
  const record = store.record.bind(store);
  let reads = 0;
  store.record = (version) => {
    reads++;
    return record(version);
  };
  await gatekeeper.judgeAll();
  assert.equal((await judged(store)).at(-1), `stable passed ${count - 1}`);
  assert.ok(reads <= 5 * count, `${reads} reads for ${count} versions`);
});

Deno.test("fixtures must be complete, of the right width and finite", async () => {
  using folder = new TestFolder();
  const path = folder.file("f.json");
  const load = (log = new TestLog()) => loadFixtures(path, 3, systemClock, log);
  await assert.rejects(load(), { code: "invalid_fixtures", message: `gate fixtures: ${path} does not exist` });
  for (
    const [text, reason] of [
      ["{", /not JSON/],
      [fixturesText(1), /at least 2 pairs, got 1/],
      [fixturesText(5, 4), /n_features is 4 where the trainer has 3/],
      [fixturesText(5).replace('"version":1', '"version":2'), /^gate fixtures: version: /],
      [fixturesText(5).replace("[0,0.3,0.6]", "[0,0.3]"), /pair 0 has 2 features/],
      [fixturesText(5).replace("[0,0.3,0.6]", "[0,0.3,1e39]"), /not a finite float32/],
      [fixturesText(5).replace("[0,0.3,0.6]", "[0,0.3,null]"), /^gate fixtures: pairs\.0\.features\.2: /],
    ] as const
  ) {
    Deno.writeTextFileSync(path, text);
    await assert.rejects(load(), (thrown: Error) => {
      assert.match(thrown.message, reason);
      return true;
    });
  }
  for (const [count, warned] of [[9, true], [10, false], [20, false], [21, true]] as const) {
    Deno.writeTextFileSync(path, fixturesText(count));
    const log = new TestLog();
    await load(log);
    assert.equal(log.has("10 to 20 are usual"), warned);
  }
});
