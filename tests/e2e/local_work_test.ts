/** Work through the local socket of the program as users start it. */
import assert from "node:assert/strict";
import { accepts, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";
import { assertStubResult, itemFields, LANE, LocalCaller, stubBackend } from "./rig.ts";

function settings(folder: TestFolder, backend: string): Record<string, string> {
  return {
    ...LANE,
    SIE_SIDECAR_INGEST: "local",
    SIE_SIDECAR_LOCAL_SOCKET: folder.file("ingest.sock"),
    SIE_IPC_SOCKET_PATH: backend,
  };
}

Deno.test("local: items of each operation come back, and the end is clean", async () => {
  using folder = new TestFolder();
  await using backend = stubBackend();
  const env = { ...settings(folder, backend.path), SIE_TRACE_FILE: folder.file("trace.jsonl") };
  await using sidecar = await Sidecar.start({ env });
  {
    using caller = await LocalCaller.connect(folder.file("ingest.sock"));
    assert.equal((await caller.ping()).ok, true);
    for (const operation of ["encode", "score", "extract"] as const) {
      const request = `req-${operation}`;
      const items = operation === "score"
        ? [itemFields(operation, request)]
        : [0, 1, 2].map((index) => itemFields(operation, request, index, 3));
      const results = await caller.publishWork(items);
      assert.equal(results.length, items.length);
      for (const [index, result] of results.entries()) assertStubResult(result, `${request}.${index}`, operation);
    }
  }
  await sidecar.stop();
  assert.ok(backend.requests.some(({ method }) => method === "Drain"), "the backend was not drained");
  await assert.rejects(Deno.lstat(folder.file("ingest.sock")), Deno.errors.NotFound);
  const trace = (await Deno.readTextFile(folder.file("trace.jsonl"))).trim().split("\n").map((line) =>
    JSON.parse(line)
  );
  assert.ok(trace.length >= 7, JSON.stringify(trace));
});

Deno.test("local: the socket belongs to its owner alone", async () => {
  using folder = new TestFolder();
  await using backend = stubBackend();
  await using sidecar = await Sidecar.start({ env: settings(folder, backend.path) });
  const { mode } = await Deno.lstat(folder.file("ingest.sock"));
  assert.equal((mode ?? 0) & 0o777, 0o600);
  await sidecar.stop("SIGINT");
});

Deno.test("local: without a backend it is alive and not ready, and becomes ready when one comes", async () => {
  using folder = new TestFolder();
  await using sidecar = Sidecar.launch({ env: settings(folder, folder.file("late.sock")) });
  await sidecar.untilHealthy();
  assert.equal(await sidecar.probe("/readyz"), 503);
  await using backend = stubBackend(folder.file("late.sock"));
  await sidecar.untilReady();
  using caller = await LocalCaller.connect(folder.file("ingest.sock"));
  const [result] = await caller.publishWork([itemFields("encode", "req-late")]);
  assert.ok(result !== undefined);
  assertStubResult(result, "req-late.0", "encode");
  assert.ok(backend.connections > 0);
  await sidecar.stop();
});

Deno.test("local: a second sidecar does not take the socket of a living one", async () => {
  using folder = new TestFolder();
  await using backend = stubBackend();
  await using first = await Sidecar.start({ env: settings(folder, backend.path) });
  await using second = Sidecar.launch({ env: settings(folder, backend.path) });
  const { code } = await second.process.end();
  assert.equal(code, 1, second.process.output());
  assert.equal(await accepts(folder.file("ingest.sock")), true);
  await first.stop();
});
