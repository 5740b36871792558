/** What `deno task compile` bakes: grants of a deployment, their form for each compiler, the staged folder, the command line. */
import assert from "node:assert/strict";
import { permissionSet } from "../../scripts/lib/compile/compiler.ts";
import { genericGrants, type Grant, strictGrants } from "../../scripts/lib/compile/grants.ts";
import { readOptions, UsageError } from "../../scripts/lib/compile/options.ts";
import { MANIFEST_FILE, stage } from "../../scripts/lib/compile/staging.ts";
import { isNeverLoaded, neverLoadedFiles } from "../../scripts/lib/compile/unused_files.ts";
import { bakedManifest } from "../../src/settings/manifest.ts";
import { TestFolder } from "../harness/process.ts";

const NATS = { SIE_NATS_URL: "nats://user:secret@broker.example:4333", SIE_IPC_SOCKET_PATH: "/run/a/ipc.sock" };
const LOCAL = { SIE_SIDECAR_LOCAL_SOCKET: "/run/a/in.sock", SIE_IPC_SOCKET_PATH: "/run/a/ipc.sock" };

function shown(grants: readonly Grant[]): string[] {
  return grants.map(({ kind, value, for: purpose }) => `${kind} ${value} ${purpose}`).sort();
}

Deno.test("strict nats: this deployment's endpoints and nothing else", () => {
  assert.deepEqual(shown(strictGrants("nats", { variables: { ...NATS, SIE_DEBUG_ADDR: "127.0.0.1:9196" } })), [
    "env true settings",
    "net 0.0.0.0:9095 SIE_WORKER_PROBE_PORT",
    "net 127.0.0.1:9196 SIE_DEBUG_ADDR",
    "net broker.example:4333 SIE_NATS_URL",
    "net unix:/run/a/ipc.sock SIE_IPC_SOCKET_PATH",
    "read /run/a/ipc.sock SIE_IPC_SOCKET_PATH",
    "write /run/a/ipc.sock SIE_IPC_SOCKET_PATH",
  ]);
});

Deno.test("strict nats: every setting that names a host or a path asks for it", () => {
  const grants = shown(strictGrants("nats", {
    variables: {
      ...NATS,
      SIE_NATS_URL: "nats://a:1,nats://b",
      SIE_IPC_SOCKET_PATHS: "/run/a/0.sock, /run/a/1.sock",
      SIE_WORKER_PROBE_PORT: "9999",
      SIE_CONFIG_SERVICE_URL: "https://config.example/x",
      SIE_GATEWAY_URL: "http://gateway.example:8080",
      SIE_PAYLOAD_STORE_URL: "file:///var/payloads",
      SIE_TOKENIZER_STAGING_DIR: "/var/tokenizers",
      SIE_TRACE_FILE: "/var/trace.jsonl",
      SIE_NATS_CREDS_FILE: "/etc/nats/creds",
      SIE_NATS_TLS_CA: "/etc/nats/ca.pem",
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318",
    },
  }));
  for (
    const expected of [
      "net a:1 SIE_NATS_URL",
      "net b:4222 SIE_NATS_URL",
      "net unix:/run/a/0.sock SIE_IPC_SOCKET_PATHS",
      "write /run/a/1.sock SIE_IPC_SOCKET_PATHS",
      "net 0.0.0.0:9999 SIE_WORKER_PROBE_PORT",
      "net config.example:443 SIE_CONFIG_SERVICE_URL",
      "net gateway.example:8080 SIE_GATEWAY_URL",
      "read /var/payloads SIE_PAYLOAD_STORE_URL",
      "read /var/tokenizers SIE_TOKENIZER_STAGING_DIR",
      "write /var/trace.jsonl SIE_TRACE_FILE",
      "read /etc/nats/creds SIE_NATS_CREDS_FILE",
      "read /etc/nats/ca.pem SIE_NATS_TLS_CA",
      "net collector:4318 OTEL_EXPORTER_OTLP_ENDPOINT",
    ]
  ) {
    assert.ok(grants.includes(expected), `${expected} is not among\n${grants.join("\n")}`);
  }
});

Deno.test("strict local: no broker, and both names of the socket", () => {
  const grants = strictGrants("local", { variables: LOCAL });
  const unix = grants.filter(({ kind, value }) => kind === "net" && String(value).startsWith("unix:"));
  assert.deepEqual(unix.map(({ value }) => value), [
    "unix:/run/a/ipc.sock",
    "unix:/run/a/in.sock",
    "unix:/run/a/~n.sock",
  ]);
  const hosts = grants.filter(({ kind, value }) => kind === "net" && !String(value).startsWith("unix:"));
  assert.deepEqual(hosts.map((grant) => grant.for), ["SIE_WORKER_PROBE_PORT", "SIE_DEBUG_ADDR"]);
  assert.ok(shown(grants).includes("sys umask SIE_SIDECAR_LOCAL_SOCKET"));
});

Deno.test("generic: wildcards for nats, no host but loopback for local", () => {
  const hosts = (profile: "nats" | "local") =>
    genericGrants(profile, { variables: {} }).filter(({ kind }) => kind === "net").map(({ value }) => String(value))
      .filter((value) => !value.startsWith("unix:"));
  assert.deepEqual(hosts("local"), ["0.0.0.0", "127.0.0.1"]);
  assert.ok(hosts("nats").includes("*.svc.cluster.local"));
  assert.ok(hosts("nats").includes("10.0.0.0/8"));
});

Deno.test("what was given beside the variables is added for every profile", () => {
  const more = { net: ["*.store.example:443"], read: ["/r"], write: ["/w"] };
  for (
    const grants of [
      strictGrants("nats", { variables: NATS, ...more }),
      strictGrants("train", { variables: {}, ...more }),
      genericGrants("local", { variables: {}, ...more }),
    ]
  ) {
    const texts = shown(grants);
    for (const text of ["net *.store.example:443 --net", "read /r --read", "write /w --write"]) {
      assert.ok(texts.includes(text), text);
    }
  }
});

Deno.test("nothing that runs programs, and nothing whole but the environment", () => {
  for (const profile of ["nats", "local", "train"] as const) {
    const variables = profile === "nats" ? NATS : profile === "local" ? LOCAL : {};
    for (const grants of [strictGrants(profile, { variables }), genericGrants(profile, { variables: {} })]) {
      assert.deepEqual(grants.filter(({ value }) => value === true).map(({ kind }) => kind), ["env"]);
      assert.ok(!grants.some(({ kind }) => String(kind) === "run"));
    }
  }
});

Deno.test("a deployment that cannot be baked is refused, and no password is shown", () => {
  const refused = (profile: "nats" | "local", variables: Record<string, string>, message: RegExp) => {
    assert.throws(() => strictGrants(profile, { variables }), (thrown: Error) => {
      assert.match(thrown.message, message);
      assert.ok(!thrown.message.includes("secret"), thrown.message);
      return true;
    });
  };
  refused("nats", {}, /SIE_NATS_URL is required/);
  refused("local", {}, /SIE_SIDECAR_LOCAL_SOCKET is required/);
  refused("local", { ...LOCAL, ...NATS }, /SIE_NATS_URL is set, but the profile local bakes no broker/);
  refused("nats", { ...NATS, SIE_IPC_SOCKET_PATH: "run/ipc.sock" }, /SIE_IPC_SOCKET_PATH must be an absolute path/);
  refused("nats", { ...NATS, SIE_WORKER_PROBE_PORT: "70000" }, /70000/);
  refused("nats", { ...NATS, SIE_PAYLOAD_STORE_URL: "s3://bucket/x" }, /SIE_PAYLOAD_STORE_URL .*--net/);
  refused("nats", { ...NATS, OTEL_EXPORTER_OTLP_ENDPOINT: "secret" }, /OTEL_EXPORTER_OTLP_ENDPOINT is not a URL/);
  refused("nats", { ...NATS, SIE_SIDECAR_INGEST: "local", ...LOCAL }, /SIE_SIDECAR_INGEST is local/);
});

Deno.test("each compiler gets the spellings that it knows", () => {
  const grants = strictGrants("local", { variables: LOCAL });
  const newer = permissionSet(grants, { unixPermissions: true });
  assert.deepEqual(newer.sys, ["umask"]);
  assert.ok(Array.isArray(newer.net) && newer.net.includes("unix:/run/a/in.sock"));
  const older = permissionSet(grants, { unixPermissions: false });
  assert.equal(older.sys, undefined);
  assert.deepEqual(older.net, ["0.0.0.0:9095", "127.0.0.1:9096"]);
  assert.deepEqual(older.read, newer.read);
});

Deno.test("the staged folder holds the sources, the manifest, one permission set, and names the workers", async () => {
  using folder = new TestFolder();
  const root = folder.file("root");
  const staging = folder.file("staging");
  await Deno.mkdir(`${root}/src/settings`, { recursive: true });
  await Deno.mkdir(`${root}/src/prepare`);
  await Deno.mkdir(staging);
  await Deno.writeTextFile(`${root}/main.ts`, "export {};\n");
  await Deno.writeTextFile(`${root}/deno.lock`, "{}\n");
  await Deno.writeTextFile(`${root}/${MANIFEST_FILE}`, "null\n");
  await Deno.writeTextFile(
    `${root}/src/prepare/pool.ts`,
    `new Worker(new URL("./work/er.ts", import.meta.url), { type: "module" }); // new URL("./not.ts", import.meta.url)\n`,
  );
  await Deno.writeTextFile(
    `${root}/deno.json`,
    JSON.stringify({
      version: "1.2.3",
      imports: { a: "npm:a@1.0.0" },
      tasks: { x: "y" },
      permissions: { test: { run: true } },
    }),
  );
  const grants: Grant[] = [{ kind: "env", value: true, for: "settings" }];
  const manifest = { version: "1.2.3", profile: "local", target: "t", generic: false, grants };
  const workers = await stage(root, staging, { env: true }, manifest);
  assert.deepEqual(workers, ["src/prepare/work/er.ts"]);
  assert.deepEqual(bakedManifest(JSON.parse(await Deno.readTextFile(`${staging}/${MANIFEST_FILE}`))), manifest);
  assert.deepEqual(JSON.parse(await Deno.readTextFile(`${staging}/deno.json`)), {
    version: "1.2.3",
    imports: { a: "npm:a@1.0.0" },
    permissions: { baked: { env: true } },
  });
  assert.equal(await Deno.readTextFile(`${root}/${MANIFEST_FILE}`), "null\n");
});

Deno.test("files of packages that no program loads are left out, licences and code stay", async () => {
  const out = ["index.d.ts", "a/b.d.mts", "x.js.map", "README.md", "dist/a.min.js", "src/a.ts", "test/a.js"];
  const kept = [
    "index.js",
    "a.mjs",
    "a.cjs",
    "package.json",
    "LICENSE",
    "LICENSE.md",
    "licence.md",
    "a.wasm",
    "a.json",
    "a.node",
  ];
  assert.deepEqual(out.filter((path) => !isNeverLoaded(path)), []);
  assert.deepEqual(kept.filter(isNeverLoaded), []);

  using folder = new TestFolder();
  const at = `${folder.path}/npm/registry.example`;
  for (const path of ["a/1.0.0/index.js", "a/1.0.0/index.d.ts", "@s/b/2.0.0/x/y.js.map", "other/1.0.0/z.map"]) {
    await Deno.mkdir(`${at}/${path.slice(0, path.lastIndexOf("/"))}`, { recursive: true });
    await Deno.writeTextFile(`${at}/${path}`, "");
  }
  const lock = folder.file("deno.lock");
  await Deno.writeTextFile(
    lock,
    JSON.stringify({ npm: { "a@1.0.0": {}, "@s/b@2.0.0_a@1.0.0": {}, "absent-on-this-platform@1.0.0": {} } }),
  );
  assert.deepEqual(await neverLoadedFiles(lock, folder.file("npm")), [
    `${at}/@s/b/2.0.0/x/y.js.map`,
    `${at}/a/1.0.0/index.d.ts`,
  ]);
});

Deno.test("the command line: file, flags over file, targets", () => {
  const file = JSON.stringify({ variables: { A: "1", B: "2" }, net: ["h:1"] });
  const options = readOptions(
    ["--profile", "nats", "--deployment", "d.json", "--set", "B=3=4", "--net", "h:2", "--target", "aarch64"],
    (path) => path === "d.json" ? file : "",
  );
  assert.deepEqual(options?.deployment, { variables: { A: "1", B: "3=4" }, net: ["h:1", "h:2"], read: [], write: [] });
  assert.equal(options?.target, "aarch64-unknown-linux-gnu");
  assert.equal(options?.generic, false);
  assert.equal(readOptions(["--help"], () => ""), undefined);
});

Deno.test("the command line: mistakes are named", () => {
  const cases: [string[], string, RegExp][] = [
    [[], "", /--profile must be one of nats, local, train/],
    [["--profile", "x", "--generic"], "", /--profile must be one of/],
    [["--profile", "nats"], "", /either --generic or the deployment/],
    [["--profile", "nats", "--generic", "--set", "A=1"], "", /either --generic or the deployment/],
    [["--profile", "nats", "--set", "A"], "", /--set needs NAME=VALUE/],
    [["--profile", "nats", "--generic", "--target", "sparc"], "", /--target must be one of x86_64, aarch64/],
    [["--profile", "nats", "--nope"], "", /--nope/],
    [["--profile", "nats", "--deployment", "d"], "{", /--deployment d: /],
    [["--profile", "nats", "--deployment", "d"], "[]", /must hold an object/],
    [["--profile", "nats", "--deployment", "d"], `{"variable": {}}`, /unknown key "variable"/],
    [["--profile", "nats", "--deployment", "d"], `{"variables": {"A": 1}}`, /variables must map names to texts/],
    [["--profile", "nats", "--deployment", "d"], `{"net": "h"}`, /net must be an array of texts/],
  ];
  for (const [args, text, message] of cases) {
    assert.throws(() => readOptions(args, () => text), (thrown: Error) => {
      assert.ok(thrown instanceof UsageError, String(thrown));
      assert.match(thrown.message, message);
      return true;
    }, args.join(" "));
  }
});
