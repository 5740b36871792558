/** The commands: settings, versions, feedback from a file, and the trainer as a process. */
import assert from "node:assert/strict";
import { type Clock, systemClock } from "../../src/runtime/clock.ts";
import { bindingPath } from "../../src/runtime/socket_node.ts";
import { runTrainingCommand } from "../../src/training/command.ts";
import type { CommandIo, TrainSignal } from "../../src/training/command_io.ts";
import { loadTrainSettings, TRAINING_SETTINGS } from "../../src/training/settings.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { accepts, freePort, ManagedProcess, TestFolder } from "../harness/process.ts";
import { LineClient, openStore, someParams, testEnvironment, TestService } from "./support.ts";

const MAIN = fromFileUrl(new URL("../../main.ts", import.meta.url));

/** A process to run a command in. */
class FakeIo implements CommandIo {
  readonly clock: Clock;
  readonly stdin: ReadableStream<Uint8Array>;
  out = "";
  err = "";
  readonly handlers = new Map<TrainSignal, () => void>();

  constructor(input = "", clock = systemClock) {
    this.clock = clock;
    this.stdin = new Blob([input]).stream();
  }
  stdout(text: string): void {
    this.out += text;
  }
  stderr(text: string): void {
    this.err += text;
  }
  randomSeed(): number {
    return 5;
  }
  onSignal(signal: TrainSignal, action: () => void): () => void {
    this.handlers.set(signal, action);
    return () => this.handlers.delete(signal);
  }
}

async function train(
  args: string[],
  environment: Record<string, string>,
  clock = systemClock,
): Promise<{ code: number; io: FakeIo }> {
  const io = new FakeIo("", clock);
  return { code: await runTrainingCommand({ program: "worker-sidecar", command: "train", args, environment }, io), io };
}

async function feedback(input: string, environment: Record<string, string>, args: string[] = []) {
  const io = new FakeIo(input);
  return {
    code: await runTrainingCommand({ program: "worker-sidecar", command: "feedback", args, environment }, io),
    io,
  };
}

Deno.test("settings: defaults, empty is unset, and each bad value names its variable and rule", () => {
  const defaults = loadTrainSettings({});
  assert.deepEqual(
    loadTrainSettings(Object.fromEntries(Object.values(TRAINING_SETTINGS).map(({ name }) => [name, ""]))),
    defaults,
  );
  assert.deepEqual([
    defaults.socket,
    defaults.checkpointDir,
    defaults.batchSize,
    defaults.learningRate,
    defaults.emaDecay,
    defaults.checkpointIntervalMs,
    defaults.minSamples,
    defaults.nFeatures,
    defaults.baseName,
    defaults.seed,
  ], ["/tmp/vmafx-sidecar.sock", "/mnt/vmafx-models/online", 32, 1e-4, 0.999, 600_000, 1000, 80, "online", undefined]);
  assert.deepEqual(defaults.http, { hostname: "0.0.0.0", port: 9091 });
  assert.deepEqual(loadTrainSettings({ VMAFX_SIDECAR_HTTP_ADDR: "[::1]:80" }).http, { hostname: "::1", port: 80 });
  assert.equal(loadTrainSettings({ VMAFX_SIDECAR_HTTP_ADDR: "off" }).http, undefined);
  assert.equal(loadTrainSettings({ VMAFX_BASE_MODEL_PATH: "/m/chug-hdr-v1.onnx" }).baseName, "chug-hdr-v1");
  assert.equal(loadTrainSettings({ VMAFX_SIDECAR_LR: " 1e-2 " }).learningRate, 0.01);
  for (
    const [name, value, rule] of [
      ["VMAFX_SIDECAR_BATCH_SIZE", "0", 'must be an integer, at least 1, got "0"'],
      ["VMAFX_SIDECAR_BATCH_SIZE", "1.5", 'must be an integer, at least 1, got "1.5"'],
      ["VMAFX_SIDECAR_REPLAY_MIX", "1", 'must be at least 0 and below 1, got "1"'],
      ["VMAFX_SIDECAR_REPLAY_MIX", "-0.1", "must be at least 0 and below 1"],
      ["VMAFX_SIDECAR_LR", "-1", 'must be at least 0, got "-1"'],
      ["VMAFX_SIDECAR_LR", "nan", 'must be at least 0, got "nan"'],
      ["VMAFX_SIDECAR_LR", "0x10", "must be at least 0"],
      ["VMAFX_SIDECAR_LR", "1e999", "must be at least 0"],
      ["VMAFX_SIDECAR_EMA_DECAY", "1.01", "must be 0 to 1"],
      ["VMAFX_SIDECAR_N_FEATURES", "65537", "must be an integer, 1 to 65536"],
      ["VMAFX_SIDECAR_PENDING_CAPACITY", "15", "pending_capacity must fit one batch's new-sample window (16)"],
      ["VMAFX_SIDECAR_SOCKET", `/${"x".repeat(107)}`, "must be at most 107 bytes"],
      ["VMAFX_SIDECAR_HTTP_ADDR", "9091", "must be `HOST:PORT`"],
      ["VMAFX_SIDECAR_HTTP_ADDR", ":65536", "must be `HOST:PORT`"],
      ["VMAFX_SIDECAR_VERSION_POLICY", "newest", "version policy must be latest, latest-stable or pinned:<version>"],
      ["VMAFX_SIDECAR_BASE_MODEL_NAME", "a/b", "must be letters, digits"],
      ["VMAFX_SIDECAR_SEED", "4294967296", "must be 0 to 4294967295"],
    ] as const
  ) {
    assert.throws(() => loadTrainSettings({ [name]: value }), (thrown: Error) => {
      assert.ok(thrown.message.startsWith(`${name}: `) && thrown.message.includes(rule), thrown.message);
      return true;
    });
  }
});

Deno.test("settings: a batch that would not fit the memory is refused", () => {
  assert.throws(
    () => loadTrainSettings({ VMAFX_SIDECAR_N_FEATURES: "65536", VMAFX_SIDECAR_BATCH_SIZE: "8192" }),
    /^TrainingError: VMAFX_SIDECAR_BATCH_SIZE: a batch may hold at most 268435456 numbers, 8192 rows of 65536 features/,
  );
  // Each row has 64 activations, a prediction and a target beside its features.
  const narrow = { VMAFX_SIDECAR_N_FEATURES: "1", VMAFX_SIDECAR_PENDING_CAPACITY: "268435456" };
  assert.throws(
    () => loadTrainSettings({ ...narrow, VMAFX_SIDECAR_BATCH_SIZE: "4006500" }),
    /^TrainingError: VMAFX_SIDECAR_BATCH_SIZE: .* 4006500 rows of 1 features take 268435500$/,
  );
  assert.equal(loadTrainSettings({ ...narrow, VMAFX_SIDECAR_BATCH_SIZE: "4006499" }).batchSize, 4_006_499);
});

Deno.test("settings: the table is complete, its defaults are valid and no name occurs twice", () => {
  const rows = Object.values(TRAINING_SETTINGS);
  assert.equal(new Set(rows.map((row) => row.name)).size, rows.length);
  for (const row of rows) {
    assert.match(row.name, /^VMAFX_[A-Z_]+$/);
    assert.ok(row.doc.length > 10 && row.range !== "" && row.secret === false);
    if (row.default !== "") {
      assert.deepEqual(loadTrainSettings({ [row.name]: row.default }), loadTrainSettings({}), row.name);
    }
  }
});

Deno.test("train: help, unknown arguments and unusable settings have their exit codes", async () => {
  const help = await train(["--help"], {});
  assert.equal(help.code, 0);
  for (const { name } of Object.values(TRAINING_SETTINGS)) assert.ok(help.io.out.includes(name));
  const wrong = await train(["fly"], {});
  assert.equal(wrong.code, 2);
  assert.match(wrong.io.err, /^Error: unknown subcommand or argument "fly"/);
  const bad = await train([], { VMAFX_SIDECAR_LR: "fast" });
  assert.deepEqual([bad.code, bad.io.err], [1, 'Error: VMAFX_SIDECAR_LR: must be at least 0, got "fast"\n']);
});

Deno.test("train: a permission that was not given is named with its setting before anything starts", async () => {
  using folder = new TestFolder();
  const env = { ...testEnvironment(folder), VMAFX_SIDECAR_CHECKPOINT_DIR: "/nowhere/models" };
  const { code, io } = await train([], env);
  assert.equal(code, 1);
  assert.equal(
    io.err,
    "Error: VMAFX_SIDECAR_CHECKPOINT_DIR needs /nowhere/models, which this program may not read: " +
      "--allow-read=/nowhere/models\n",
  );
  assert.deepEqual([...Deno.readDirSync(folder.path)], []);
});

Deno.test("versions, promote, pin, unpin and rollback work on the folder", async () => {
  using folder = new TestFolder();
  const env = testEnvironment(folder);
  const store = await openStore(folder.file("versions"));
  for (let i = 1; i <= 3; i++) {
    await store.publish({ params: someParams(i), step: i, samplesTotal: 100 * i, parent: null });
  }
  await store.mark(3, (metadata) => ({ ...metadata, state: "quarantined", reason: "digest_mismatch: x" }));
  const run = async (...args: string[]) => {
    const { code, io } = await train(args, env);
    return `${code} ${io.out}${io.err}`;
  };
  assert.match(await run("versions"), /^0 policy: latest-stable; \* is what it chooses\n/);
  assert.doesNotMatch(await run("versions"), /^\*/m);
  assert.equal(await run("promote", "1"), "0 model_v000001 is stable now\n");
  assert.equal(await run("promote", "online.2"), "0 model_v000002 is stable now\n");
  assert.match(await run("versions"), /^\* +online\.2 +stable /m);
  assert.equal(
    await run("promote", "3"),
    "1 Error: model_v000003 is quarantined (digest_mismatch: x); it must pass verification first\n",
  );
  assert.equal(await run("promote", "9"), `1 Error: there is no model_v000009 in ${folder.file("versions")}\n`);
  assert.equal(await run("rollback"), "0 model_v000002 is rolled_back now\n");
  assert.match(await run("versions"), /^\* +online\.1 +stable /m);
  assert.equal(await run("pin", "v000002"), "0 model_v000002 is pinned (rolled_back)\n");
  assert.match(await run("versions"), /^0 policy: pinned:2/);
  assert.equal(await run("unpin"), "0 policy latest-stable holds again\n");
  assert.equal(await run("rollback", "1"), "0 model_v000001 is rolled_back now\n");
  assert.equal(
    await run("rollback"),
    "1 Error: policy latest-stable chooses no version, so there is none to roll back\n",
  );
  assert.equal(await run("pin", "12"), `1 Error: there is no model_v000012 in ${folder.file("versions")}\n`);
  assert.equal(await run("pin"), "2 Error: pin takes one version\n");
  assert.equal(await run("versions", "x"), "2 Error: versions takes no argument\n");
  assert.match(await run("promote", "x"), /^1 Error: "x" is no version; write 42, v000042 or online\.42\n$/);
  assert.equal((await train(["versions"], { ...env, VMAFX_SIDECAR_CHECKPOINT_DIR: folder.file("absent") })).code, 1);
  assert.throws(() => Deno.lstatSync(folder.file("absent")), Deno.errors.NotFound);
});

Deno.test("status asks the running trainer", async () => {
  await using trainer = await TestService.start();
  const env = { ...testEnvironment(trainer.folder), VMAFX_SIDECAR_HTTP_ADDR: `127.0.0.1:${trainer.service.httpPort}` };
  const { code, io } = await train(["status"], env);
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(io.out.split("\n")[1] ?? ""), { phase: "Running", currentSamples: 0 });
  const dead = await train(["status"], { ...env, VMAFX_SIDECAR_HTTP_ADDR: `127.0.0.1:${freePort()}` });
  assert.equal(dead.code, 1);
});

Deno.test("status needs no more than the address that the trainer was given", async () => {
  const port = freePort();
  await using trainer = await TestService.start({ VMAFX_SIDECAR_HTTP_ADDR: `:${port}` });
  const env = { ...testEnvironment(trainer.folder), VMAFX_SIDECAR_HTTP_ADDR: `:${port}` };
  const flags = ["--quiet", "--no-prompt", "--allow-env", `--allow-net=0.0.0.0:${port}`];
  const command = [Deno.execPath(), "run", ...flags, MAIN, "train", "status"];
  await using process = ManagedProcess.start({ name: "status", command, env });
  assert.equal((await process.ended).code, 0, process.output());
});

Deno.test("status does not wait for ever, nor for more than the operator reads", async () => {
  using folder = new TestFolder();
  const silent = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const address = (port: number) => ({ ...testEnvironment(folder), VMAFX_SIDECAR_HTTP_ADDR: `127.0.0.1:${port}` });
  const hurried = { ...systemClock, after: (_: number, action: () => void) => systemClock.after(0, action) };
  const late = await train(["status"], address(silent.addr.port), hurried);
  assert.deepEqual([late.code, late.io.err], [
    1,
    `Error: http://127.0.0.1:${silent.addr.port}/status: no answer within 5000 ms\n`,
  ]);
  silent.close();
  const pull = (controller: ReadableStreamDefaultController) => controller.enqueue(new Uint8Array(1000));
  await using endless = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen() {} },
    () => new Response(new ReadableStream({ pull })),
  );
  const long = await train(["status"], address(endless.addr.port));
  assert.deepEqual([long.code, long.io.err], [
    1,
    `Error: http://127.0.0.1:${endless.addr.port}/status: the answer exceeds 4096 bytes\n`,
  ]);
});

Deno.test("what a file of the folder says cannot steer the operator's terminal", async () => {
  using folder = new TestFolder();
  const env = testEnvironment(folder);
  const store = await openStore(folder.file("versions"));
  await store.publish({ params: someParams(1), step: 0, samplesTotal: 0, parent: null });
  await store.mark(1, (metadata) => ({ ...metadata, reason: "\x1b[2Jall is well\n\u009b31m" }));
  const { io } = await train(["versions"], env);
  assert.match(io.out, /\\u\{1b\}\[2Jall is well\\u\{a\}\\u\{9b\}31m\n$/);
});

Deno.test("feedback: every line is delivered or accounted for", async () => {
  await using trainer = await TestService.start({ VMAFX_SIDECAR_BATCH_SIZE: "1000", VMAFX_SIDECAR_REPLAY_MIX: "0" });
  const env = testEnvironment(trainer.folder);
  const line = (i: number) => JSON.stringify({ job_id: `j${i}`, features: [1, 2, i], true_score: 50, codec: "av1" });
  // More than the queue holds, blank lines, and no line feed at the end.
  const many = Array.from({ length: 2500 }, (_, i) => line(i)).join("\n\n");
  const good = await feedback(many, env);
  assert.deepEqual([good.code, good.io.out], [
    0,
    "2500 lines: 2500 delivered, 0 rejected, 0 invalid, 0 not delivered\n",
  ]);
  assert.equal(trainer.service.status().total_pushed, 2500);
  const mixed = await feedback(
    [
      "{",
      line(1),
      '{"features":[1],"true_score":1}',
      '{"features":["1"],"true_score":1}',
      '{"features":[1,2,3]}',
      '{"features":[1,2,1e39],"true_score":1}',
      "[]",
    ].join("\n"),
    env,
  );
  assert.deepEqual([mixed.code, mixed.io.out], [1, "7 lines: 1 delivered, 1 rejected, 5 invalid, 0 not delivered\n"]);
  assert.match(mixed.io.err, /^line 1: not JSON/);
  assert.match(mixed.io.err, /^line 5: true_score is not a number$/m);
  assert.deepEqual([
    (await feedback("", env)).code,
    (await feedback("", env, ["--patience", "0"])).code,
    (await feedback("", env, ["x"])).code,
  ], [0, 2, 2]);
  assert.match((await feedback("", env, ["--help"])).io.out, /^Usage: worker-sidecar feedback/);
});

Deno.test("feedback: without a trainer it gives up and says what was not delivered", async () => {
  using folder = new TestFolder();
  const { code, io } = await feedback('{"features":[1],"true_score":1}\n', testEnvironment(folder), [
    "--patience",
    "0.05",
  ]);
  assert.deepEqual([code, io.out], [1, "1 lines: 0 delivered, 0 rejected, 0 invalid, 1 not delivered\n"]);
  assert.match(io.err, /giving up: no message was settled for 0\.05 s/);
});

Deno.test("feedback: a permission that was not given is named at once, not waited for", async () => {
  const input = '{"features":[1],"true_score":1}\n';
  const { code, io } = await feedback(input, { VMAFX_SIDECAR_SOCKET: "/nowhere/s.sock" });
  assert.equal(code, 1);
  assert.equal(
    io.err,
    "Error: VMAFX_SIDECAR_SOCKET needs /nowhere/s.sock, which this program may not read: --allow-read=/nowhere/s.sock\n",
  );
});

Deno.test("the trainer as a process: scoped permissions, signals, exit code 0, a restart after kill -9", async () => {
  using folder = new TestFolder();
  const port = freePort(), socket = folder.file("s.sock");
  const env = {
    ...testEnvironment(folder),
    VMAFX_SIDECAR_HTTP_ADDR: `127.0.0.1:${port}`,
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "2",
  };
  const command = [
    Deno.execPath(),
    "run",
    "--quiet",
    "--no-prompt",
    "--allow-env",
    // Newer runtimes check the umask, but their command line does not know its name.
    "--allow-sys",
    `--allow-read=${folder.path}`,
    `--allow-write=${folder.path}`,
    `--allow-net=${netPermissions(socket, port)}`,
    MAIN,
    "train",
  ];
  {
    await using first = ManagedProcess.start({ name: "train", command, env });
    await first.line("listening", (line) => line.includes(`vmafx-sidecar listening on ${socket}`));
    using client = await LineClient.connect(socket);
    for (let i = 0; i < 6; i++) assert.equal((await client.ask({ features: [1, 2, 3], true_score: i }))?.["ok"], true);
    first.signal("SIGUSR1");
    await first.line("paused", (line) => line.includes("training paused"));
    assert.equal((await client.ask({ features: [1, 2, 3], true_score: 1 }))?.["error"], "training paused");
    first.signal("SIGUSR2");
    await first.line("resumed", (line) => line.includes("training resumed"));
    first.signal("SIGKILL");
    await first.ended;
  }
  assert.ok(Deno.lstatSync(socket).isSocket, "left behind, stale");
  assert.equal(await accepts(socket), false);
  await using second = ManagedProcess.start({ name: "train again", command, env });
  await second.line("listening", (line) => line.includes("vmafx-sidecar listening on"));
  using client = await LineClient.connect(socket);
  for (let i = 0; i < 2; i++) {
    const answer = await client.ask({ features: [1, 2, 3], true_score: i });
    if (i === 1) assert.equal(answer?.["checkpoint"], folder.file("versions/model_v000004.onnx"), "numbers go on");
  }
  const status = await second.stop("SIGTERM");
  assert.equal(status.code, 0);
  assert.ok(second.output().includes("Received signal SIGTERM"));
  assert.ok(second.output().includes("vmafx-sidecar stopped"));
  assert.throws(() => Deno.lstatSync(socket), Deno.errors.NotFound);
});

/** Newer runtimes want the sockets named; older ones do not know the spelling. */
function netPermissions(socket: string, port: number): string {
  const [major = 0, minor = 0] = Deno.version.deno.split(".").map(Number);
  const sockets = major > 2 || minor >= 9 ? [`unix:${socket}`, `unix:${bindingPath(socket)}`] : [];
  return [`127.0.0.1:${port}`, ...sockets].join(",");
}
