/** Generations through JetStream to the wheel's IPC harness and back, collected by a gateway that holds each rule of the receiver. */
import assert from "node:assert/strict";
import { FakeGateway } from "../fake_gateway/gateway.ts";
import type { RequestCollector } from "../fake_gateway/request_collector.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { startBackend, startIpcHarness } from "../harness/peers.ts";
import { eventually, type ManagedProcess, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";
import { LANE } from "../e2e/rig.ts";
import type { Value } from "../harness/work_items.ts";

const GENERATOR = "gen-model";
const WORKER = LANE.SIE_WORKER_ID;

/** A broker, a sidecar in front of the harness, and a gateway. */
interface World {
  readonly gateway: FakeGateway;
  readonly sidecar: Sidecar;
}

async function withPeer(
  start: (socket: string) => Promise<ManagedProcess>,
  run: (world: World) => Promise<void>,
): Promise<void> {
  using folder = new TestFolder();
  const socket = folder.file("ipc.sock");
  await using nats = await NatsServer.start({ folder: folder.path });
  await using _peer = await start(socket);
  await using sidecar = Sidecar.launch({
    env: { ...LANE, SIE_NATS_URL: nats.url, SIE_IPC_SOCKET_PATH: socket, SIE_NAK_DELAY_S: "0.2" },
  });
  await using gateway = await FakeGateway.connect({
    url: nats.url,
    lane: { pool: LANE.SIE_POOL, bundle: LANE.SIE_BUNDLE, machineProfile: LANE.SIE_MACHINE_PROFILE, workerId: WORKER },
  });
  // The wheel's harness never says that it is ready, so readiness is not waited for; the consumers are.
  await sidecar.process.line("it pulls the direct lane", (line) => line.includes("the direct lane is pulling"));
  await run({ gateway, sidecar });
  assert.deepEqual(gateway.violations(), []);
  await sidecar.stop();
}

function withHarness(options: readonly string[], run: (world: World) => Promise<void>): Promise<void> {
  return withPeer(
    (socket) => startIpcHarness(socket, ["--worker-id", "harness", "--fake-generate-model", GENERATOR, ...options]),
    run,
  );
}

/** Sends one generation and waits for its terminal chunk. */
async function generate(
  { gateway }: World,
  parameters: { [key: string]: Value },
  more: { worker?: string; requestId?: string; model?: string } = {},
): Promise<RequestCollector> {
  const { model = GENERATOR, ...target } = more;
  const fields = { operation: "generate", model_id: model, item: null, output_types: null, generate: parameters };
  const request = await gateway.send({ fields, ...target });
  await eventually("the generation has ended", () => Promise.resolve(request.finished));
  return request;
}

const ONCE = { prompt: "x", max_new_tokens: 1 };

Deno.test("generations arrive by the pool and by the worker's own subject", async () => {
  await withHarness([], async (world) => {
    for (const worker of [undefined, WORKER]) {
      const request = await generate(world, ONCE, worker === undefined ? {} : { worker });
      assert.equal(request.generation.length, 1);
      assert.equal(request.generation[0]?.attemptId, "ipc-test-harness");
    }
  });
});

Deno.test("a cancel of the gateway ends the stream of the harness, and media in base64 reach it as bytes", async () => {
  await withHarness([], async (world) => {
    const cancelled = generate(world, { ...ONCE, wait_for_cancel: true }, { requestId: "cancel-1" });
    await eventually(
      "the stream has started",
      () => Promise.resolve((world.gateway.requests.get("cancel-1")?.generation.length ?? 0) > 0),
    );
    await world.gateway.cancelGeneration("cancel-1");
    const request = await cancelled;
    assert.deepEqual(request.generation.map(({ done }) => done), [false, true]);
    assert.equal(request.generation[1]?.finishReason, "cancelled");
    const messages = [{ role: "user", content: "see", images: [{ data: btoa("pixels"), format: "png" }] }];
    const media = await generate(world, { messages, max_new_tokens: 1 });
    assert.equal(media.generation.length, 1);
    assert.equal(media.generation[0]?.error, undefined);
  });
});

Deno.test("a refusal of the harness reaches the gateway, which goes to the pool once", async () => {
  await withHarness([], async ({ gateway }) => {
    const fields = {
      operation: "generate",
      model_id: GENERATOR,
      item: null,
      output_types: null,
      generate: { ...ONCE, test_nak_reason: "kv_budget" },
    };
    const request = await gateway.send({ fields, worker: WORKER });
    // The pool's copy is refused as well; no third attempt follows.
    await eventually("both attempts were refused", () => Promise.resolve(request.naks.length === 2));
    assert.deepEqual(request.naks, ["kv_budget", "kv_budget"]);
  });
});

Deno.test("a model that is loading is refused at once with a terminal chunk", async () => {
  for (const [readiness, text] of [["loading_started", "is loading"], ["loading_in_progress", "is still loading"]]) {
    await withHarness(["--readiness", `${readiness}`], async (world) => {
      const request = await generate(world, ONCE);
      assert.equal(request.generation[0]?.error?.code, "MODEL_LOADING");
      assert.equal(request.generation[0]?.error?.message, `Model '${GENERATOR}' ${text}; retry later.`);
    });
  }
});

Deno.test("the real backend streams through JetStream, chunk by chunk", async () => {
  await withPeer((socket) => startBackend({ socket }), async (world) => {
    const request = await eventually("the model is loaded", async () => {
      const attempt = await generate(world, { prompt: "Once upon a time", max_new_tokens: 40 }, {
        model: "peer-fake:slow-gen",
      });
      return attempt.generation[0]?.error?.code === "MODEL_LOADING" ? undefined : attempt;
    });
    assert.ok(request.generation.length > 2, `${request.generation.length} chunks`);
    assert.deepEqual(request.generation.map(({ seq }) => seq), request.generation.map((_, index) => index));
    assert.ok(request.generation.map(({ textDelta }) => textDelta).join("").length > 0);
  });
});
