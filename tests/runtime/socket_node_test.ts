/** Sockets for their owner alone: what is replaced, what is refused, what is removed. */
import assert from "node:assert/strict";
import { bindingPath, bindOwnerOnly, SocketPathError } from "../../src/runtime/socket_node.ts";
import { TestFolder } from "../harness/process.ts";

function isFault(fault: string, message: RegExp): (thrown: unknown) => boolean {
  return (thrown) =>
    thrown instanceof SocketPathError && thrown.code === `socket_path_${fault}` && message.test(thrown.message);
}

function modeOf(path: string): string {
  return ((Deno.lstatSync(path).mode ?? 0) & 0o7777).toString(8);
}

/** Runs with a umask that takes nothing away. */
async function withoutUmask<T>(run: () => Promise<T>): Promise<T> {
  const before = Deno.umask(0);
  try {
    return await run();
  } finally {
    Deno.umask(before);
  }
}

Deno.test("the node is the owner's alone, whatever the umask, and the umask is as before", async () => {
  using folder = new TestFolder();
  const path = folder.file("a.sock");
  await withoutUmask(async () => {
    const socket = await bindOwnerOnly(path);
    assert.equal(Deno.umask(0), 0);
    assert.equal(modeOf(path), "600");
    const client = await Deno.connect({ transport: "unix", path });
    (await socket.listener.accept()).close();
    client.close();
    await socket.close();
  });
  assert.deepEqual([...Deno.readDirSync(folder.path)], []);
});

Deno.test("a missing folder is made for the owner alone; one that is there stays as it is", async () => {
  using folder = new TestFolder();
  await withoutUmask(async () => {
    const made = await bindOwnerOnly(folder.file("made/deep/a.sock"));
    assert.equal(modeOf(folder.file("made/deep")), "700");
    assert.equal(modeOf(folder.file("made")), "700");
    await made.close();
    Deno.mkdirSync(folder.file("open"), { mode: 0o755 });
    const there = await bindOwnerOnly(folder.file("open/a.sock"));
    assert.equal(modeOf(folder.file("open")), "755");
    await there.close();
  });
});

Deno.test("a socket that nobody listens on is replaced", async () => {
  using folder = new TestFolder();
  const path = folder.file("a.sock");
  leaveStale(path);
  leaveStale(bindingPath(path));
  const socket = await bindOwnerOnly(path);
  (await Deno.connect({ transport: "unix", path })).close();
  (await socket.listener.accept()).close();
  await socket.close();
  assert.deepEqual([...Deno.readDirSync(folder.path)], []);
});

Deno.test("a socket that somebody listens on stays theirs", async () => {
  using folder = new TestFolder();
  const path = folder.file("a.sock");
  const first = await bindOwnerOnly(path);
  const before = Deno.lstatSync(path).ino;
  await assert.rejects(bindOwnerOnly(path), isFault("in_use", /another process listens at .*a\.sock/));
  assert.equal(Deno.lstatSync(path).ino, before);
  (await first.listener.accept()).close();
  await first.close();
});

for (
  const [what, make] of [
    ["a file", (path: string) => Deno.writeTextFileSync(path, "precious")],
    ["a directory", (path: string) => Deno.mkdirSync(path)],
    ["a symbolic link", (path: string) => makeSymlink("elsewhere", path)],
  ] as const
) {
  Deno.test(`${what} in the place of the socket is left alone`, async () => {
    using folder = new TestFolder();
    const path = folder.file("a.sock");
    make(path);
    await assert.rejects(bindOwnerOnly(path), isFault("no_socket", /a\.sock is .* and is not replaced/));
    assert.ok(Deno.lstatSync(path));
  });
}

Deno.test("a folder that is a file is a clear error", async () => {
  using folder = new TestFolder();
  Deno.writeTextFileSync(folder.file("file"), "");
  await assert.rejects(
    bindOwnerOnly(folder.file("file/a.sock")),
    isFault("failed", /cannot make a socket at .*a\.sock/),
  );
});

Deno.test("a path that no socket can have is a clear error", async () => {
  using folder = new TestFolder();
  const path = folder.file("x".repeat(120));
  await assert.rejects(bindOwnerOnly(path), isFault("failed", /cannot make a socket/));
  assert.deepEqual([...Deno.readDirSync(folder.path)], []);
});

Deno.test("the longest path that a socket can have is not made longer on the way", async () => {
  using folder = new TestFolder();
  const path = folder.file("x".repeat(107 - folder.path.length - 1));
  assert.equal(path.length, 107);
  assert.equal(bindingPath(path).length, 107);
  const socket = await bindOwnerOnly(path);
  await socket.close();
});

Deno.test("closing leaves a node alone that has taken the place, and a second close does nothing", async () => {
  using folder = new TestFolder();
  const path = folder.file("a.sock");
  const first = await bindOwnerOnly(path);
  Deno.removeSync(path);
  const second = await bindOwnerOnly(path);
  await first.close();
  (await Deno.connect({ transport: "unix", path })).close();
  (await second.listener.accept()).close();
  await second.close();
  await second.close();
  await assert.rejects(Deno.lstat(path), Deno.errors.NotFound);
});

Deno.test("many processes at one path: one of them gets it", async () => {
  using folder = new TestFolder();
  const path = folder.file("a.sock");
  const results = await Promise.allSettled(Array.from({ length: 4 }, () => bindOwnerOnly(path)));
  const won = results.flatMap((result) => result.status === "fulfilled" ? [result.value] : []);
  assert.equal(won.length, 1);
  for (const result of results) if (result.status === "rejected") assert.ok(result.reason instanceof SocketPathError);
  const [winner] = won;
  assert.ok(winner !== undefined);
  (await Deno.connect({ transport: "unix", path })).close();
  await winner.close();
});

Deno.test({
  name: "a missing permission is named",
  permissions: { write: false },
  async fn() {
    await assert.rejects(
      bindOwnerOnly("nowhere/a.sock"),
      isFault("denied", /no permission to make a socket at .*write/),
    );
  },
});

/** Links can be made only with unscoped permissions, which tests do not have; a process of its own has them. */
function makeSymlink(target: string, path: string): void {
  const code = `Deno.symlinkSync(${JSON.stringify(target)}, ${JSON.stringify(path)})`;
  const made = new Deno.Command(Deno.execPath(), { args: ["eval", "--no-config", code] }).outputSync();
  assert.ok(made.success, new TextDecoder().decode(made.stderr));
}

/** A socket as a process leaves it that was killed. */
function leaveStale(path: string): void {
  const other = `${path}.x`;
  const listener = Deno.listen({ transport: "unix", path: other });
  Deno.renameSync(other, path);
  listener.close();
}
