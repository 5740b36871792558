/** The client library against our own server on a real socket. */
import assert from "node:assert/strict";
import { LocalIngestError } from "../../src/client/errors.ts";
import type { GenerationChunk } from "../../src/client/generation_stream.ts";
import { decodeValue } from "../../src/client/values.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { LocalIngestClient } from "../../src/client/client.ts";
import { ServerRig } from "../local_ingest/server_rig.ts";

async function collect(stream: AsyncIterable<GenerationChunk>): Promise<GenerationChunk[]> {
  const chunks: GenerationChunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

function isFault(fault: string, message?: RegExp): (thrown: unknown) => boolean {
  return (thrown) =>
    thrown instanceof LocalIngestError && thrown.fault === fault &&
    (message === undefined || message.test(thrown.message));
}

Deno.test("ping answers", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  await client.ping();
  await Promise.all(Array.from({ length: 20 }, () => client.ping()));
});

Deno.test("a batch call gives one result per input, in their order", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const inputs = Array.from({ length: 100 }, (_, i) => ({ item: { id: `doc-${i}`, text: `text ${i}` } }));
  const results = await client.publishWork({ operation: "encode", model: "test/model", inputs, requestId: "call-1" });
  assert.equal(results.length, 100);
  for (const [i, result] of results.entries()) {
    assert.equal(result.workItemId, `call-1.${i}`);
    assert.equal(result.success, true);
    assert.equal(result.workerDirect, true);
    assert.deepEqual(decodeValue(result.resultMsgpack), { answer: `call-1.${i}` });
  }
  // 64 items fit a batch budget; each of the others was sent back once and came through alone.
  assert.equal(rig.parts.ledger.counts.naked, 36);
});

Deno.test("score and extract carry their own fields", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  await client.publishWork({
    operation: "score",
    model: "test/model",
    inputs: [{ queryItem: { text: "q" }, scoreItems: [{ id: "a", text: "x" }, { id: "b", text: "y" }] }],
  });
  await client.publishWork({
    operation: "extract",
    model: "test/model",
    inputs: [{ item: { text: "Berlin" }, labels: ["place"], options: { threshold: 0.5 } }],
  });
  assert.deepEqual(rig.backend.batches.map(({ operation }) => operation), ["score", "extract"]);
});

Deno.test("a refused call says why", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const call = client.publishWork({ operation: "encode", model: "m", inputs: [] });
  await assert.rejects(call, (thrown) => {
    assert.ok(thrown instanceof LocalIngestError);
    assert.equal(thrown.fault, "refused");
    assert.equal(thrown.reason, "InvalidTransportBinding");
    return true;
  });
  // The connection is still good.
  await client.ping();
});

Deno.test("a generation arrives chunk by chunk and ends", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const stream = client.generate({ model: "test/model", parameters: { prompt: "Once", chunks: 5, text: "la " } });
  const chunks = await collect(stream);
  assert.deepEqual(chunks.map(({ seq }) => seq), [0, 1, 2, 3, 4, 5]);
  assert.equal(chunks.map(({ textDelta }) => textDelta).join(""), "la la la la la ");
  assert.equal(chunks.at(-1)?.done, true);
  assert.equal(chunks.at(-1)?.finishReason, "stop");
  await assert.rejects(collect(stream), TypeError);
});

Deno.test("a generation is stamped with the hash it ran under", async () => {
  await using rig = await ServerRig.start({ hash: "h1" });
  using client = rig.client({
    route: { pool: "default", machineProfile: "cpu", bundle: "test", bundleConfigHash: "h1" },
  });
  const chunks = await collect(client.generate({ model: "test/model", parameters: { chunks: 1 } }));
  assert.deepEqual(chunks.map(({ fields }) => fields["executed_bundle_config_hash"]), ["h1", "h1"]);
  using stranger = rig.client({
    route: { pool: "default", machineProfile: "cpu", bundle: "test", bundleConfigHash: "h2" },
  });
  await assert.rejects(
    collect(stranger.generate({ model: "test/model", parameters: { chunks: 1 } })),
    isFault("refused", /^BUNDLE_CONFIG_MISMATCH: /),
  );
});

Deno.test("cancel ends a generation in order", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const stream = client.generate({ model: "test/model", parameters: { chunks: 2, hold: true } });
  const chunks: GenerationChunk[] = [];
  for await (const chunk of stream) {
    chunks.push(chunk);
    if (chunk.seq === 1) await stream.cancel();
  }
  assert.equal(chunks.at(-1)?.finishReason, "cancelled");
  assert.deepEqual(rig.backend.cancelled, [stream.requestId]);
});

Deno.test("cancel before the iteration starts nothing", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const stream = client.generate({ model: "test/model", parameters: { chunks: 2 } });
  await stream.cancel();
  assert.deepEqual(await collect(stream), []);
  assert.equal(rig.backend.talks.size, 0);
});

Deno.test("leaving the loop cancels the generation", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const told = Promise.withResolvers<string>();
  rig.backend.onCancel = told.resolve;
  const stream = client.generate({ model: "test/model", parameters: { chunks: 1, hold: true } });
  for await (const chunk of stream) {
    assert.equal(chunk.seq, 0);
    break;
  }
  assert.equal(await told.promise, stream.requestId);
});

Deno.test("an aborted signal ends a generation that waits for its next chunk", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const told = Promise.withResolvers<string>();
  rig.backend.onCancel = told.resolve;
  const abort = new AbortController();
  const stream = client.generate({ model: "test/model", parameters: { chunks: 1, hold: true } }, abort.signal);
  const iterating = (async () => {
    for await (const chunk of stream) if (chunk.seq === 0) queueMicrotask(() => abort.abort("enough"));
  })();
  await assert.rejects(iterating, isFault("aborted", /enough/));
  assert.equal(await told.promise, stream.requestId);
});

Deno.test("an aborted signal ends a call, and its late answer harms nobody", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const gate = Promise.withResolvers<void>();
  const answer = rig.backend.answer;
  rig.backend.answer = async (body) => {
    await gate.promise;
    return await answer(body);
  };
  const abort = new AbortController();
  const inputs = [{ item: { text: "x" } }];
  const call = client.publishWork({ operation: "encode", model: "test/model", inputs }, abort.signal);
  abort.abort("enough");
  await assert.rejects(call, isFault("aborted"));
  gate.resolve();
  const results = await client.publishWork({ operation: "encode", model: "test/model", inputs });
  assert.equal(results.length, 1);
});

Deno.test("a missing socket is a clear error, and the next call tries again", async () => {
  using folder = new TestFolder();
  const route = { pool: "default", machineProfile: "cpu", bundle: "test" };
  using client = new LocalIngestClient({ socketPath: folder.file("nobody.sock"), route });
  await assert.rejects(client.ping(), isFault("connect", /nobody\.sock/));
  await assert.rejects(client.ping(), isFault("connect"));
});

Deno.test("a lost connection fails the calls on it, and the next call has a new one", async () => {
  const rig = await ServerRig.start();
  using client = rig.client();
  await client.ping();
  const gate = Promise.withResolvers<void>();
  const answer = rig.backend.answer;
  const asked = Promise.withResolvers<void>();
  rig.backend.answer = async (body) => {
    asked.resolve();
    await gate.promise;
    return await answer(body);
  };
  const inputs = [{ item: { text: "x" } }];
  const call = client.publishWork({ operation: "encode", model: "test/model", inputs });
  await asked.promise;
  await Promise.all([rig.server.close(), assert.rejects(call, isFault("refused", /^cancelled$/))]);
  gate.resolve();
  await eventually("the client knows that its connection is gone", async () => {
    await assert.rejects(client.ping(), isFault("connect"));
    return true;
  });
  await rig[Symbol.asyncDispose]();
});

Deno.test("a request that does not fit a frame is refused before it is sent", async () => {
  await using rig = await ServerRig.start();
  using client = rig.client();
  const inputs = [{ item: { blob: new Uint8Array(64 * 1024 * 1024) } }];
  const call = client.publishWork({ operation: "encode", model: "test/model", inputs });
  await assert.rejects(call, isFault("too_large"));
  await client.ping();
});
