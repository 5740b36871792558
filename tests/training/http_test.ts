/** HTTP of a whole service: status, probes, predictions, metrics, the page. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import { BODY_MS, MAX_BODY_BYTES, TrainingHttpServer } from "../../src/training/http_server.ts";
import { writeOnnx } from "../../src/training/onnx_writer.ts";
import { parsePredictRequest } from "../../src/training/predict_request.ts";
import { mapStatus } from "../../src/training/status_mapper.ts";
import { TestFolder } from "../harness/process.ts";
import { LineClient, openStore, sumModel, testEnvironment, TestLog, TestService } from "./support.ts";

async function get(url: string, init: RequestInit = {}): Promise<{ status: number; text: string; headers: Headers }> {
  const response = await fetch(url, init);
  return { status: response.status, text: await response.text(), headers: response.headers };
}

function predict(base: string, body: BodyInit): Promise<{ status: number; text: string }> {
  return get(`${base}/predict`, { method: "POST", body });
}

async function seeded(params = sumModel(2, 1)): Promise<TestService> {
  const folder = new TestFolder();
  Deno.writeFileSync(folder.file("chug-hdr-v1.onnx"), writeOnnx(params, "0"));
  return await TestService.start({ VMAFX_BASE_MODEL_PATH: folder.file("chug-hdr-v1.onnx") }, folder);
}

Deno.test("routes, methods and unknown paths", async () => {
  await using trainer = await TestService.start();
  for (
    const [path, method, status, body] of [
      ["/livez", "GET", 200, "ok\n"],
      ["/healthz", "GET", 200, "ok\n"],
      ["/readyz", "GET", 200, "ok\n"],
      ["/startupz", "GET", 200, "ok\n"],
      ["/status", "HEAD", 200, ""],
      ["/", "HEAD", 200, ""],
      ["/metrics", "POST", 405, "method not allowed\n"],
      ["/predict", "GET", 405, "method not allowed\n"],
      ["/pause", "GET", 405, "method not allowed\n"],
      ["/status/", "GET", 404, "not found\n"],
      ["/../status", "DELETE", 405, "method not allowed\n"],
      ["/nowhere", "GET", 404, "not found\n"],
    ] as const
  ) {
    const answer = await get(`${trainer.http}${path}`, { method });
    assert.deepEqual([answer.status, answer.text], [status, body], `${method} ${path}`);
  }
});

Deno.test("predictions name the model that gave them", async () => {
  await using trainer = await seeded();
  const answer = await predict(trainer.http, '{"features":[[1,2,3],[0,0,0]]}');
  assert.equal(answer.status, 200);
  assert.deepEqual(JSON.parse(answer.text), { scores: [13, 1], model_version: "chug-hdr-v1", version: null });
  assert.match((await get(`${trainer.http}/metrics`)).text, /vmafx_model_predictions_total\{outcome="completed"\} 1\n/);
});

Deno.test("a prediction without a model, with a wrong body or an overflow has its status", async () => {
  await using trainer = await seeded(sumModel(3e38, 0));
  for (
    const [body, status, error] of [
      ["", 400, /invalid JSON/],
      ["[]", 400, /features must be a non-empty array of rows/],
      ['{"features":[]}', 400, /features must be a non-empty array of rows/],
      ['{"features":[[1,2]]}', 400, /features\[0\] must be an array of 3 numbers/],
      ['{"features":[[1,2,3],[1,null,3]]}', 400, /features\[1\]\[1\] is not a finite number/],
      ['{"features":[[1,2,1e39]]}', 400, /features\[0\]\[2\] is not a finite number/],
      ['{"features":[[1,2,3]],"features":[[1,2,3]]}', 400, /features occurs twice/],
      ['{"features":{"0":[1,2,3]}}', 400, /features must be a non-empty array of rows/],
      ['{"features":[[1,2,3],7,[1,2,[3]]]}', 400, /features\[1\] must be an array of 3 numbers/],
      ['{"features":[[1,2,[3]]]}', 400, /features\[0\]\[2\] is not a finite number/],
      ['{"features":[[1,2,3]]}}', 400, /invalid JSON/],
      ['{"features":[["1",2,3]]}', 400, /features\[0\]\[0\] is not a finite number/],
      ['{"features":[[9,9,9]]}', 500, /not finite/],
      [" ".repeat(MAX_BODY_BYTES + 1), 413, /the body exceeds 1048576 bytes/],
    ] as const
  ) {
    const answer = await predict(trainer.http, body);
    assert.equal(answer.status, status, body.slice(0, 50));
    assert.match((JSON.parse(answer.text) as { error: string }).error, error);
  }
  const stream = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(100_000)),
  });
  const endless = await fetch(`${trainer.http}/predict`, { method: "POST", body: stream }).catch(() => undefined);
  if (endless !== undefined) {
    assert.equal(endless.status, 413);
    await endless.body?.cancel();
  }
  await using empty = await TestService.start();
  const none = await predict(empty.http, '{"features":[[1,2,3]]}');
  assert.deepEqual([none.status, none.text], [503, '{"error":"there is no model yet"}\n']);
});

Deno.test("rows are checked before memory is taken for them", () => {
  const body = new TextEncoder().encode(`{"features":[${"[],".repeat(300_000)}[]]}`);
  assert.deepEqual(parsePredictRequest(body, 65_536), {
    kind: "invalid",
    error: "features[0] must be an array of 65536 numbers",
  });
});

Deno.test("a megabyte of rows is one answer with all their scores", async () => {
  await using trainer = await seeded();
  const count = 60_000;
  const rows = Array.from({ length: count }, (_, i) => `[${i % 7},0.5,1e-1]`);
  const answer = await predict(trainer.http, `{"features":[${rows.join()}],"other":{"features":[[]]}}`);
  const { scores } = JSON.parse(answer.text) as { scores: number[] };
  assert.deepEqual(
    scores,
    Array.from({ length: count }, (_, i) => Math.fround(2 * (i % 7 + 0.5 + Math.fround(0.1)) + 1)),
  );
});

Deno.test("a body that does not arrive is told so, not taken for a short one", async () => {
  const waiting = Promise.withResolvers<() => void>();
  const clock = {
    ...systemClock,
    after(delay: number, action: () => void) {
      if (delay === BODY_MS) waiting.resolve(action);
      return () => {};
    },
  };
  const nothing = () => {
    throw new Error("not reached");
  };
  const routes = { nFeatures: 3, status: nothing, metrics: nothing, page: nothing, started: nothing, ready: nothing };
  const server = new TrainingHttpServer(
    { hostname: "127.0.0.1", port: 0 },
    { ...routes, score: nothing, setPaused: nothing },
    clock,
    new TestLog(),
  );
  using client = await Deno.connect({ hostname: "127.0.0.1", port: server.port });
  const head = "POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100\r\n\r\n";
  await client.write(new TextEncoder().encode(`${head}{"features":[[1,2,3]]}`));
  (await waiting.promise)();
  const answer = new Uint8Array(1000);
  const text = new TextDecoder().decode(answer.subarray(0, await client.read(answer) ?? 0));
  assert.match(text, /^HTTP\/1.1 408 /);
  await server.close();
});

Deno.test("an address that is taken is named with its variable", async () => {
  const taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const address = `127.0.0.1:${taken.addr.port}`;
  await assert.rejects(TestService.start({ VMAFX_SIDECAR_HTTP_ADDR: address }), {
    code: "address_in_use",
    message: new RegExp(`^VMAFX_SIDECAR_HTTP_ADDR: cannot listen on ${address}: `),
  });
  taken.close();
});

Deno.test("the status is what the operator reads, under its limits, and equal while nothing happens", async () => {
  await using trainer = await TestService.start({ VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "2" });
  const read = async () => (await get(`${trainer.http}/status`)).text;
  assert.deepEqual(mapStatus(JSON.parse(await read())), {
    kind: "mapped",
    status: { phase: "Running", currentSamples: 0 },
  });
  assert.deepEqual(mapStatus({ phase: "constructor" }), {
    kind: "mapped",
    status: { phase: "Initializing", currentSamples: 0 },
  });
  using client = await LineClient.connect(trainer.socket);
  for (let i = 0; i < 3; i++) await client.ask({ features: [1, 2, 3], true_score: i });
  await trainer.service.settled();
  const [first, second] = [await read(), await read()];
  assert.equal(first, second);
  assert.ok(first.length < 2048);
  const mapped = mapStatus(JSON.parse(first));
  assert.ok(mapped.kind === "mapped");
  assert.match(mapped.status.lastCheckpoint ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  assert.deepEqual({ ...mapped.status, lastCheckpoint: "" }, {
    phase: "Running",
    currentSamples: 3,
    lastCheckpoint: "",
    modelVersion: "online.1",
  });
  const body = JSON.parse(first) as Record<string, unknown>;
  assert.deepEqual([
    body["pending_size"],
    body["step_count"],
    body["policy"],
    body["last_gate"],
    body["active_version"],
  ], [1, 1, "latest-stable", "skipped", ""]);
});

Deno.test("metadata that another program wrote cannot spoil what the operator reads", async () => {
  for (
    const odd of [
      { model_version: "v".repeat(5000) },
      { created_at: "2026-01-02T03:04:05.678Z" },
      { created_at: "yesterday" },
    ]
  ) {
    const folder = new TestFolder();
    const store = await openStore(folder.file("versions"));
    await store.publish({ params: sumModel(1, 0), step: 1, samplesTotal: 5, parent: null });
    const path = folder.file("versions/model_v000001.onnx.json");
    Deno.writeTextFileSync(path, JSON.stringify({ ...JSON.parse(Deno.readTextFileSync(path)) as object, ...odd }));
    await using trainer = await TestService.start({}, folder);
    const { text } = await get(`${trainer.http}/status`);
    assert.ok(text.length < 2048, `${text.length}`);
    const status = JSON.parse(text) as Record<string, string>;
    assert.equal(status["model_version"], "online.1");
    assert.match(status["last_checkpoint_time"] ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  }
});

Deno.test("samples, the newest version and the last verdict survive a restart", async () => {
  const folder = new TestFolder();
  const first = await TestService.start({ VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "2" }, folder);
  {
    using client = await LineClient.connect(first.socket);
    for (let i = 0; i < 5; i++) await client.ask({ features: [1, 2, 3], true_score: i });
  }
  await first.service.settled();
  const before = first.service.status();
  await first.stop();
  await using second = await TestService.start({}, folder);
  const after = second.service.status();
  assert.deepEqual([after.model_version, after.last_checkpoint_time, after.checkpoint_counter, after.last_gate], [
    before.model_version,
    before.last_checkpoint_time,
    2,
    "skipped",
  ]);
  assert.equal(after.current_samples, 4, "as of the newest version");
  assert.equal(after.step_count, 0);
});

Deno.test("pause and resume, but not from a page of another origin", async () => {
  await using trainer = await TestService.start();
  using client = await LineClient.connect(trainer.socket);
  const post = (path: string, headers: Record<string, string> = {}) =>
    get(`${trainer.http}${path}`, { method: "POST", headers });
  for (const origin of ["https://elsewhere.example", "null", "nonsense"]) {
    assert.equal((await post("/pause", { origin })).status, 403);
  }
  assert.equal(trainer.service.status().phase, "running");
  assert.equal((await post("/pause", { origin: trainer.http })).status, 200);
  assert.equal(trainer.service.status().phase, "paused");
  const sample = { features: [1, 2, 3], true_score: 1 };
  assert.deepEqual(await client.ask(sample), { ok: false, error: "training paused", retryable: true });
  assert.equal((await post("/resume")).status, 200);
  assert.equal((await client.ask(sample))?.["ok"], true);
});

Deno.test("an unwritable folder makes the trainer unready and failed, and it recovers", async () => {
  await using trainer = await TestService.start();
  const folder = trainer.service.settings.checkpointDir;
  Deno.removeSync(folder, { recursive: true });
  await trainer.service.poll();
  assert.equal((await get(`${trainer.http}/readyz`)).status, 503);
  assert.equal(trainer.service.status().phase, "failed");
  assert.equal((await get(`${trainer.http}/livez`)).status, 200);
  assert.ok(trainer.log.has("cannot be written"));
  Deno.mkdirSync(folder);
  await trainer.service.poll();
  assert.equal((await get(`${trainer.http}/readyz`)).status, 200);
  assert.equal(trainer.service.status().phase, "running");
});

Deno.test("a scrape after a scripted run shows every number", async () => {
  await using trainer = await TestService.start({
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "4",
    VMAFX_SIDECAR_REPLAY_CAPACITY: "3",
  });
  using client = await LineClient.connect(trainer.socket);
  for (let i = 0; i < 5; i++) await client.ask({ features: [1, 2, 3], true_score: i });
  await client.ask({ features: [1], true_score: 1 });
  trainer.service.setPaused(true);
  await client.ask({ features: [1, 2, 3], true_score: 1 });
  await trainer.service.settled();
  const { text, headers } = await get(`${trainer.http}/metrics`);
  assert.equal(headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const values = new Map<string, number>(), described = new Set<string>();
  for (const line of text.trimEnd().split("\n")) {
    const comment = /^# (?:HELP|TYPE) (\S+) \S/.exec(line);
    if (comment !== null) described.add(comment[1] ?? "");
    else {
      const [, name = "", value = ""] = /^(\S+(?:\{.*\})?) (\S+)$/.exec(line) ?? assert.fail(line);
      values.set(name, Number(value));
      const family = name.replace(/\{.*/, "").replace(
        /_(bucket|sum|count)$/,
        (end) => name.includes("duration") ? "" : end,
      );
      assert.match(family, /^vmafx_[a-z0-9_]+$/);
      assert.ok(described.has(family), `${family} has no HELP and TYPE`);
    }
  }
  const loss = values.get("vmafx_training_loss");
  assert.ok(loss !== undefined && loss > 0);
  for (
    const [name, value] of Object.entries({
      'vmafx_training_samples_total{outcome="admitted"}': 5,
      'vmafx_training_samples_total{outcome="rejected"}': 1,
      'vmafx_training_samples_total{outcome="backpressure"}': 1,
      'vmafx_training_steps_total{outcome="completed"}': 2,
      'vmafx_training_steps_total{outcome="failed"}': 0,
      vmafx_training_step_duration_seconds_count: 2,
      'vmafx_training_step_duration_seconds_bucket{le="+Inf"}': 2,
      vmafx_training_replay_evictions_total: 2,
      vmafx_training_replay_samples: 3,
      vmafx_training_pending_samples: 1,
      vmafx_training_active: 0,
      'vmafx_training_checkpoints_total{outcome="completed"}': 1,
      'vmafx_training_checkpoints_total{outcome="failed"}': 0,
      'vmafx_training_gate_total{result="skipped"}': 1,
      vmafx_model_checkpoint_version: 0,
      vmafx_model_rollbacks_total: 0,
    })
  ) assert.equal(values.get(name), value, name);
  assert.ok((values.get("vmafx_training_last_checkpoint_timestamp_seconds") ?? 0) > 1.7e9);
});

Deno.test("the page shows the curve and the versions, escapes text and runs no script", async () => {
  const folder = new TestFolder();
  const env = {
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "2",
    VMAFX_SIDECAR_SOCKET: testEnvironment(folder)["VMAFX_SIDECAR_SOCKET"] ?? "",
  };
  await using trainer = await TestService.start(env, folder);
  assert.match((await get(`${trainer.http}/`)).text, /No step yet/);
  using client = await LineClient.connect(trainer.socket);
  for (let i = 0; i < 20; i++) await client.ask({ features: [1, 2, 3], true_score: i });
  await trainer.service.settled();
  const metadata = folder.file("versions/model_v000001.onnx.json");
  Deno.writeTextFileSync(
    metadata,
    Deno.readTextFileSync(metadata).replace('"reason": "', '"reason": "<script>alert(1)</script>'),
  );
  const { text, headers } = await get(`${trainer.http}/`);
  assert.match(headers.get("content-security-policy") ?? "", /default-src 'none'/);
  assert.ok(!text.includes("<script"));
  assert.ok(text.includes("&lt;script&gt;alert(1)"));
  assert.match(text, /<svg id="loss"[^>]*>.*<path class="curve" d="M60\.0 [\d.]+L/s);
  assert.equal(text.match(/<td>online\.\d+/g)?.length, 10);
});

Deno.test("HTTP can be off", async () => {
  await using trainer = await TestService.start({ VMAFX_SIDECAR_HTTP_ADDR: "off" });
  assert.equal(trainer.service.httpPort, undefined);
  using client = await LineClient.connect(trainer.socket);
  assert.equal((await client.ask({ features: [1, 2, 3], true_score: 1 }))?.["ok"], true);
});
