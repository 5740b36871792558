/** Rules between values, derived values, and what the reference switch changes. */
import assert from "node:assert/strict";
import { refusalOf, settingsOf } from "./loading.ts";

Deno.test("rules are checked in their order, the first failing one is told", () => {
  const everything = {
    SIE_SIDECAR_INGEST: "both",
    SIE_POOL: "",
    SIE_BUNDLE: "a.b",
    SIE_MACHINE_PROFILE: "",
    SIE_WORKER_LIVENESS_BUDGET_S: "0",
    SIE_IPC_SOCKET_PATHS: "/a,/a",
    SIE_NATS_USER: "u",
    SIE_WORKER_PING_INTERVAL_MS: "0",
    SIE_HEALTH_PUBLISH_INTERVAL_MS: "0",
    SIE_BATCHER_MAX_BATCH_REQUESTS: "0",
  };
  const repairs: [string, string, RegExp][] = [
    ["SIE_SIDECAR_INGEST", "nats", /^Error: SIE_SIDECAR_INGEST must be 'nats' or 'local', got "both"$/],
    ["SIE_POOL", "p", /^Error: SIE_POOL must not be empty$/],
    ["SIE_BUNDLE", "b", /^Error: SIE_BUNDLE must not contain/],
    ["SIE_MACHINE_PROFILE", "m", /^Error: SIE_MACHINE_PROFILE must not be empty$/],
    ["SIE_WORKER_LIVENESS_BUDGET_S", "1000", /^Error: SIE_WORKER_LIVENESS_BUDGET_S must be positive when set$/],
    ["SIE_IPC_SOCKET_PATHS", "/a,/b", /^Error: SIE_IPC_SOCKET_PATHS must not contain duplicate path '\/a'$/],
    ["SIE_NATS_USER", "", /^Error: SIE_NATS_USER and SIE_NATS_PASSWORD must be set together$/],
    ["SIE_WORKER_PING_INTERVAL_MS", "1", /^Error: SIE_WORKER_PING_INTERVAL_MS must be positive$/],
    ["SIE_HEALTH_PUBLISH_INTERVAL_MS", "1", /^Error: SIE_HEALTH_PUBLISH_INTERVAL_MS must be positive$/],
    ["SIE_BATCHER_MAX_BATCH_REQUESTS", "1", /^Error: SIE_BATCHER_MAX_BATCH_REQUESTS must be at least 1, got 0$/],
  ];
  const environment: Record<string, string> = { ...everything };
  for (const [name, repaired, complaint] of repairs) {
    const [exitCode, line] = refusalOf(environment);
    assert.equal(exitCode, 1);
    assert.match(line, complaint);
    environment[name] = repaired;
  }
  settingsOf(environment);
});

Deno.test("lane segments are trimmed of Unicode white space and may not hold any", () => {
  assert.equal(settingsOf({ SIE_POOL: "\u0085 x\u3000" }).lane.pool, "x");
  assert.match(refusalOf({ SIE_POOL: "a\u0085b" })[1], /must not contain/);
  assert.equal(settingsOf({ SIE_POOL: "a\ufeffb" }).lane.pool, "a\ufeffb");
});

Deno.test("worker identity", () => {
  const id = (more: Record<string, string>) => settingsOf(more).lane.workerId;
  assert.equal(id({ SIE_WORKER_ID: "w.1", HOSTNAME: "h" }), "w.1");
  assert.equal(id({ SIE_WORKER_ID: "", HOSTNAME: "h" }), "h");
  assert.equal(id({ HOSTNAME: "" }), "worker-generated");
  assert.equal(id({ SIE_WORKER_ID: "", HOSTNAME: "h", SIE_COMPAT: "reference" }), "");
  for (const bad of ["a b", "a\r\nPUB x 0", "a*", ">", ".a", "a.", "a..b", "\u0000"]) {
    assert.match(refusalOf({ SIE_WORKER_ID: bad })[1], /^Error: SIE_WORKER_ID must be a subject token/);
    assert.match(refusalOf({ HOSTNAME: bad })[1], /^Error: HOSTNAME must be a subject token/);
  }
});

Deno.test("backend sockets", () => {
  const paths = (more: Record<string, string>) => settingsOf(more).ipc.socketPaths;
  assert.deepEqual(paths({}), ["/tmp/sie-ipc.sock"]);
  assert.deepEqual(paths({ SIE_IPC_SOCKET_PATH: "/a", SIE_IPC_SOCKET_PATHS: " , " }), ["/a"]);
  assert.deepEqual(paths({ SIE_IPC_SOCKET_PATH: "/a", SIE_IPC_SOCKET_PATHS: "/b, /c" }), ["/b", "/c"]);
  assert.deepEqual(refusalOf({ SIE_IPC_SOCKET_PATH: " " }), [1, "Error: SIE_IPC_SOCKET_PATH must not be empty"]);
  assert.equal(settingsOf({ SIE_MAX_CONCURRENT_BATCHES: "7" }).ipc.poolSize, 7);
  assert.equal(settingsOf({ SIE_MAX_CONCURRENT_BATCHES: "7", SIE_IPC_POOL_SIZE: "3" }).ipc.poolSize, 3);
});

Deno.test("pull limits follow from one another", () => {
  const { pull } = settingsOf({ SIE_NATS_FETCH_BUDGET: "8", SIE_MAX_CONCURRENT_BATCHES: "9" });
  assert.deepEqual([pull.inflight, pull.maxOutstanding], [9, 9]);
  const quantum = settingsOf({ SIE_ADAPTIVE_MIN_QUANTUM_MS: "20", SIE_ADAPTIVE_MAX_QUANTUM_MS: "3" }).pull;
  assert.deepEqual([quantum.quantumMinMs, quantum.quantumMaxMs], [20, 20]);
  assert.equal(settingsOf({ SIE_ADAPTIVE_MIN_QUANTUM_MS: "20" }).pull.quantumMaxMs, 20);
});

Deno.test("a deadline budget is bounded by the life of the stream", () => {
  const deadlines = (more: Record<string, string>) => settingsOf(more).deadlines;
  assert.equal(deadlines({}).tombstoneTtlMs, 1_800_000);
  const short = { SIE_STREAM_MAX_AGE_S: "10", SIE_MAX_DELIVER: "2" };
  assert.equal(deadlines(short).maxBudgetMs, 60_000);
  assert.equal(
    deadlines({ SIE_WORK_DEADLINE_MAX_BUDGET_S: "100000", SIE_STREAM_MAX_AGE_S: "99999999" }).maxBudgetMs,
    86_400_000,
  );
  assert.equal(deadlines({ SIE_STREAM_MAX_AGE_S: "99999999" }).tombstoneTtlMs, 30 * 86_400_000);
});

Deno.test("a cost cap that was set is pinned, also when it is the default", () => {
  assert.equal(settingsOf().batcher.costPinned, false);
  assert.equal(settingsOf({ SIE_BATCHER_MAX_BATCH_COST: "16384" }).batcher.costPinned, true);
  assert.equal(settingsOf({ SIE_BATCHER_MAX_BATCH_COST: "x" }).batcher.costPinned, false);
});

Deno.test("batch limits that no batch could meet are refused, and taken as given in reference mode", () => {
  const rows: [string, string][] = [
    ["SIE_BATCHER_MAX_BATCH_COST", "0"],
    ["SIE_BATCHER_MAX_BATCH_REQUESTS", "0"],
    ["SIE_BATCHER_MAX_BATCH_WAIT_MS", "-1"],
    ["SIE_BATCHER_COALESCE_MS", "-0.5"],
    ["SIE_BATCHER_COALESCE_RATIO", "-2"],
  ];
  for (const [name, text] of rows) {
    assert.match(refusalOf({ [name]: text })[1], new RegExp(`^Error: ${name} must be at least [01], got ${text}$`));
    const { batcher } = settingsOf({ [name]: text, SIE_COMPAT: "reference" });
    assert.ok(Object.values(batcher).includes(Number(text)));
  }
});

Deno.test("one way to prove who we are to the broker", () => {
  const both = { SIE_NATS_USER: "u", SIE_NATS_PASSWORD: "p", SIE_NATS_CREDS_FILE: "/c" };
  assert.deepEqual(refusalOf(both), [1, "Error: SIE_NATS_USER and SIE_NATS_CREDS_FILE must not be set together"]);
  assert.equal(refusalOf({ SIE_NATS_CREDS_FILE: "/c", SIE_NATS_NKEY_FILE: "/n" })[0], 1);
  assert.deepEqual(refusalOf({ SIE_NATS_TLS_KEY: "/k" }), [
    1,
    "Error: SIE_NATS_TLS_CERT and SIE_NATS_TLS_KEY must be set together",
  ]);
  const { security } = settingsOf({
    SIE_NATS_TLS_CERT: "/cert",
    SIE_NATS_TLS_KEY: "/key",
    SIE_NATS_TLS_CA: "/ca",
    SIE_NATS_CREDS_FILE: "/c",
  }).nats;
  assert.deepEqual(security, {
    userPassword: undefined,
    credsFile: "/c",
    nkeyFile: undefined,
    tlsCaFile: "/ca",
    tlsClient: { certFile: "/cert", keyFile: "/key" },
  });
});

Deno.test("the config token", () => {
  const config = (more: Record<string, string>) => settingsOf({ SIE_CONFIG_SERVICE_URL: "http://c", ...more });
  const old = config({ SIE_ADMIN_TOKEN: "a" });
  assert.equal(old.config.authorization, "Bearer a");
  assert.ok(old.warnings.some((warning) => warning.includes("SIE_ADMIN_TOKEN is deprecated")));
  const blank = config({ SIE_ADMIN_TOKEN: "a", SIE_CONFIG_SERVICE_TOKEN: "" });
  assert.equal(blank.config.authorization, undefined);
  assert.ok(!blank.warnings.some((warning) => warning.includes("deprecated")));
  assert.equal(config({ SIE_NATS_CONFIG_TRUSTED_PRODUCERS: " , " }).config.trustedProducers.join(), "sie-config");
});

Deno.test("settings cannot be changed", () => {
  const settings = settingsOf();
  assert.throws(() => Object.assign(settings.lane, { pool: "x" }), TypeError);
  assert.throws(() => Object.assign(settings.ipc.socketPaths, { 0: "x" }), TypeError);
});
