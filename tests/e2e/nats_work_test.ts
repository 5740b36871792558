/** Work through NATS JetStream with the program as users start it. */
import assert from "node:assert/strict";
import { jetstreamManager } from "@nats-io/jetstream";
import { NatsServer } from "../harness/nats_server.ts";
import { eventually, freePort, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";
import { assertStubResult, itemFields, LANE, NatsCaller, stubBackend } from "./rig.ts";

function settings(url: string, backend: string): Record<string, string> {
  return { ...LANE, SIE_NATS_URL: url, SIE_IPC_SOCKET_PATH: backend };
}

Deno.test("nats: items of each operation come back, are acknowledged, and the end is clean", async () => {
  using folder = new TestFolder();
  await using nats = await NatsServer.start({ folder: folder.path });
  await using backend = stubBackend();
  await using sidecar = await Sidecar.start({ env: settings(nats.url, backend.path) });
  await using caller = await NatsCaller.connect(nats.url);
  for (const operation of ["encode", "score", "extract"] as const) {
    const items = Array.from({ length: 20 }, (_, index) => itemFields(operation, `req-${operation}-${index}`));
    const results = await caller.publishWork(items);
    assert.equal(results.size, items.length);
    for (const [id, result] of results) assertStubResult(result, id, operation);
  }
  const manager = await jetstreamManager(caller.connection);
  await eventually("every message is acknowledged", async () => {
    const info = await manager.consumers.info("WORK_POOL_default", "default_l4_default");
    return info.num_ack_pending === 0 && info.num_pending === 0 && info.delivered.consumer_seq === 60;
  });
  await sidecar.stop();
  assert.ok(backend.requests.some(({ method }) => method === "Drain"), "the backend was not drained");
});

Deno.test("nats: a broker that is not there is a clear error", async () => {
  await using backend = stubBackend();
  const url = `nats://127.0.0.1:${freePort()}`;
  await using sidecar = Sidecar.launch({ env: settings(url, backend.path) });
  const { code } = await sidecar.process.end();
  assert.equal(code, 1, sidecar.process.output());
  assert.match(sidecar.process.output(), /exited with error/);
});

Deno.test("nats: the broker's restart is survived and nothing is lost", async () => {
  using folder = new TestFolder();
  await using first = await NatsServer.start({ folder: folder.path });
  await using backend = stubBackend();
  const env = { ...settings(first.url, backend.path), SIE_STREAM_STORAGE: "file" };
  await using sidecar = await Sidecar.start({ env });
  await using second = await first.restart();
  await using caller = await NatsCaller.connect(second.url);
  const items = Array.from({ length: 50 }, (_, index) => itemFields("encode", `req-${index}`));
  const results = await caller.publishWork(items);
  assert.equal(results.size, items.length);
  for (const [id, result] of results) assertStubResult(result, id, "encode");
  await sidecar.stop();
});
