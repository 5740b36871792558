/** The whole loop: producer, client, server, checkpoint, gate, scorer. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import { FeedbackClient } from "../../src/training/feedback_client.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { LinearData, TestLog, TestService } from "./support.ts";

const LEARNING = {
  VMAFX_SIDECAR_N_FEATURES: "8",
  VMAFX_SIDECAR_BATCH_SIZE: "32",
  VMAFX_SIDECAR_LR: "0.01",
  VMAFX_SIDECAR_EMA_DECAY: "0.9",
  VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "400",
};

/** Sends `count` samples and waits until all are delivered. */
async function feed(
  socketPath: string,
  data: LinearData,
  count: number,
  score: (row: number[]) => number,
): Promise<void> {
  const client = new FeedbackClient({ socketPath, clock: systemClock, log: new TestLog() });
  client.start();
  for (let i = 0; i < count; i++) {
    while (!client.hasRoom) await client.changed();
    const features = data.row();
    client.send({ jobId: `${i}`, features, trueScore: score(features) });
  }
  while (client.outstanding > 0) await client.changed();
  assert.deepEqual([client.delivered, client.dropped, client.rejected], [count, 0, 0]);
  await client.close();
}

/** Root mean square error of what `/predict` answers. */
async function servedError(trainer: TestService, data: LinearData): Promise<number> {
  const rows = Array.from({ length: 500 }, () => data.row());
  const response = await fetch(`${trainer.http}/predict`, { method: "POST", body: JSON.stringify({ features: rows }) });
  assert.equal(response.status, 200);
  const { scores } = await response.json() as { scores: number[] };
  return Math.sqrt(scores.reduce((sum, value, i) => sum + (value - data.score(rows[i] ?? [])) ** 2, 0) / rows.length);
}

Deno.test("the served model learns a linear target: error under 15 within 2000 samples, under 1 within 6000", async () => {
  const folder = new TestFolder();
  const data = new LinearData(8);
  Deno.writeTextFileSync(folder.file("fixtures.json"), data.fixtures(16));
  await using trainer = await TestService.start({
    ...LEARNING,
    VMAFX_SIDECAR_GATE_FIXTURES: folder.file("fixtures.json"),
  }, folder);
  await feed(trainer.socket, data, 2000, (row) => data.score(row));
  await trainer.service.settled();
  const early = await servedError(trainer, data);
  assert.ok(early < 15, `error ${early}`);
  await feed(trainer.socket, data, 4000, (row) => data.score(row));
  await trainer.service.settled();
  const late = await servedError(trainer, data);
  assert.ok(late < 1, `error ${late}`);
  assert.equal(trainer.service.status().active_version, trainer.service.status().model_version);
});

Deno.test("a poisoned stream is caught by the gate: latest-stable never serves it, latest does", async () => {
  const folder = new TestFolder();
  const data = new LinearData(8);
  Deno.writeTextFileSync(folder.file("fixtures.json"), data.fixtures(16));
  const env = { ...LEARNING, VMAFX_SIDECAR_GATE_FIXTURES: folder.file("fixtures.json") };
  await using trainer = await TestService.start(env, folder);
  await feed(trainer.socket, data, 4000, (row) => data.score(row));
  await trainer.service.settled();
  const stable = trainer.service.scorer.active?.version;
  assert.ok(stable !== undefined && stable !== null);
  await feed(trainer.socket, data, 3000, (row) => 100 - data.score(row));
  await trainer.service.settled();
  const status = trainer.service.status();
  assert.equal(status.last_gate, "failed");
  assert.ok((trainer.service.scorer.active?.version ?? 0) < status.checkpoint_counter);
  assert.ok(await servedError(trainer, data) < 5, "what serves is still the good model");

  // The same folder under the other policy.
  await trainer.stop();
  await using other = await TestService.start({ ...env, VMAFX_SIDECAR_VERSION_POLICY: "latest" }, folder);
  await other.service.settled();
  assert.equal(other.service.scorer.active?.version, status.checkpoint_counter);
  assert.ok(await servedError(other, data) > 5);
});

Deno.test("another policy while it runs moves to the right version at the next poll", async () => {
  const folder = new TestFolder();
  await using trainer = await TestService.start({
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "100",
    VMAFX_SIDECAR_MODEL_POLL_S: "0.1",
    VMAFX_SIDECAR_VERSION_POLICY: "latest",
  }, folder);
  await feed(trainer.socket, new LinearData(3), 350, () => 50);
  await trainer.service.settled();
  assert.equal(trainer.service.status().active_version, "online.3");
  Deno.writeTextFileSync(folder.file("versions/policy.json"), '{"policy":"pinned:2"}');
  await eventually("the pinned version serves", () => trainer.service.status().active_version === "online.2");
  assert.equal(trainer.service.status().policy, "pinned:2");
  Deno.removeSync(folder.file("versions/policy.json"));
  await eventually("the newest version serves again", () => trainer.service.status().active_version === "online.3");
});
