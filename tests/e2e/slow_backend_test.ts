/** A backend far slower than the work that waits for it, under the consumer's real ack wait of thirty seconds. */
import assert from "node:assert/strict";
import { jetstreamManager } from "@nats-io/jetstream";
import { FakeGateway } from "../fake_gateway/gateway.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";
import { PacedBackend } from "./paced_backend.ts";

const LANE = { pool: "default", machineProfile: "l4", bundle: "default", workerId: "worker-e2e" };
const ITEMS = 1_000;
const ITEMS_PER_SECOND = 12;

/** It takes a minute and a half, which one version of the runtime is enough for. */
const isOldRuntime = Number(Deno.version.deno.split(".")[1]) < 9;

Deno.test({
  name: "slow backend: 1,000 items at 12 a second are each run once, though most are held far beyond the ack wait",
  ignore: isOldRuntime,
  async fn() {
    using folder = new TestFolder();
    await using nats = await NatsServer.start({ folder: folder.path });
    await using backend = new PacedBackend(ITEMS_PER_SECOND);
    await using sidecar = await Sidecar.start({
      env: {
        SIE_POOL: LANE.pool,
        SIE_BUNDLE: LANE.bundle,
        SIE_MACHINE_PROFILE: LANE.machineProfile,
        SIE_WORKER_ID: LANE.workerId,
        SIE_NATS_URL: nats.url,
        SIE_IPC_SOCKET_PATH: backend.path,
        // All of it is pulled at once: the last item waits for 83 s in the worker, kept alive by progress alone.
        SIE_PULL_LOOP_MAX_OUTSTANDING: String(ITEMS),
      },
    });
    await using gateway = await FakeGateway.connect({ url: nats.url, lane: LANE });
    const manager = await jetstreamManager(gateway.nats);
    const consumer = () => manager.consumers.info("WORK_POOL_default", "default_l4_default");
    await gateway.send({ items: ITEMS });
    await eventually("all of it is held", async () => (await consumer()).num_pending === 0);
    const { config, num_ack_pending } = await consumer();
    assert.equal(config.ack_wait, 30_000_000_000);
    assert.ok(num_ack_pending > ITEMS / 2, `${num_ack_pending} are held`);
    const started = performance.now();
    await gateway.answered(3 * 1000 * ITEMS / ITEMS_PER_SECOND);
    assert.ok(performance.now() - started > 30_000, "it was over within one ack wait: nothing was tested");
    await eventually("all is acknowledged", async () => (await consumer()).num_ack_pending === 0);
    const { delivered, num_redelivered } = await consumer();
    assert.deepEqual({ delivered: delivered.consumer_seq, num_redelivered }, { delivered: ITEMS, num_redelivered: 0 });
    assert.equal(backend.runs.size, ITEMS);
    assert.equal(backend.repeats, 0);
    assert.deepEqual(gateway.totals(), { sent: ITEMS, answered: ITEMS, duplicated: 0 });
    assert.deepEqual(gateway.violations(), []);
    await sidecar.stop();
  },
});
