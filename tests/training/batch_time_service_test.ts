/** The sidecar's end of the loop when the trainer is away, slow, full, of another width, or when the versions are not to be read. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import { BATCH_FEATURES, type DispatchedBatch } from "../../src/training/batch_features.ts";
import { FixtureSample } from "../../src/training/batch_fixtures.ts";
import { BatchTimeService } from "../../src/training/batch_time_service.ts";
import { loadFixtures } from "../../src/training/fixtures.ts";
import { OncePerChange } from "../../src/training/once_per_change.ts";
import { seededRandom } from "../../src/training/random.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { settle, VirtualClock } from "../sim/virtual_clock.ts";
import { constantModel, openStore, TestLog, TestService } from "./support.ts";

const BATCH: DispatchedBatch = {
  operation: "encode",
  modelId: "m",
  items: 4,
  cost: 100,
  longest: 40,
  paddedCost: 160,
  queueDepth: 0,
  inFlight: 0,
  recentMs: 0,
};

/** A service on virtual time; it is started by the test. Use it with `await using`. */
class Rig implements AsyncDisposable {
  readonly folder = new TestFolder();
  readonly log = new TestLog();
  readonly clock = new VirtualClock();
  readonly service: BatchTimeService;

  constructor(policy = "latest-stable") {
    this.service = new BatchTimeService({
      feedbackSocket: this.folder.file("s.sock"),
      versionsDir: this.folder.file("versions"),
      policy,
      clock: this.clock,
      log: this.log,
    });
  }

  /** Measures batches. */
  measure(count: number): void {
    for (let i = 0; i < count; i++) this.service.predictor.observe(BATCH, 10, undefined);
  }

  /** Moves time on until `condition` holds. */
  async until(what: string, condition: () => boolean): Promise<void> {
    await eventually(what, async () => {
      await this.clock.advance(1000);
      return condition();
    });
  }

  lines(part: string): string[] {
    return this.log.lines.filter((line) => line.includes(part));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.service.close();
    try {
      this.folder[Symbol.dispose]();
    } catch (thrown) {
      // A trainer may have used the folder and removed it.
      if (!(thrown instanceof Deno.errors.NotFound)) throw thrown;
    }
  }
}

Deno.test("a trainer that is away costs nothing but measurements, is told once, and so is its return", async () => {
  await using rig = new Rig();
  rig.service.start();
  rig.measure(1500);
  const { feedback } = rig.service.report();
  assert.deepEqual(feedback, { delivered: 0, dropped: 500, rejected: 0, outstanding: 1000 });
  // An hour: about thirty attempts to connect.
  for (let minute = 0; minute < 60; minute++) {
    await rig.clock.advance(60_000);
    await settle();
  }
  assert.equal(rig.lines("cannot connect").length, 1, rig.log.lines.join("\n"));
  await using trainer = await TestService.start({ VMAFX_SIDECAR_N_FEATURES: `${BATCH_FEATURES}` }, rig.folder);
  assert.ok(trainer.socket === rig.folder.file("s.sock"));
  await rig.until("all is delivered", () => rig.service.report().feedback?.delivered === 1000);
  await rig.until("it is said", () => rig.lines("the trainer takes measurements").length === 1);
  await trainer.stop();
  rig.measure(1);
  await rig.until("it is away again", () => rig.log.lines.at(-1)?.includes("cannot connect") === true);
});

Deno.test("a trainer of another width refuses every measurement, which is told once", async () => {
  await using rig = new Rig();
  await using trainer = await TestService.start({}, rig.folder);
  rig.service.start();
  rig.measure(50);
  await rig.until("all are refused", () => rig.service.report().feedback?.rejected === 50);
  assert.deepEqual(rig.lines("was rejected"), [
    `WARN feedback: job "batch-1" was rejected: feature vector length ${BATCH_FEATURES} != expected 3`,
  ]);
  assert.equal(trainer.service.metrics.samplesRejected, 50);
});

Deno.test("a trainer that is paused or never answers keeps its measurements waiting, which is told once each", async () => {
  await using rig = new Rig();
  const trainer = await TestService.start({ VMAFX_SIDECAR_N_FEATURES: `${BATCH_FEATURES}` }, rig.folder);
  try {
    trainer.service.setPaused(true);
    rig.service.start();
    rig.measure(5);
    await rig.until("it was asked often", () => trainer.service.metrics.samplesRefused > 5);
    assert.equal(rig.lines("training paused").length, 1, rig.log.lines.join("\n"));
    assert.equal(rig.service.report().feedback?.outstanding, 5);
  } finally {
    await trainer.stop();
  }
  await using silent = listen(rig.folder.file("s.sock"));
  await rig.until("it has connected often", () => silent.connections > 5);
  assert.equal(rig.lines("no answer within 2000 ms").length, 1, rig.log.lines.join("\n"));
  assert.equal(rig.service.report().feedback?.outstanding, 5);
});

Deno.test("versions are followed from the moment the folder exists; what cannot be read is told once and changes nothing", async () => {
  await using rig = new Rig("latest");
  const { service, folder } = rig;
  for (let i = 0; i < 3; i++) await service.poll();
  assert.equal(service.predictor.predictMs(BATCH), undefined);
  assert.equal(rig.lines("no versions can be read").length, 1);
  const store = await openStore(folder.file("versions"), { nFeatures: BATCH_FEATURES });
  await store.publish({ params: constantModel(30, BATCH_FEATURES), step: 1, samplesTotal: 1, parent: null });
  await service.poll();
  assert.equal(rig.lines("the versions can be read").length, 1);
  assert.equal(service.predictor.predictMs(BATCH), 30);
  assert.equal(service.report().version, "online.1");

  // One of another width, and one that is damaged, are not used; nothing is written into the folder.
  const before = [...Deno.readDirSync(folder.file("versions"))].map(({ name }) => name).sort();
  await store.publish({ params: constantModel(1, 3), step: 2, samplesTotal: 2, parent: 1 });
  Deno.writeTextFileSync(folder.file("versions/model_v000003.onnx"), "no model");
  Deno.writeTextFileSync(folder.file("versions/model_v000003.onnx.sha256"), `${"0".repeat(64)}\n`);
  // The digest is looked at again, a little later each time.
  const polled = service.poll();
  let done = false;
  void polled.then(() => done = true);
  await rig.until("the poll is over", () => done);
  assert.equal(service.report().version, "online.1");
  assert.equal(rig.lines("is quarantined").length, 2, rig.log.lines.join("\n"));
  await service.poll();
  assert.equal(rig.lines("is quarantined").length, 2);
  const added = ["model_v000002.onnx", "model_v000002.onnx.json", "model_v000002.onnx.sha256"];
  const after = [...before, ...added, "model_v000003.onnx", "model_v000003.onnx.sha256"].sort();
  assert.deepEqual([...Deno.readDirSync(folder.file("versions"))].map(({ name }) => name).sort(), after);

  Deno.renameSync(folder.file("versions"), folder.file("gone"));
  for (let i = 0; i < 3; i++) await service.poll();
  assert.equal(rig.lines("no versions can be read").length, 2);
  assert.equal(service.predictor.predictMs(BATCH), 30, "what predicted goes on");
});

Deno.test("the operator's word holds here too: promote, pin, unpin", async () => {
  await using rig = new Rig();
  const { service } = rig;
  const store = await openStore(rig.folder.file("versions"), { nFeatures: BATCH_FEATURES });
  for (const ms of [10, 20]) {
    await store.publish({ params: constantModel(ms, BATCH_FEATURES), step: ms, samplesTotal: ms, parent: null });
  }
  await service.poll();
  assert.equal(service.predictor.predictMs(BATCH), undefined, "candidates do not serve under latest-stable");
  await store.mark(1, (metadata) => ({ ...metadata, state: "stable", reason: "promoted" }));
  await service.poll();
  assert.equal(service.predictor.predictMs(BATCH), 10);
  await store.writeText("policy.json", `{"policy":"pinned:2"}\n`);
  await service.poll();
  assert.equal(service.predictor.predictMs(BATCH), 20);
  await store.removeText("policy.json");
  await service.poll();
  assert.equal(service.predictor.predictMs(BATCH), 10);
});

Deno.test("fixtures are an even sample that the trainer can load", async () => {
  const counts = new Array<number>(100).fill(0);
  const random = seededRandom(3);
  for (let run = 0; run < 2000; run++) {
    const sample = new FixtureSample(random);
    for (let i = 0; i < counts.length; i++) sample.add(`${i}`, [], i);
    const { pairs } = sample.file();
    assert.equal(pairs.length, 20);
    for (const { score } of pairs) counts[score] = (counts[score] ?? 0) + 1;
  }
  // Expected 400 each, standard deviation 18.
  assert.ok(counts.every((count) => Math.abs(count - 400) < 100), counts.join());

  await using rig = new Rig();
  rig.measure(7);
  const path = rig.folder.file("fixtures.json");
  Deno.writeTextFileSync(path, JSON.stringify(rig.service.fixtures()));
  const fixtures = await loadFixtures(path, BATCH_FEATURES, systemClock, new TestLog());
  assert.deepEqual([fixtures.count, [...fixtures.scores]], [7, new Array(7).fill(10)]);
});

Deno.test("a log that tells each trouble once", () => {
  const log = new TestLog();
  const once = new OncePerChange(log, (message) => message.replaceAll(/\d/g, ""));
  once.goesWell("well");
  for (const message of ["a 1", "a 2", "b", "a 3"]) once.warn(message);
  once.goesWell("well");
  once.warn("a 4");
  once.goesWell("well");
  once.goesWell("well");
  once.goesWell("well");
  once.warn("a 5");
  once.goesWell();
  once.goesWell();
  once.info("c");
  once.goesWell("well");
  once.goesWell("well");
  once.info("c");
  assert.deepEqual(log.lines, ["WARN a 1", "WARN b", "WARN a 3", "INFO well", "WARN a 5", "INFO c", "INFO c"]);
});

/** A peer that accepts connections and says nothing. */
function listen(path: string): AsyncDisposable & { readonly connections: number } {
  const listener = Deno.listen({ transport: "unix", path });
  const open: Deno.Conn[] = [];
  const accepting = (async () => {
    for await (const connection of listener) open.push(connection);
  })();
  return {
    get connections() {
      return open.length;
    },
    async [Symbol.asyncDispose]() {
      listener.close();
      await accepting;
      for (const connection of open) connection.close();
    },
  };
}
