/** The feedback socket as a client sees it, on a whole service. */
import assert from "node:assert/strict";
import { claimSocket } from "../../src/training/socket_claim.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { FeedbackServer } from "../../src/training/feedback_server.ts";
import { TrainingMetrics } from "../../src/training/metrics.ts";
import { TrainService } from "../../src/training/service.ts";
import { loadTrainSettings } from "../../src/training/settings.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { LineClient, testEnvironment, TestLog, TestService } from "./support.ts";

function sample(score = 50, more: Record<string, unknown> = {}) {
  return { features: [1, 2, 3], true_score: score, ...more };
}

Deno.test("answers have exactly their keys, from admission to a checkpoint", async () => {
  await using trainer = await TestService.start({ VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "3" });
  using client = await LineClient.connect(trainer.socket);
  assert.deepEqual(await client.ask(sample(50, { job_id: "a", codec: "x264" })), {
    ok: true,
    step: 0,
    trained: false,
    job_id: "a",
  });
  const trained = await client.ask(sample());
  assert.deepEqual({ ...trained, loss: 0 }, {
    ok: true,
    step: 1,
    trained: true,
    loss: 0,
    checkpoint: null,
    job_id: "",
  });
  assert.equal(typeof trained?.["loss"], "number");
  await client.ask(sample());
  const exported = await client.ask(sample());
  const path = trainer.folder.file("versions/model_v000001.onnx");
  assert.equal(exported?.["checkpoint"], path);
  assert.match(Deno.readTextFileSync(`${path}.sha256`), /^[0-9a-f]{64}\n$/);
  assert.deepEqual(await client.ask({ features: [1], true_score: 1, job_id: "b" }), {
    ok: false,
    error: "feature vector length 1 != expected 3",
  });
});

Deno.test("integers are plain digits on the wire", async () => {
  await using trainer = await TestService.start();
  using client = await LineClient.connect(trainer.socket);
  await client.write(`${JSON.stringify(sample())}\n`);
  const bytes = new Uint8Array(1000);
  const text = new TextDecoder().decode(bytes.subarray(0, await client.connection.read(bytes) ?? 0));
  assert.equal(text, '{"ok":true,"step":0,"trained":false,"job_id":""}\n');
});

Deno.test("pipelined lines, blank lines and torn lines: answer n belongs to request n", async () => {
  await using trainer = await TestService.start();
  using client = await LineClient.connect(trainer.socket);
  const lines = Array.from(
    { length: 500 },
    (_, i) =>
      i % 5 === 4
        ? "nonsense"
        : i % 7 === 6
        ? `{"job_id":${i},"features":[1],"true_score":1}`
        : JSON.stringify(sample(i, { job_id: i })),
  );
  const bytes = new TextEncoder().encode(
    lines.map((line, i) => `${line}${i % 3 === 0 ? "\r" : ""}\n${i % 11 === 0 ? " \t\r\n\n" : ""}`).join(""),
  );
  const writing = (async () => {
    for (let at = 0; at < bytes.length; at += 777) await client.write(bytes.subarray(at, at + 777));
  })();
  for (let i = 0; i < lines.length; i++) {
    const answer = await client.answer();
    if (i % 5 === 4) assert.match(`${answer?.["error"]}`, /^invalid JSON/);
    else if (i % 7 === 6) assert.equal(answer?.["error"], "feature vector length 1 != expected 3");
    else assert.equal(answer?.["job_id"], i);
  }
  await writing;
  const admitted = lines.filter((line) => line.includes("[1,2,3]")).length;
  assert.equal(trainer.service.status().total_pushed, admitted);
});

Deno.test("after the client's half close complete lines are answered, an unfinished one is not", async () => {
  await using trainer = await TestService.start();
  using client = await LineClient.connect(trainer.socket);
  await client.write(`${JSON.stringify(sample())}\n${JSON.stringify(sample())}`);
  await client.connection.closeWrite();
  assert.equal((await client.answer())?.["ok"], true);
  assert.equal(await client.answer(), null);
  assert.equal(trainer.service.status().total_pushed, 1);
});

Deno.test("a line beyond the limit is refused and the connection closed, whether or not it ends", async () => {
  await using trainer = await TestService.start({ VMAFX_SIDECAR_MAX_LINE_BYTES: "2000" });
  for (const end of ["", "\n"]) {
    using client = await LineClient.connect(trainer.socket);
    await client.write(`${JSON.stringify(sample())}\n${"x".repeat(2001)}${end}`);
    assert.equal((await client.answer())?.["ok"], true);
    assert.deepEqual(await client.answer(), { ok: false, error: "request line exceeds 2000 bytes" });
    assert.equal(await client.answer().catch(() => null), null);
  }
  using client = await LineClient.connect(trainer.socket);
  const line = JSON.stringify(sample());
  await client.write(`${line}${" ".repeat(2000 - line.length)}\n`);
  assert.equal((await client.answer())?.["ok"], true);
});

Deno.test("a client that does not read its answers holds up nobody else", async () => {
  await using trainer = await TestService.start();
  using deaf = await LineClient.connect(trainer.socket);
  const line = `${JSON.stringify(sample(1, { job_id: "x".repeat(500) }))}\n`;
  let written = 0;
  // More than the buffers of both directions hold: it stops when the server stops reading.
  const flood = (async () => {
    for (; written < 200; written++) await deaf.write(line.repeat(100));
  })();
  using client = await LineClient.connect(trainer.socket);
  let still = 0;
  for (let before = -1; still < 50; still = written === before ? still + 1 : 0) {
    before = written;
    assert.equal((await client.ask(sample()))?.["ok"], true);
  }
  assert.ok(written < 200, "the flood is held up, the other client was answered all the time");
  for (let answers = 0; answers < 20_000; answers++) assert.equal((await deaf.answer())?.["ok"], true);
  await flood;
});

Deno.test("a client that goes away before its answer leaves its sample admitted and the server whole", async () => {
  await using trainer = await TestService.start();
  for (let i = 0; i < 20; i++) {
    using client = await LineClient.connect(trainer.socket);
    await client.write(`${JSON.stringify(sample())}\n`);
  }
  await eventually("all samples are admitted", () => trainer.service.status().total_pushed === 20);
  using client = await LineClient.connect(trainer.socket);
  assert.equal((await client.ask(sample()))?.["ok"], true);
  assert.deepEqual(trainer.log.lines.filter((line) => line.startsWith("ERROR")), []);
});

Deno.test("many connections at once lose nothing", async () => {
  await using trainer = await TestService.start();
  await Promise.all(Array.from({ length: 40 }, async () => {
    using client = await LineClient.connect(trainer.socket);
    for (let i = 0; i < 25; i++) assert.equal((await client.ask(sample(i)))?.["ok"], true);
  }));
  const status = trainer.service.status();
  assert.equal(status.total_pushed, 1000);
  assert.equal(2 * status.step_count + status.pending_size, 1000);
});

Deno.test("accepting that fails again and again is told once", async () => {
  const log = new TestLog(), tried = Promise.withResolvers<void>(), closed = Promise.withResolvers<Deno.UnixConn>();
  let attempts = 0;
  const accept = () => {
    if (++attempts <= 20) return Promise.reject(new Error("Too many open files"));
    tried.resolve();
    return closed.promise;
  };
  const server = new FeedbackServer({
    socket: {
      listener: { accept } as unknown as Deno.UnixListener,
      close: () => Promise.resolve(closed.reject(new Error("closed"))),
    },
    ingest: () => ({ kind: "admitted", step: 0 }),
    nFeatures: 3,
    maxLineBytes: 1000,
    clock: { ...systemClock, after: (_, action) => systemClock.after(0, action) },
    log,
    metrics: new TrainingMetrics(),
  });
  await tried.promise;
  await server.close();
  assert.deepEqual(log.lines, ["ERROR accepting a connection failed: Too many open files"]);
});

Deno.test("the stop ends idle clients, refuses new ones, frees the path and the claim", async () => {
  await using trainer = await TestService.start();
  const clients = await Promise.all([1, 2, 3].map(() => LineClient.connect(trainer.socket)));
  assert.equal((await clients[0]?.ask(sample()))?.["ok"], true);
  await trainer.stop();
  for (const client of clients) {
    assert.equal(await client.answer().catch(() => null), null);
    client.close();
  }
  await assert.rejects(LineClient.connect(trainer.socket), Deno.errors.NotFound);
  (await claimSocket(trainer.socket, systemClock)).close();
  assert.equal(trainer.log.lines.at(-1), "INFO vmafx-sidecar stopped");
});

Deno.test("a second trainer on the endpoint fails without disturbing the first", async () => {
  await using trainer = await TestService.start();
  const settings = loadTrainSettings(testEnvironment(trainer.folder));
  await assert.rejects(TrainService.start(settings, { clock: systemClock, log: new TestLog(), randomSeed: 1 }), {
    message: `socket endpoint is already claimed: ${trainer.socket}`,
  });
  using client = await LineClient.connect(trainer.socket);
  assert.equal((await client.ask(sample()))?.["ok"], true);
});

Deno.test("a start that fails gives back what it took", async () => {
  using folder = new TestFolder();
  const env = testEnvironment(folder);
  const start = (more: Record<string, string>) =>
    TrainService.start(loadTrainSettings({ ...env, ...more }), {
      clock: systemClock,
      log: new TestLog(),
      randomSeed: 1,
    });
  Deno.writeTextFileSync(folder.file("file"), "");
  await assert.rejects(start({ VMAFX_SIDECAR_CHECKPOINT_DIR: folder.file("file") }));
  await assert.rejects(start({ VMAFX_SIDECAR_GATE_FIXTURES: folder.file("absent.json") }), {
    code: "invalid_fixtures",
  });
  Deno.writeTextFileSync(folder.file("s.sock"), "in the way");
  await assert.rejects(start({}), { code: "path_exists" });
  Deno.removeSync(folder.file("s.sock"));
  await (await start({})).stop();
});

Deno.test("non-finite values are answered and nothing of them enters", async () => {
  await using trainer = await TestService.start();
  using client = await LineClient.connect(trainer.socket);
  for (const text of ["1e39", "-1e999", "9".repeat(400)]) {
    await client.write(`{"features":[1,${text},3],"true_score":1}\n{"features":[1,2,3],"true_score":${text}}\n`);
    assert.deepEqual(await client.answer(), { ok: false, error: "features[1] is not a finite number" });
    assert.deepEqual(await client.answer(), { ok: false, error: "true_score is not a finite number" });
  }
  assert.equal(trainer.service.status().total_pushed, 0);
});
