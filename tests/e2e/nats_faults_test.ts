/** The program as users start it, through faults of the broker, of the backend and of itself. */
import assert from "node:assert/strict";
import { jetstreamManager } from "@nats-io/jetstream";
import { nanos } from "@nats-io/nats-core";
import { printLine } from "../../scripts/lib/print.ts";
import { FakeGateway } from "../fake_gateway/gateway.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";
import { PacedBackend } from "./paced_backend.ts";
import { stubBackend } from "./rig.ts";

const LANE = { pool: "default", machineProfile: "l4", bundle: "default", workerId: "worker-e2e" };
const STREAM = "WORK_POOL_default";
const DURABLE = "default_l4_default";

function environment(url: string, backend: string, more: Record<string, string> = {}): Record<string, string> {
  return {
    SIE_POOL: LANE.pool,
    SIE_BUNDLE: LANE.bundle,
    SIE_MACHINE_PROFILE: LANE.machineProfile,
    SIE_WORKER_ID: LANE.workerId,
    SIE_NATS_URL: url,
    SIE_IPC_SOCKET_PATH: backend,
    SIE_STREAM_STORAGE: "file",
    SIE_NAK_DELAY_S: "0.2",
    ...more,
  };
}

/** Lets what is left unacknowledged come back after two seconds; the program sees it when it looks at its lane. */
async function shortenAckWait(gateway: FakeGateway): Promise<void> {
  const manager = await jetstreamManager(gateway.nats);
  await manager.consumers.update(STREAM, DURABLE, { ack_wait: nanos(2_000) });
}

/** Messages of the pool stream that are not settled. */
async function unsettled(gateway: FakeGateway): Promise<number> {
  const manager = await jetstreamManager(gateway.nats);
  return (await manager.streams.info(STREAM)).state.messages;
}

function report(fault: string, gateway: FakeGateway, recoveredMs: number): void {
  const { sent, answered, duplicated } = gateway.totals();
  printLine(
    `fault (whole program): ${fault} | sent ${sent} | answered ${answered} | answered twice ${duplicated}` +
      ` | recovered in ${Math.round(recoveredMs)} ms`,
  );
}

Deno.test("whole program: the broker is killed and started again while 5,000 items flow", async () => {
  using folder = new TestFolder();
  let nats = await NatsServer.start({ folder: folder.path });
  try {
    await using backend = stubBackend();
    await using sidecar = await Sidecar.start({ env: environment(nats.url, backend.path) });
    await using gateway = await FakeGateway.connect({ url: nats.url, lane: LANE });
    await shortenAckWait(gateway);
    const request = await gateway.send({ items: 5_000 });
    await eventually("a fifth is answered", () => request.results.size >= 1_000);
    // Held still, so that every result whose ACK the broker has is also with the gateway: what is lost with a broker between the
    // two is lost for every sidecar.
    sidecar.process.signal("SIGSTOP");
    await eventually(
      "broker and gateway agree",
      async () => await unsettled(gateway) + request.results.size === request.totalItems,
    );
    nats = await nats.restart("SIGKILL");
    const back = performance.now();
    await gateway.back();
    const before = request.results.size;
    sidecar.process.signal("SIGCONT");
    await eventually("work goes on", () => request.results.size > before || request.complete);
    const recovered = performance.now() - back;
    await gateway.answered();
    report("broker killed and restarted", gateway, recovered);
    assert.deepEqual(gateway.violations(), []);
    assert.ok(gateway.totals().duplicated <= 64, `${gateway.totals().duplicated} were answered twice`);
    await eventually("nothing is left", async () => await unsettled(gateway) === 0);
    await sidecar.stop();
  } finally {
    await nats[Symbol.asyncDispose]();
  }
});

Deno.test("whole program: one of two workers is told to end while 5,000 items flow", async () => {
  using folder = new TestFolder();
  await using nats = await NatsServer.start({ folder: folder.path });
  await using backend = stubBackend();
  await using first = await Sidecar.start({ env: environment(nats.url, backend.path) });
  await using second = await Sidecar.start({
    env: environment(nats.url, backend.path, { SIE_WORKER_ID: "worker-two" }),
  });
  await using gateway = await FakeGateway.connect({ url: nats.url, lane: LANE });
  const request = await gateway.send({ items: 5_000 });
  await eventually("a fifth is answered", () => request.results.size >= 1_000);
  const told = performance.now();
  await first.stop();
  const ended = performance.now() - told;
  // Nothing waits for an ack wait of thirty seconds: what the first worker held is answered or handed over.
  await gateway.answered(20_000);
  report("one of two workers ended", gateway, ended);
  assert.deepEqual(gateway.violations(), []);
  assert.equal(gateway.totals().duplicated, 0);
  assert.ok([...request.results.values()].some(({ workerId }) => workerId === "worker-two"));
  await second.stop();
});

Deno.test("whole program: the sidecar is killed in the middle of 1,000 items of both kinds; another one finishes them", async () => {
  using folder = new TestFolder();
  await using nats = await NatsServer.start({ folder: folder.path });
  await using backend = new PacedBackend(500);
  await using first = await Sidecar.start({ env: environment(nats.url, backend.path) });
  await using gateway = await FakeGateway.connect({ url: nats.url, lane: LANE });
  await shortenAckWait(gateway);
  const encoded = await gateway.send({ items: 500 });
  const generations = await Promise.all(Array.from({ length: 500 }, (_, index) =>
    gateway.send({
      requestId: `gen-${index}`,
      fields: { operation: "generate", generate: { prompt: "x", max_new_tokens: 1 } },
    })));
  const done = () => encoded.results.size + generations.filter(({ finished }) => finished).length;
  await eventually("a third is answered", () => done() >= 333);
  await first.process.stop("SIGKILL");
  const killed = performance.now(), before = done();
  assert.ok(before < 1_000, "all was over before the kill");
  await using second = await Sidecar.start({
    env: environment(nats.url, backend.path, { SIE_WORKER_ID: "worker-two" }),
  });
  await eventually("work goes on", () => done() > before);
  const recovered = performance.now() - killed;
  await eventually("all is answered", () => done() === 1_000, undefined, () => `${done()} are`);
  await eventually("nothing is left", async () => await unsettled(gateway) === 0);
  assert.deepEqual(gateway.violations(), []);
  // What the first one held, and what the backend had in work for it, is run again; nothing else is.
  assert.equal(backend.runs.size, 1_000);
  assert.ok(backend.repeats <= 64, `${backend.repeats} were run twice`);
  printLine(
    `fault (whole program): sidecar killed, another goes on | sent 1000 | answered ${done()} | run twice ` +
      `${backend.repeats} | recovered in ${Math.round(recovered)} ms`,
  );
  await second.stop();
});

Deno.test("whole program: the backend is gone in the middle of its work and comes back", async () => {
  using folder = new TestFolder();
  await using nats = await NatsServer.start({ folder: folder.path });
  const path = folder.file("backend.sock");
  let backend = stubBackend(path);
  try {
    await using sidecar = await Sidecar.start({ env: environment(nats.url, path), read: [folder.path] });
    await using gateway = await FakeGateway.connect({ url: nats.url, lane: LANE });
    const request = await gateway.send({ items: 3_000 });
    await eventually("a part is answered", () => request.results.size >= 500);
    await backend[Symbol.asyncDispose]();
    backend = stubBackend(path);
    const back = performance.now();
    const before = request.results.size;
    await eventually("work goes on", () => request.results.size > before || request.complete);
    const recovered = performance.now() - back;
    await gateway.answered();
    report("backend gone and back", gateway, recovered);
    assert.deepEqual(gateway.violations(), []);
    await eventually("nothing is left", async () => await unsettled(gateway) === 0);
    await sidecar.stop();
  } finally {
    await backend[Symbol.asyncDispose]();
  }
});

Deno.test("whole program: direct work, a call back, and a cancelled request", async () => {
  using folder = new TestFolder();
  await using nats = await NatsServer.start({ folder: folder.path });
  await using backend = stubBackend();
  await using sidecar = await Sidecar.start({ env: environment(nats.url, backend.path) });
  await using gateway = await FakeGateway.connect({ url: nats.url, lane: LANE });
  const direct = await gateway.send({ items: 50, worker: LANE.workerId });
  await gateway.answered();
  assert.ok([...direct.results.values()].every(({ workerDirect }) => workerDirect));
  gateway.nats.publish(`work_cancel.${gateway.routerId}.cancelled-before`);
  await gateway.nats.flush();
  await gateway.send({ items: 10 });
  await gateway.answered();
  await gateway.send({ items: 5, requestId: "cancelled-before" });
  await eventually("it is dropped", async () => await unsettled(gateway) === 0);
  assert.equal(gateway.requests.get("cancelled-before")?.results.size, 0);
  assert.deepEqual(gateway.violations(), []);
  await sidecar.stop();
});
