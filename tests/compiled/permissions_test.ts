/**
 * Strict executables: what happens when one of the baked permissions is missing. Each test compiles an executable of its own
 * (about a second); `deno task e2e` runs them and provides the compiler.
 */
import assert from "node:assert/strict";
import { inspectCompiler, permissionSet } from "../../scripts/lib/compile/compiler.ts";
import { type Deployment, type Grant, strictGrants } from "../../scripts/lib/compile/grants.ts";
import { sourceRoot } from "../../scripts/lib/places.ts";
import { scopeFlags } from "../../scripts/lib/scopes.ts";
import { ManagedProcess } from "../harness/process.ts";

/** Where `scripts/e2e.ts` lets these tests start an executable: in the folder for temporary files, under this name. */
const BINARY = `${Deno.env.get("TMPDIR")}/worker-sidecar`;
const LANE = { SIE_POOL: "p", SIE_BUNDLE: "b", SIE_MACHINE_PROFILE: "m" };

/** Every setting that names a host or a path. Nothing of it has to be there: the check comes before the first use. */
const DEPLOYMENTS: Readonly<Record<"nats" | "local", Deployment>> = {
  nats: {
    variables: {
      SIE_NATS_URL: "nats://127.0.0.1:14222",
      SIE_IPC_SOCKET_PATHS: "/nonexistent/0.sock,/nonexistent/1.sock",
      SIE_WORKER_PROBE_PORT: "19095",
      SIE_DEBUG_ADDR: "127.0.0.1:19096",
      SIE_CONFIG_SERVICE_URL: "http://127.0.0.1:18080",
      SIE_GATEWAY_URL: "http://127.0.0.1:18081",
      SIE_PAYLOAD_STORE_URL: "/nonexistent/payloads",
      SIE_TOKENIZER_STAGING_DIR: "/nonexistent/tokenizers",
      SIE_TRACE_FILE: "/nonexistent/trace.jsonl",
      SIE_NATS_CREDS_FILE: "/nonexistent/creds",
      SIE_NATS_TLS_CA: "/nonexistent/ca.pem",
      SIE_NATS_TLS_CERT: "/nonexistent/client.pem",
      SIE_NATS_TLS_KEY: "/nonexistent/client.key",
    },
  },
  local: {
    variables: {
      SIE_SIDECAR_LOCAL_SOCKET: "/nonexistent/ingest/in.sock",
      SIE_IPC_SOCKET_PATH: "/nonexistent/ipc.sock",
      SIE_WORKER_PROBE_PORT: "19095",
      SIE_DEBUG_ADDR: "off",
    },
  },
};

async function compile(profile: "nats" | "local", without: readonly string[]): Promise<void> {
  const { variables } = DEPLOYMENTS[profile];
  const settings = Object.entries(variables).flatMap(([name, value]) => ["--set", `${name}=${value}`]);
  const left = without.flatMap((grant) => ["--without", grant]);
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--quiet", "--permission-set=scripts", ...scopeFlags("compile", Deno.env.toObject(), Deno.execPath())],
      ...["scripts/compile.ts", "--profile", profile, "--output", BINARY, ...settings, ...left],
    ],
    cwd: sourceRoot,
  }).output();
  assert.equal(code, 0, new TextDecoder().decode(stderr));
}

/** Starts the executable with the deployment's variables. */
function launch(profile: "nats" | "local", args: readonly string[]): ManagedProcess {
  const ingest = { SIE_SIDECAR_INGEST: profile };
  const env = { ...LANE, ...ingest, ...DEPLOYMENTS[profile].variables };
  return ManagedProcess.start({ name: "worker-sidecar", command: [BINARY, ...args], env });
}

/** The grants of a deployment that its compiler really bakes; an older one knows none for Unix sockets and the umask. */
async function bakedGrants(profile: "nats" | "local"): Promise<Grant[]> {
  const compiler = await inspectCompiler(Deno.env.get("COMPILE_DENO") ?? Deno.execPath());
  return strictGrants(profile, DEPLOYMENTS[profile]).filter((grant) =>
    Object.keys(permissionSet([grant], compiler)).length > 0
  );
}

for (const profile of ["nats", "local"] as const) {
  Deno.test(`${profile}: nothing is missing in the executable for this deployment`, async () => {
    await compile(profile, []);
    await using check = launch(profile, ["check"]);
    const { code } = await check.end();
    assert.equal(code, 0, check.output());
    assert.ok(check.output().includes(`SIE_SIDECAR_INGEST`), check.output());
    assert.ok(!check.output().includes("missing:"), check.output());
  });

  for (const grant of await bakedGrants(profile)) {
    const { kind, value, for: setting } = grant;
    Deno.test(`${profile}: without ${kind} ${value} the start names ${setting}`, async () => {
      await compile(profile, [`${kind}=${value === true ? "all" : value}`]);
      await using sidecar = launch(profile, ["serve"]);
      const { code } = await sidecar.end();
      assert.equal(code, 1, sidecar.output());
      // Without the environment it cannot know a single setting; then the permission itself is named.
      const named = kind === "env" ? /env/ : new RegExp(`${setting} needs ${escaped(String(value))}`);
      assert.match(sidecar.output(), named);
      assert.ok(sidecar.lines.length === 1, `more than one line:\n${sidecar.output()}`);
    });
  }
}

Deno.test("a local executable bakes no host but its own listeners", () => {
  const hosts = strictGrants("local", DEPLOYMENTS.local).filter(({ kind }) => kind === "net").map(({ value }) => value)
    .filter((value) => !String(value).startsWith("unix:"));
  assert.deepEqual(hosts, ["0.0.0.0:19095"]);
});

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
