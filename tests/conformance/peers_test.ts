/** The peers start and stop as the harness promises, so that a failing conformance test speaks about the sidecar. */
import assert from "node:assert/strict";
import { peersFolder, startBackend, startIpcHarness } from "../harness/peers.ts";
import { accepts, TestFolder } from "../harness/process.ts";

Deno.test("the real backend listens, and removes its socket when it is told to end", async () => {
  using folder = new TestFolder();
  const socket = folder.file("ipc.sock");
  await using backend = await startBackend({ socket });
  assert.equal(await accepts(socket), true);
  const status = await backend.stop("SIGTERM");
  assert.equal(status.code, 143, backend.output());
  await assert.rejects(Deno.lstat(socket), Deno.errors.NotFound);
});

Deno.test("the wheel's IPC harness listens", async () => {
  using folder = new TestFolder();
  const socket = folder.file("ipc.sock");
  await using harness = await startIpcHarness(socket);
  assert.equal(await accepts(socket), true);
  await harness.stop("SIGTERM");
});

Deno.test("the version is the one that the specifications were read from", async () => {
  const { stdout } = await new Deno.Command(`${peersFolder()}/venv/bin/python`, {
    args: ["-c", "from importlib.metadata import version; print(version('sie-server'))"],
  }).output();
  assert.equal(new TextDecoder().decode(stdout).trim(), "0.10.1");
});
