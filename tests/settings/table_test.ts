/** Properties of the whole table: every variable is wired, documented and safe to print. */
import assert from "node:assert/strict";
import { checkReport } from "../../src/settings/check.ts";
import { helpText } from "../../src/settings/help.ts";
import { variables } from "../../src/settings/table.ts";
import { LEAST, load, settingsOf } from "./loading.ts";

/** A usable text that differs from the default, where the type alone does not give one. */
const SAMPLES: Readonly<Record<string, readonly [text: string, more?: Record<string, string>]>> = {
  SIE_SIDECAR_INGEST: ["local", { SIE_SIDECAR_LOCAL_SOCKET: "/in.sock" }],
  SIE_SIDECAR_LOCAL_SOCKET: ["/in.sock", { SIE_SIDECAR_INGEST: "local" }],
  SIE_NATS_USER: ["user", { SIE_NATS_PASSWORD: "p" }],
  SIE_NATS_PASSWORD: ["password", { SIE_NATS_USER: "u" }],
  SIE_NATS_TLS_CERT: ["/cert", { SIE_NATS_TLS_KEY: "/key" }],
  SIE_NATS_TLS_KEY: ["/key", { SIE_NATS_TLS_CERT: "/cert" }],
  SIE_WORKER_LIVENESS_BUDGET_S: ["2000"],
  SIE_WORKER_CONFIG_POLL_INTERVAL_MS: ["7777"],
  SIE_NATS_CONSUMER_RECONCILE_INTERVAL_MS: ["77777"],
  SIE_STREAM_STORAGE: ["file"],
  SIE_ADAPTIVE_MAX_QUANTUM_MS: ["77"],
  SIE_BYTE_BUDGET: ["77777777"],
  SIE_BATCH_TIME_POLICY: ["pinned:v000042"],
  SIE_BATCH_TIME_MAX_MS: ["7.5", { SIE_BATCH_TIME_VERSIONS_DIR: "/versions" }],
  SIE_COMPAT: ["reference"],
  SIE_LOG_FORMAT: ["json"],
  SIE_DEBUG_ADDR: ["localhost:77"],
  SIE_WORK_DEADLINE_ENFORCE: ["on"],
};

function sampleOf(name: string, type: string, fallback: unknown): readonly [string, Record<string, string>?] {
  const listed = SAMPLES[name];
  if (listed !== undefined) return listed;
  if (type === "switch") return [fallback === true ? "off" : "1"];
  if (type === "number" || type.endsWith("integer")) return ["7"];
  return ["sample"];
}

for (const [name, row] of variables) {
  Deno.test(`${name} reaches the settings and is shown again`, () => {
    const [text, more] = sampleOf(name, row.type, row.fallback);
    const without = settingsOf();
    const settings = settingsOf({ ...more, [name]: text });
    assert.deepEqual(settings.origins.get(name), { kind: "environment", name });
    assert.notDeepEqual(row.show(settings), row.show(without), "the value changes nothing");
    if (row.flag === undefined) return;
    const flagged = settingsOf(more ?? {}, [`${row.flag}=${text}`]);
    assert.deepEqual(row.show(flagged), row.show(settings));
    assert.deepEqual(flagged.origins.get(name), { kind: "flag", flag: row.flag });
  });
}

Deno.test("flags are unique, and come before everything else in the order of checking", () => {
  const flags = variables.map(([, row]) => row.flag);
  const given = flags.filter((flag) => flag !== undefined);
  assert.equal(new Set(given).size, given.length);
  assert.deepEqual(flags.slice(0, given.length), given);
});

Deno.test("no text shows a secret, whatever else is wrong", () => {
  const secret = "s3cr3t-value";
  const hidden = variables.filter(([, row]) => row.hidden !== undefined);
  assert.ok(hidden.length >= 8);
  const environment: Record<string, string> = { ...LEAST };
  for (const [name, row] of hidden) {
    environment[name] = row.hidden === "all" ? secret : `https://user:${secret}@host/path?sig=${secret}`;
  }
  environment["SIE_NATS_USER"] = "u";
  const texts = [helpText("p", environment)];
  const whole = load(environment);
  assert.ok(whole.kind === "settings");
  texts.push(checkReport(whole.settings, undefined, []).stdout, whole.settings.warnings.join());
  for (const [name, row] of variables) {
    if (name in environment && row.hidden !== undefined) continue;
    const loaded = load({ ...environment, [name]: "\u0000" });
    texts.push(
      loaded.kind === "text" ? loaded.stderr + loaded.stdout : checkReport(loaded.settings, undefined, []).stdout,
    );
  }
  assert.ok(texts.length > 80);
  for (const text of texts) assert.ok(!text.includes(secret), text);
});

Deno.test("the help has an entry for every flag, with environment and default", () => {
  const help = helpText("worker-sidecar", { SIE_GPU_COUNT: "5", SIE_NATS_URL: "x", SIE_POOL: "\x1b[1m" });
  for (const [name, row] of variables) {
    if (row.flag === undefined) continue;
    assert.ok(help.includes(`      ${row.flag} <`), row.flag);
    assert.ok(help.includes(row.hidden === undefined ? `[env: ${name}=` : `[env: ${name}]`), name);
  }
  assert.ok(help.includes("[env: SIE_GPU_COUNT=5] [default: 1]"));
  assert.ok(help.includes("[env: SIE_POOL=\\u{1b}[1m]"));
});
