/** The report of `check`, the manifest, the name of the program and its version. */
import assert from "node:assert/strict";
import { checkReport } from "../../src/settings/check.ts";
import { bakedManifest } from "../../src/settings/manifest.ts";
import { programName } from "../../src/settings/program_name.ts";
import { versionText } from "../../src/settings/help.ts";
import config from "../../deno.json" with { type: "json" };
import { settingsOf } from "./loading.ts";

function lineOf(report: string, name: string): string {
  return report.split("\n").find((line) => line.trimStart().startsWith(`${name} `))?.replace(/\s+/g, " ").trim() ?? "";
}

Deno.test("each setting is a line with value, unit and origin", () => {
  const settings = settingsOf({
    SIE_IPC_REQUEST_TIMEOUT_S: "7",
    SIE_GATEWAY_API_KEY: "k",
    SIE_METRICS_ENABLED: "1",
    SIE_NATS_URL: "nats://u:p@a,nats://v:q@b",
    SIE_BUNDLE: " b ",
    SIE_IPC_SOCKET_PATHS: "/a,/b",
  }, ["--gpu-count=-1"]);
  const { stdout, exitCode } = checkReport(settings, undefined, []);
  assert.equal(exitCode, 0);
  assert.equal(
    lineOf(stdout, "SIE_IPC_REQUEST_TIMEOUT_S"),
    "SIE_IPC_REQUEST_TIMEOUT_S 7 s (environment SIE_IPC_REQUEST_TIMEOUT_S)",
  );
  assert.equal(lineOf(stdout, "SIE_GATEWAY_API_KEY"), "SIE_GATEWAY_API_KEY <set> (environment SIE_GATEWAY_API_KEY)");
  assert.equal(
    lineOf(stdout, "SIE_NATS_URL"),
    "SIE_NATS_URL nats://<redacted>@a,nats://<redacted>@b (environment SIE_NATS_URL)",
  );
  assert.equal(lineOf(stdout, "SIE_BUNDLE"), "SIE_BUNDLE b (environment SIE_BUNDLE)");
  assert.equal(lineOf(stdout, "SIE_GPU_COUNT"), "SIE_GPU_COUNT -1 (flag --gpu-count)");
  assert.equal(lineOf(stdout, "SIE_IPC_SOCKET_PATHS"), "SIE_IPC_SOCKET_PATHS /a,/b (environment SIE_IPC_SOCKET_PATHS)");
  assert.equal(lineOf(stdout, "SIE_IPC_MUX"), "SIE_IPC_MUX off (default)");
  assert.equal(lineOf(stdout, "SIE_NATS_PASSWORD"), "SIE_NATS_PASSWORD - (default)");
  assert.match(stdout, /Nothing is baked/);
  assert.match(stdout, /^warning: SIE_METRICS_ENABLED is set/m);
});

Deno.test("a missing permission is told, and the check fails", () => {
  const need = { setting: "SIE_TRACE_FILE", permission: "write", target: "/t" } as const;
  const { stdout, exitCode } = checkReport(settingsOf(), undefined, [need]);
  assert.equal(exitCode, 1);
  assert.match(stdout, /^missing: SIE_TRACE_FILE needs \/t, which this program may not write: --allow-write=\/t$/m);
});

Deno.test("baked permissions are listed", () => {
  const manifest = bakedManifest({
    version: "1.2.3",
    profile: "nats",
    target: "x86_64-unknown-linux-gnu",
    generic: false,
    grants: [{ kind: "net", value: "a:1", for: "SIE_NATS_URL" }, { kind: "env", value: true, for: "settings" }],
  });
  const { stdout } = checkReport(settingsOf(), manifest, []);
  assert.match(stdout, /^Baked permissions \(version 1\.2\.3, profile nats, strict, x86_64-unknown-linux-gnu\):$/m);
  assert.match(stdout, /^ {2}net {3}a:1 +SIE_NATS_URL$/m);
  assert.match(stdout, /^ {2}env {3}all +settings$/m);
});

Deno.test("what is not a manifest is not taken for one", () => {
  assert.equal(bakedManifest(), undefined);
  const whole = { version: "", profile: "", target: "", generic: true, grants: [] };
  assert.deepEqual(bakedManifest(whole), whole);
  const bad = [{}, [], "x", 3, { ...whole, grants: [{}] }, { ...whole, generic: 1 }, { ...whole, version: null }];
  for (const content of bad) assert.throws(() => bakedManifest(content), TypeError);
});

Deno.test("the program is called what it was called by", () => {
  assert.equal(programName("/usr/bin/sie-server-sidecar", true), "sie-server-sidecar");
  assert.equal(programName("worker-sidecar", true), "worker-sidecar");
  assert.equal(programName("", true), "worker-sidecar");
  assert.equal(programName("/opt/deno", false), "worker-sidecar");
  assert.equal(versionText("sie-server-sidecar"), `sie-server-sidecar ${config.version}\n`);
});
