/** What becomes of values in the environment: fallbacks, clamps, warnings, origins, unknown names. */
import assert from "node:assert/strict";
import { closestName, unknownVariables } from "../../src/settings/suggest.ts";
import { load, refusalOf, settingsOf } from "./loading.ts";

Deno.test("an unusable variable without a flag gives way to its default, and a warning says so", async (t) => {
  const rows: [string, string, RegExp][] = [
    ["SIE_NATS_FETCH_BUDGET", "0", /^SIE_NATS_FETCH_BUDGET: "0": 0 is below 1; using 64$/],
    ["SIE_NATS_PULL_EXPIRES_S", "30", /30 is above 29; using 5$/],
    ["SIE_NAK_DELAY_S", "nan", /NaN is not finite; using 5$/],
    ["SIE_NAK_DELAY_S", "0", /0 is not above 0; using 5$/],
    ["SIE_BATCHER_COALESCE_MS", "soon", /"soon": invalid float literal; using 5$/],
    ["SIE_ADAPTIVE_BATCH_MAX_COST", "-3", /invalid digit found in string; using four times the model's budget$/],
    ["SIE_WORK_DEADLINE_ENFORCE", "maybe", /"maybe": unknown word; using off$/],
    ["SIE_STREAM_STORAGE", "tape", /expected one of `memory`, `file`, `disk`; using memory$/],
  ];
  for (const [name, text, expected] of rows) {
    await t.step(`${name}=${text}`, () => {
      const settings = settingsOf({ [name]: text });
      assert.equal(settings.warnings.length, 1);
      assert.match(settings.warnings[0] ?? "", expected);
      assert.equal(settings.origins.get(name), undefined);
    });
  }
});

Deno.test("a value outside a clamp becomes the nearer end, and a warning says so", () => {
  const settings = settingsOf({ SIE_RUST_PIPELINE_DEPTH: "0", SIE_WORK_DEADLINE_SKEW_TOLERANCE_MS: "90000" });
  assert.equal(settings.scheduler.pipelineDepth, 1);
  assert.equal(settings.deadlines.skewToleranceMs, 60_000);
  assert.ok(settings.warnings.includes("SIE_RUST_PIPELINE_DEPTH: 0 is below 1; using 1"));
});

Deno.test("each value knows where it came from", () => {
  const settings = settingsOf({ SIE_GPU_COUNT: "2", SIE_WORKER_PROBE_PORT: "1" }, ["--probe-port", "2"]);
  assert.deepEqual(settings.origins.get("SIE_GPU_COUNT"), { kind: "environment", name: "SIE_GPU_COUNT" });
  assert.deepEqual(settings.origins.get("SIE_WORKER_PROBE_PORT"), { kind: "flag", flag: "--probe-port" });
  assert.equal(settings.origins.get("SIE_IPC_POOL_SIZE"), undefined);
  assert.equal(settings.probes.port, 2);
});

Deno.test("switches take exactly their words", () => {
  const cadence = (text: string) => settingsOf({ SIE_RUST_WAVE_CADENCE: text }).scheduler.waveCadence;
  assert.deepEqual(["0", "OFF", " disabled ", "no", "", "2"].map(cadence), [false, false, false, false, true, true]);
  const mux = (text: string) => settingsOf({ SIE_IPC_MUX: text }).ipc.mux;
  assert.deepEqual(["1", "true", "TRUE", "on", "ON", "True", " 1", "yes", ""].map(mux), [
    ...[true, true, true, true, true],
    ...[false, false, false, false],
  ]);
});

Deno.test("integers that no double holds mean the greatest one that it does", () => {
  const settings = settingsOf({ SIE_IPC_REQUEST_TIMEOUT_S: "18446744073709551615" });
  assert.equal(settings.ipc.requestTimeoutMs, Number.MAX_SAFE_INTEGER);
});

Deno.test("a variable of our own that cannot be used stops the start", () => {
  assert.deepEqual(refusalOf({ SIE_COMPAT: "old" }), [1, 'Error: SIE_COMPAT: expected one of `reference`, got "old"']);
  assert.deepEqual(refusalOf({ SIE_DEBUG_ADDR: "9096" }), [
    1,
    'Error: SIE_DEBUG_ADDR: expected `host:port` or `off`, got "9096"',
  ]);
  assert.deepEqual(refusalOf({ SIE_DEBUG_ADDR: "127.0.0.1:70000" })[0], 1);
  assert.match(refusalOf({ SIE_BYTE_BUDGET: "5" })[1], /5 is below 67108864, got "5"$/);
  assert.match(refusalOf({ SIE_LOG_FORMAT: "constructor" })[1], /expected one of `auto`, `json`, `text`/);
  const versions = { SIE_BATCH_TIME_VERSIONS_DIR: "/v" };
  for (const policy of ["", "newest", "pinned:", "pinned:-1", "pinned:1 2"]) {
    assert.match(
      refusalOf({ ...versions, SIE_BATCH_TIME_POLICY: policy })[1],
      /SIE_BATCH_TIME_POLICY: expected `latest`/,
    );
  }
  for (const maxMs of ["0", "-1", "nan", "inf", "soon"]) {
    assert.match(refusalOf({ ...versions, SIE_BATCH_TIME_MAX_MS: maxMs })[1], /^Error: SIE_BATCH_TIME_MAX_MS: /);
  }
  assert.match(
    refusalOf({ SIE_BATCH_TIME_MAX_MS: "20" })[1],
    /SIE_BATCH_TIME_MAX_MS needs SIE_BATCH_TIME_VERSIONS_DIR/,
  );
});

Deno.test("the debug address", () => {
  const address = (text: string) => settingsOf({ SIE_DEBUG_ADDR: text }).debug.address;
  assert.deepEqual(address("[::1]:80"), { hostname: "::1", port: 80 });
  assert.deepEqual(address("localhost:0"), { hostname: "localhost", port: 0 });
  assert.equal(address(" OFF "), undefined);
  assert.deepEqual(settingsOf().debug.address, { hostname: "127.0.0.1", port: 9096 });
});

Deno.test("what the environment inherits from its prototype is no variable", () => {
  const environment = Object.assign(Object.create({ SIE_POOL: "inherited" }), { SIE_BUNDLE: "b" });
  const loaded = load(environment);
  assert.ok(loaded.kind === "text");
  assert.match(loaded.stderr, /--pool <POOL>/);
});

Deno.test("unknown SIE variables are named with the closest known one, and without their value", () => {
  assert.deepEqual(
    unknownVariables({ SIE_NATS_URLS: "nats://u:s3cret@h", SIE_SOMETHING_ELSE_ENTIRELY: "s3cret", PATH: "/bin" }),
    [
      "SIE_NATS_URLS is not a known variable and is ignored; did you mean SIE_NATS_URL?",
      "SIE_SOMETHING_ELSE_ENTIRELY is not a known variable and is ignored",
    ],
  );
  assert.equal(closestName("SIE_WROKER_ID"), "SIE_WORKER_ID");
  assert.equal(closestName("X".repeat(10_000)), undefined);
  assert.deepEqual(settingsOf({ SIE_POLL: "1" }).warnings, [
    "SIE_POLL is not a known variable and is ignored; did you mean SIE_POOL?",
  ]);
});

Deno.test("variables of the pod's other processes and of the orchestrator's service links are none of our business", () => {
  assert.deepEqual(
    unknownVariables({
      SIE_MAX_ITEM_TEXT_BYTES: "1",
      SIE_OTEL_LANE: "a|b|c",
      SIE_OSS_REGION: "x",
      SIE_GATEWAY_PORT: "tcp://10.0.0.1:8080",
      SIE_GATEWAY_PORT_8080_TCP: "tcp://10.0.0.1:8080",
      SIE_GATEWAY_PORT_8080_TCP_ADDR: "10.0.0.1",
      SIE_GATEWAY_SERVICE_HOST: "10.0.0.1",
      SIE_GATEWAY_SERVICE_PORT: "8080",
      SIE_GATEWAY_SERVICE_PORT_HTTP: "8080",
    }),
    [],
  );
});

Deno.test("a variable whose part is not built yet is named", () => {
  assert.deepEqual(settingsOf({ SIE_METRICS_ENABLED: "1" }).warnings, [
    "SIE_METRICS_ENABLED is set, but this version does not use it yet",
  ]);
});

Deno.test("variables that are handed on reach their part as they are", () => {
  const settings = settingsOf({ OTEL_SERVICE_NAME: " x ", AWS_REGION: "eu", SIE_OSS_REGION: "cn", OTHER: "1" });
  assert.deepEqual(settings.telemetry.variables, { OTEL_SERVICE_NAME: " x " });
  assert.deepEqual(settings.payload.variables, { AWS_REGION: "eu", SIE_OSS_REGION: "cn" });
});
