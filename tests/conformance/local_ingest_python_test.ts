/**
 * Local ingest between programs that nobody here wrote: the Python client of the wheel on our socket, the real backend behind it. The
 * client checks ids, sequence, types and the closing count, and computes the digest in its own way.
 */
import assert from "node:assert/strict";
import { LocalIngestClient } from "../../src/client/client.ts";
import { LocalIngestError } from "../../src/client/errors.ts";
import { runPeerScript, startBackend, startIpcHarness } from "../harness/peers.ts";
import { accepts, eventually, type ManagedProcess, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";

const GENERATOR = "gen-model";

type Json = Record<string, unknown>;

/** A sidecar whose local socket is there. It need not be ready: the wheel's IPC harness never says that it is. */
async function startSidecar(folder: TestFolder): Promise<Sidecar> {
  const sidecar = Sidecar.launch({
    env: {
      SIE_POOL: "default",
      SIE_BUNDLE: "fake",
      SIE_MACHINE_PROFILE: "cpu",
      SIE_SIDECAR_INGEST: "local",
      SIE_SIDECAR_LOCAL_SOCKET: folder.file("ingest.sock"),
      SIE_IPC_SOCKET_PATH: folder.file("ipc.sock"),
    },
  });
  try {
    await sidecar.process.until("the local socket accepts", () => accepts(folder.file("ingest.sock")));
    return sidecar;
  } catch (thrown) {
    await sidecar[Symbol.asyncDispose]();
    throw thrown;
  }
}

/** The wheel's IPC harness, which generates as its parameters say, and a sidecar in front of it. */
async function withHarness(
  options: readonly string[],
  run: (folder: TestFolder, sidecar: Sidecar) => Promise<void>,
): Promise<void> {
  using folder = new TestFolder();
  await using harness: ManagedProcess = await startIpcHarness(folder.file("ipc.sock"), [
    ...["--worker-id", "harness", "--fake-generate-model", GENERATOR],
    ...options,
  ]);
  await using sidecar = await startSidecar(folder);
  await run(folder, sidecar);
  await sidecar.stop();
  await harness.stop("SIGTERM");
}

/** Runs the Python client. @returns the chunks and how it ended */
async function python(
  folder: TestFolder,
  generate: Json,
  options: Record<string, string | number> = {},
): Promise<{ chunks: Json[]; end: Json }> {
  const output = await runPeerScript("ingest_stream.py", [
    ...["--socket", folder.file("ingest.sock"), "--generate", JSON.stringify(generate)],
    ...Object.entries({ "request-id": "py-1", model: GENERATOR, ...options }).flatMap(([name, value]) => [
      `--${name}`,
      String(value),
    ]),
  ]);
  const lines = output.trim().split("\n").map((line) => JSON.parse(line) as Json);
  const end = lines.pop();
  assert.ok(end !== undefined);
  return { chunks: lines, end };
}

/** As {@link python}, once the model has been loaded: a stream is refused while it is being loaded. */
async function pythonWhenLoaded(
  folder: TestFolder,
  generate: Json,
  options: Record<string, string | number>,
): Promise<{ chunks: Json[]; end: Json }> {
  return await eventually("the model is loaded", async () => {
    const answer = await python(folder, generate, options);
    return String(answer.end["error"]).startsWith("MODEL_LOADING: ") ? undefined : answer;
  });
}

function ourClient(folder: TestFolder): LocalIngestClient {
  return new LocalIngestClient({
    socketPath: folder.file("ingest.sock"),
    route: { pool: "default", machineProfile: "cpu", bundle: "fake", engine: "fake" },
  });
}

Deno.test("the Python client streams a generation from the real backend", async () => {
  using folder = new TestFolder();
  await using backend = await startBackend({ socket: folder.file("ipc.sock") });
  await using sidecar = await startSidecar(folder);
  const generate = { prompt: "hello", max_new_tokens: 16, stream: true };
  const { chunks, end } = await pythonWhenLoaded(folder, generate, { model: "peer-fake" });
  assert.ok(chunks.length > 1, JSON.stringify([chunks, end]));
  assert.deepEqual(end, { end: chunks.length });
  assert.deepEqual(chunks.map(({ seq }) => seq), chunks.map((_, i) => i));
  assert.deepEqual(chunks.map(({ done }) => done), chunks.map((_, i) => i === chunks.length - 1));
  assert.equal(new Set(chunks.map(({ attempt_id }) => attempt_id)).size, 1);
  // Our client gets the same text for the same prompt.
  using client = ourClient(folder);
  let text = "";
  for await (const chunk of client.generate({ model: "peer-fake", parameters: generate })) text += chunk.textDelta;
  assert.equal(text, chunks.map(({ text_delta }) => text_delta).join(""));
  assert.ok(text.length > 0);
  await sidecar.stop();
  await backend.stop("SIGTERM");
});

Deno.test("the Python client goes away in mid-stream: the backend stops", async () => {
  using folder = new TestFolder();
  await using backend = await startBackend({ socket: folder.file("ipc.sock") });
  await using sidecar = await startSidecar(folder);
  const generate = { prompt: "hello", max_new_tokens: 200, stream: true };
  const first = await pythonWhenLoaded(folder, generate, { model: "peer-fake:slow-gen", "stop-after": 2 });
  assert.deepEqual([first.chunks.length, first.end], [2, { end: 2 }]);
  // The claim is given back only after the backend's stream has ended; until then the request id is taken.
  const again = await eventually("the same request id may be used again", async () => {
    const answer = await python(folder, generate, { model: "peer-fake:slow-gen", "stop-after": 1 });
    return answer.chunks.length === 1 ? answer : undefined;
  });
  assert.deepEqual(again.end, { end: 1 });
  await sidecar.stop();
  await backend.stop("SIGTERM");
});

Deno.test("media in base64 reaches the backend as bytes", async () => {
  await withHarness([], async (folder) => {
    const messages = [{ role: "user", content: "see", images: [{ data: btoa("pixels"), format: "png" }] }];
    const { chunks, end } = await python(folder, { messages, max_new_tokens: 1 });
    assert.deepEqual(end, { end: 1 });
    assert.ok(
      JSON.stringify(chunks[0]).includes('"image_data_is_bytes": true') || isTrue(chunks[0], "image_data_is_bytes"),
    );
  });
});

Deno.test("a backend that wants the work elsewhere, and one that is loading", async () => {
  await withHarness([], async (folder) => {
    const { chunks, end } = await python(folder, { prompt: "x", max_new_tokens: 1, test_nak_reason: "kv_budget" });
    assert.deepEqual(chunks, []);
    assert.deepEqual(end, { error: "RETRY_LATER: generation backend requested retry: kv_budget" });
  });
  await withHarness(["--readiness", "loading_started"], async (folder) => {
    const { end } = await python(folder, { prompt: "x", max_new_tokens: 1 });
    assert.deepEqual(end, { error: `MODEL_LOADING: model "${GENERATOR}" is loading` });
  });
});

Deno.test("the deadline reaches the Python client as TIMEOUT, after the backend's own end", async () => {
  await withHarness([], async (folder) => {
    const generate = { prompt: "x", max_new_tokens: 1, wait_for_cancel: true };
    const { chunks, end } = await python(folder, generate, { "timeout-ms": 300 });
    assert.deepEqual(chunks.map(({ text_delta }) => text_delta), ["started"]);
    assert.deepEqual(end, { error: "TIMEOUT: generation timed out after 300ms" });
  });
});

Deno.test("our client's cancel ends a generation of the real IPC server in order", async () => {
  await withHarness([], async (folder) => {
    using client = ourClient(folder);
    const parameters = { prompt: "x", max_new_tokens: 1, wait_for_cancel: true };
    const stream = client.generate({ model: GENERATOR, parameters });
    const reasons: (string | undefined)[] = [];
    for await (const chunk of stream) {
      reasons.push(chunk.finishReason);
      if (chunk.seq === 0) await stream.cancel();
    }
    assert.deepEqual(reasons, [undefined, "cancelled"]);
  });
});

Deno.test("faults of the Python client's request are answered in words it can show", async () => {
  await withHarness([], async (folder) => {
    const parameters = { prompt: "x", max_new_tokens: 1 };
    const foreign = await python(folder, parameters, { pool: "other" });
    assert.deepEqual(foreign.end, {
      error: 'POOL_ADMISSION_REJECTED: lane pool "default" does not serve admission_pool "other"',
    });
    const stale = await python(folder, parameters, { hash: "stale" });
    assert.match(String(stale.end["error"]), /^BUNDLE_CONFIG_MISMATCH: /);
    const spaced = await python(folder, parameters, { "request-id": "a b" });
    assert.deepEqual(spaced.end, { error: "INVALID_TRANSPORT_BINDING: invalid generation request_id" });
    // A trace context changes neither the digest nor the answer.
    const traced = await python(folder, parameters, {
      traceparent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
    });
    assert.deepEqual(traced.end, { end: 1 });
    using client = ourClient(folder);
    await assert.rejects(
      client.publishWork({ operation: "encode", model: GENERATOR, inputs: [] }),
      (thrown) => thrown instanceof LocalIngestError && thrown.reason === "InvalidTransportBinding",
    );
  });
});

/** Whether a member of this name is true, wherever it lies. */
function isTrue(value: unknown, name: string): boolean {
  if (typeof value === "string") {
    try {
      return isTrue(JSON.parse(value), name);
    } catch {
      return false;
    }
  }
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([key, member]) => (key === name && member === true) || isTrue(member, name));
}
