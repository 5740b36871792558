/** Permissions that settings ask for, and how a missing one is told. */
import assert from "node:assert/strict";
import { describeNeed, isGrantedNow, missingGrants, type Need, needsOf } from "../../src/settings/grants.ts";
import { settingsOf } from "./loading.ts";

/** `permission target`, for comparison. */
function asked(more: Record<string, string>, setting: string): string[] {
  return needsOf(settingsOf(more)).filter((need) => need.setting === setting)
    .map((need) => `${need.permission} ${need.target}`);
}

Deno.test("servers of the broker, with their ports", () => {
  const hosts = (url: string) => asked({ SIE_NATS_URL: url }, "SIE_NATS_URL");
  assert.deepEqual(hosts("nats://u:p@a:1, tls://b ,c:3,[::1]:5,d"), [
    "net a:1",
    "net b:4222",
    "net c:3",
    "net [::1]:5",
    "net d:4222",
  ]);
  assert.deepEqual(hosts("nats://a,nats://a:4222"), ["net a:4222"]);
  // What nobody can parse is refused when it is dialled, by the client and with its own words.
  assert.deepEqual(hosts("://"), []);
});

Deno.test("addresses we listen on", () => {
  assert.deepEqual(asked({ SIE_WORKER_PROBE_PORT: "9" }, "SIE_WORKER_PROBE_PORT"), ["net 0.0.0.0:9"]);
  assert.deepEqual(asked({ SIE_DEBUG_ADDR: "[::1]:7" }, "SIE_DEBUG_ADDR"), ["net [::1]:7"]);
  assert.deepEqual(asked({ SIE_DEBUG_ADDR: "off" }, "SIE_DEBUG_ADDR"), []);
});

Deno.test("sockets, files, folders and URLs", () => {
  assert.deepEqual(asked({ SIE_IPC_SOCKET_PATHS: "/a,/b" }, "SIE_IPC_SOCKET_PATHS"), [
    "net unix:/a",
    "read /a",
    "write /a",
    "net unix:/b",
    "read /b",
    "write /b",
  ]);
  const local = { SIE_SIDECAR_INGEST: "local", SIE_SIDECAR_LOCAL_SOCKET: "/run/sie/in.sock" };
  assert.deepEqual(asked(local, "SIE_SIDECAR_LOCAL_SOCKET"), [
    "net unix:/run/sie/in.sock",
    "net unix:/run/sie/~n.sock",
    "read /run/sie",
    "write /run/sie",
    "sys umask",
  ]);
  assert.deepEqual(asked({ ...local, SIE_GATEWAY_URL: "http://g" }, "SIE_GATEWAY_URL"), []);
  assert.deepEqual(asked({ SIE_GATEWAY_URL: "http://g" }, "SIE_GATEWAY_URL"), ["net g:80"]);
  assert.deepEqual(asked({ SIE_CONFIG_SERVICE_URL: "https://c/x" }, "SIE_CONFIG_SERVICE_URL"), ["net c:443"]);
  assert.deepEqual(asked({ SIE_PAYLOAD_STORE_URL: "file:///pay" }, "SIE_PAYLOAD_STORE_URL"), ["read /pay"]);
  assert.deepEqual(asked({ SIE_PAYLOAD_STORE_URL: "s3://bucket" }, "SIE_PAYLOAD_STORE_URL"), []);
  assert.deepEqual(asked({ SIE_TRACE_FILE: "/t" }, "SIE_TRACE_FILE"), ["write /t"]);
  const trainer = { SIE_BATCH_TIME_FEEDBACK_SOCKET: "/run/train/s.sock", SIE_BATCH_TIME_VERSIONS_DIR: "/versions" };
  assert.deepEqual(asked(trainer, "SIE_BATCH_TIME_FEEDBACK_SOCKET"), [
    "net unix:/run/train/s.sock",
    "read /run/train/s.sock",
    "write /run/train/s.sock",
  ]);
  assert.deepEqual(asked(trainer, "SIE_BATCH_TIME_VERSIONS_DIR"), ["read /versions"]);
  assert.deepEqual(asked({}, "SIE_BATCH_TIME_FEEDBACK_SOCKET"), []);
  assert.deepEqual(asked({ SIE_NATS_CREDS_FILE: "/c" }, "SIE_NATS_CREDS_FILE"), ["read /c"]);
});

Deno.test("each permission that is taken away is named with its setting and its flag", () => {
  const settings = settingsOf({ SIE_GATEWAY_URL: "http://g", SIE_TRACE_FILE: "/t", SIE_NATS_TLS_CA: "/ca" });
  const needs = needsOf(settings);
  assert.ok(needs.length >= 8);
  for (const lost of needs) {
    const isSame = (need: Need) => need.permission === lost.permission && need.target === lost.target;
    const missing = missingGrants(settings, (need) => !isSame(need));
    assert.deepEqual(missing, needs.filter(isSame));
    const text = describeNeed(lost);
    assert.ok(text.startsWith(`${lost.setting} needs ${lost.target}`), text);
    assert.ok(text.endsWith(`--allow-${lost.permission}=${lost.target}`), text);
    assert.ok(!text.includes("\n"));
  }
});

Deno.test({
  name: "the runtime is asked what it was given",
  permissions: { net: ["127.0.0.1:1", "10.0.0.0/8", "*.svc.cluster.local"], read: ["/tmp"] },
  fn() {
    const granted = (permission: Need["permission"], target: string) =>
      isGrantedNow({ setting: "SIE_X", permission, target });
    assert.equal(granted("net", "127.0.0.1:1"), true);
    assert.equal(granted("net", "127.0.0.1:2"), false);
    assert.equal(granted("net", "10.1.2.3:4222"), true);
    assert.equal(granted("net", "nats.ns.svc.cluster.local:4222"), true);
    assert.equal(granted("net", "nats.example.org:4222"), false);
    assert.equal(granted("read", "/tmp/a/b"), true);
    assert.equal(granted("read", "/tmp/../etc/passwd"), false);
    assert.equal(granted("write", "/tmp/a"), false);
  },
});
