/** The claim file and the socket's life: every finding of section 1.6, on real files. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/runtime/clock.ts";
import { tryLockExclusive } from "../../src/training/file_lock.ts";
import { bindingPath } from "../../src/runtime/socket_node.ts";
import { claimSocket } from "../../src/training/socket_claim.ts";
import { publishSocket } from "../../src/training/socket_publish.ts";
import { accepts, TestFolder } from "../harness/process.ts";
import { makeSymlink } from "./support.ts";

function mode(path: string): number {
  return (Deno.lstatSync(path).mode ?? 0) & 0o777;
}

/** A socket file that nobody listens on any more. */
function staleSocket(path: string): number | null {
  const bound = `${path}.bound`;
  const listener = Deno.listen({ transport: "unix", path: bound });
  Deno.linkSync(bound, path);
  listener.close();
  try {
    Deno.removeSync(bound);
  } catch (thrown) {
    // Newer runtimes have removed the bound name with the listener.
    if (!(thrown instanceof Deno.errors.NotFound)) throw thrown;
  }
  return Deno.lstatSync(path).ino;
}

Deno.test("claim: one holder at a time, an empty file of mode 0600 that stays", async () => {
  using folder = new TestFolder();
  const socket = folder.file("s.sock"), lock = `${socket}.lock`;
  Deno.writeTextFileSync(lock, "", { mode: 0o644 });
  const claim = await claimSocket(socket, systemClock);
  assert.equal(mode(lock), 0o600);
  assert.equal(Deno.lstatSync(lock).size, 0);
  await assert.rejects(claimSocket(socket, systemClock), {
    code: "address_in_use",
    message: `socket endpoint is already claimed: ${socket}`,
  });
  claim.close();
  assert.ok(Deno.lstatSync(lock).isFile);
  (await claimSocket(socket, systemClock)).close();
});

// Deno 2.6 has no `tryLock`, and its `lock` cannot be taken back; the last one here is still waiting when the test ends.
Deno.test("claim: it excludes and is excluded by any other flock", { sanitizeOps: false }, async () => {
  using folder = new TestFolder();
  const socket = folder.file("s.sock");
  {
    using other = Deno.openSync(`${socket}.lock`, { write: true, create: true });
    assert.ok(await tryLockExclusive(other, systemClock));
    await assert.rejects(claimSocket(socket, systemClock), { code: "address_in_use" });
  }
  const claim = await claimSocket(socket, systemClock);
  using other = Deno.openSync(`${socket}.lock`, { write: true });
  assert.equal(await tryLockExclusive(other, systemClock), false);
  claim.close();
});

Deno.test("claim: a link or anything that is no regular file is refused and left alone", async () => {
  using folder = new TestFolder();
  const socket = folder.file("s.sock"), lock = `${socket}.lock`;
  Deno.writeTextFileSync(folder.file("target"), "precious", { mode: 0o644 });
  for (const target of ["target", "absent"]) {
    await makeSymlink(folder.file(target), lock);
    await assert.rejects(claimSocket(socket, systemClock), {
      code: "path_exists",
      message: `refusing symlink socket claim path: ${lock}`,
    });
    Deno.removeSync(lock);
  }
  assert.equal(Deno.readTextFileSync(folder.file("target")), "precious");
  assert.equal(mode(folder.file("target")), 0o644);
  Deno.mkdirSync(lock);
  await assert.rejects(claimSocket(socket, systemClock), {
    code: "path_exists",
    message: `refusing non-regular socket claim path: ${lock}`,
  });
  Deno.removeSync(lock);
  staleSocket(lock);
  await assert.rejects(claimSocket(socket, systemClock), {
    code: "path_exists",
    message: `refusing non-regular socket claim path: ${lock}`,
  });
  await assert.rejects(claimSocket(folder.file("no/s.sock"), systemClock), { code: "ENOENT" });
});

Deno.test("socket: mode 0600, owned by us, gone after close, with the umask as it was", async () => {
  using folder = new TestFolder();
  const path = folder.file("s.sock");
  const umask = Deno.umask();
  const socket = await publishSocket(path, systemClock);
  assert.equal(Deno.umask(), umask);
  const info = Deno.lstatSync(path);
  assert.ok(info.isSocket);
  assert.equal(mode(path), 0o600);
  assert.deepEqual([info.uid, info.gid], [Deno.uid(), Deno.gid()]);
  assert.deepEqual([...Deno.readDirSync(folder.path)].map((entry) => entry.name), ["s.sock"]);
  assert.ok(await accepts(path));
  await socket.close();
  await assert.rejects(Deno.lstat(path), Deno.errors.NotFound);
  await socket.close();
});

Deno.test("socket: a stale one gives way to a new one, whatever its mode, at both names", async () => {
  using folder = new TestFolder();
  const path = folder.file("s.sock");
  for (const bits of [0o600, 0o777, 0o000]) {
    const before = staleSocket(path);
    // The other inode stays in use, so that the new socket cannot get it.
    Deno.linkSync(path, folder.file(`kept-${bits}`));
    Deno.chmodSync(path, bits);
    if (bits === 0o777) staleSocket(bindingPath(path));
    const socket = await publishSocket(path, systemClock);
    assert.notEqual(Deno.lstatSync(path).ino, before);
    assert.equal(mode(path), 0o600);
    await socket.close();
  }
});

Deno.test("socket: a file, a folder or a link is refused and left alone", async () => {
  using folder = new TestFolder();
  const path = folder.file("s.sock");
  const refused = { code: "path_exists", message: `refusing to replace non-socket path: ${path}` };
  Deno.writeTextFileSync(path, "precious");
  await assert.rejects(publishSocket(path, systemClock), refused);
  assert.equal(Deno.readTextFileSync(path), "precious");
  Deno.renameSync(path, folder.file("target"));
  await makeSymlink(folder.file("target"), path);
  await assert.rejects(publishSocket(path, systemClock), refused);
  assert.ok(Deno.lstatSync(path).isSymlink);
  Deno.removeSync(path);
  Deno.mkdirSync(path);
  await assert.rejects(publishSocket(path, systemClock), refused);
  await assert.rejects(publishSocket(folder.file("no/s.sock"), systemClock), Deno.errors.NotFound);
});

Deno.test("socket: an active endpoint is neither disturbed nor replaced", async () => {
  using folder = new TestFolder();
  const path = folder.file("s.sock");
  using listener = Deno.listen({ transport: "unix", path });
  const inode = Deno.lstatSync(path).ino;
  const accepted = listener.accept();
  await assert.rejects(publishSocket(path, systemClock), {
    code: "address_in_use",
    message: `socket endpoint is already active: ${path}`,
  });
  (await accepted).close();
  assert.equal(Deno.lstatSync(path).ino, inode);
  const client = Deno.connect({ transport: "unix", path });
  (await listener.accept()).close();
  (await client).close();
});

Deno.test("socket: what took the path over survives our exit", async () => {
  using folder = new TestFolder();
  const path = folder.file("s.sock");
  const first = await publishSocket(path, systemClock);
  Deno.removeSync(path);
  Deno.writeTextFileSync(path, "a file");
  await first.close();
  assert.equal(Deno.readTextFileSync(path), "a file");
  Deno.removeSync(path);

  const second = await publishSocket(path, systemClock);
  Deno.removeSync(path);
  using other = Deno.listen({ transport: "unix", path });
  await second.close();
  const client = Deno.connect({ transport: "unix", path });
  (await other.accept()).close();
  (await client).close();
});
