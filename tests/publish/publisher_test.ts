/** Publishing results: the three ways, the limits at their edges, and each way in which it can fail. */
import assert from "node:assert/strict";
import type { ResultSender } from "../../src/dispatch/result_sender.ts";
import { PROCESS_REASSEMBLY_BYTES, ReassemblyBudget, RequestReceiver } from "../../src/gateway/chunk_receiver.ts";
import { type LargeResult, publishLarge, publishSingle, type ResultChannel } from "../../src/publish/publisher.ts";
import { ResultPublisher } from "../../src/publish/result_sender.ts";
import { sha256 } from "../../src/runtime/digest.ts";
import { INLINE_INPUT } from "../../src/wire/ipc/batch_items.ts";
import { readResultChunk } from "../../src/wire/result_chunk.ts";
import { decodeWorkResult } from "../../src/wire/work_result_reader.ts";
import { decodeNotation, encodeNotation } from "../harness/notation.ts";
import type { Value } from "../harness/work_items.ts";
import { finishedItem, frozenClock, largeAnswerOf, RecordedPublisher, RecordingChannel } from "./rig.ts";

const MIB = 1024 * 1024;

/** Publishes one outcome; tells what was sent and what was reported. */
async function publish(
  channel: RecordingChannel,
  outcome: { readonly [key: string]: Value },
  fields: { readonly [key: string]: Value } = {},
) {
  const { publisher, outcomes } = new RecordedPublisher();
  const answer = largeAnswerOf([outcome]);
  const [first] = answer.outcomes;
  assert.ok(first !== undefined);
  const sent = await publisher.outcome(finishedItem(channel, fields), answer, first, "");
  return { sent, reported: outcomes[0], outcomes };
}

function payload(length: number): { readonly result_msgpack: Uint8Array } {
  return { result_msgpack: new Uint8Array(length).fill(1) };
}

/** Puts chunks together as a gateway does. */
function reassembled(messages: readonly Uint8Array[]) {
  const receiver = new RequestReceiver("req-1", 1, new ReassemblyBudget(PROCESS_REASSEMBLY_BYTES));
  const verdicts = messages.map((message) => receiver.accept(readResultChunk(message)));
  const last = verdicts.at(-1);
  assert.ok(last?.kind === "complete", last?.kind);
  return last.result;
}

Deno.test("dispatch can use the publisher as its sender", () => {
  const sender: ResultSender = new ResultPublisher({ workerId: "w", clock: frozenClock(0) });
  assert.ok(sender instanceof ResultPublisher);
});

Deno.test("the ordinary path answers at once, without a promise", () => {
  const { publisher } = new RecordedPublisher();
  const channel = new RecordingChannel();
  const answer = largeAnswerOf([payload(100)]);
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined);
  assert.equal(publisher.outcome(finishedItem(channel), answer, outcome, ""), true);
  assert.equal(publisher.refusal(channel, finishedItem(channel).work, { code: "x", message: "y" }), true);
  assert.equal(channel.messages.length, 2);
  channel.beforePublish = () => {
    throw new Error("closed");
  };
  assert.equal(publisher.outcome(finishedItem(channel), answer, outcome, ""), false);
});

Deno.test("a transport that makes the caller wait is waited for", async () => {
  const { publisher, outcomes } = new RecordedPublisher();
  const channel = new RecordingChannel();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  channel.beforePublish = () => promise;
  const answer = largeAnswerOf([payload(100)]);
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined);
  const sent = publisher.outcome(finishedItem(channel), answer, outcome, "");
  assert.ok(sent instanceof Promise);
  assert.equal(outcomes.length, 0);
  resolve();
  assert.equal(await sent, true);
  reject();
  const failing = Promise.reject(new Error("closed"));
  channel.beforePublish = () => failing;
  assert.equal(await publisher.outcome(finishedItem(channel), answer, outcome, ""), false);
  assert.deepEqual(outcomes.map((one) => "failed" in one ? one.failed : one.published), ["single", "publish"]);
});

Deno.test("an empty reply subject is fire and forget, except for the local caller", async () => {
  for (const replySubject of ["", "  "]) {
    const channel = new RecordingChannel();
    const { sent, outcomes } = await publish(channel, payload(10), { reply_subject: replySubject });
    assert.deepEqual([sent, channel.messages.length, outcomes.length], [true, 0, 0]);
  }
  const local = new RecordingChannel(MIB, "local");
  await publish(local, payload(10), { reply_subject: "" });
  assert.equal(local.messages.length, 1);
  assert.equal(decodeWorkResult(local.messages[0] ?? new Uint8Array()).workerDirect, true);
});

Deno.test("exactly the limit is one message, one byte more is not", async () => {
  const measure = new RecordingChannel(1 << 28);
  await publish(measure, payload(5000));
  const length = measure.messages[0]?.length ?? 0;
  const exact = new RecordingChannel(length);
  assert.deepEqual((await publish(exact, payload(5000))).reported, { published: "single" });
  assert.deepEqual(exact.messages, measure.messages);
  const less = new RecordingChannel(length - 1);
  assert.deepEqual((await publish(less, payload(5000))).reported, { published: "chunked" });
  assert.equal(reassembled(less.messages).resultMsgpack.length, 5000);
  const old = new RecordingChannel(length - 1);
  const { reported } = await publish(old, payload(5000), { accepts_result_chunks: false });
  assert.deepEqual(reported, { published: "compact" });
  const compact = decodeWorkResult(old.messages[0] ?? new Uint8Array());
  assert.equal(
    compact.error,
    `Encoded result exceeds the transport limit (${length} > ${length - 1} bytes); ` +
      "reduce the input length or requested output size.",
  );
});

Deno.test("a large result of each kind arrives whole, and is flushed at least every four chunks", async () => {
  const floats = 1_200_000;
  const halves = new Uint8Array(2 * floats).fill(60);
  const outcomes: readonly { readonly [key: string]: Value }[] = [
    payload(12 * MIB),
    {
      raw_output: {
        multivector: { values: [], num_tokens: floats, token_dims: 1, dtype: "float16", values_f16: halves },
      },
    },
  ];
  for (const outcome of outcomes) {
    const whole = new RecordingChannel(1 << 28), cut = new RecordingChannel(MIB);
    await publish(whole, outcome);
    const { sent, reported } = await publish(cut, outcome);
    assert.deepEqual([sent, reported], [true, { published: "chunked" }]);
    const [arrived, wanted] = [reassembled(cut.messages), decodeWorkResult(whole.messages[0] ?? new Uint8Array())];
    assert.deepEqual(sha256(arrived.resultMsgpack), sha256(wanted.resultMsgpack));
    assert.deepEqual({ ...arrived, resultMsgpack: 0 }, { ...wanted, resultMsgpack: 0 });
    const flushes = cut.log.map((entry, i) => entry === "flush" ? i : -1).filter((i) => i >= 0);
    assert.equal(flushes.at(-1), cut.log.length - 1);
    flushes.forEach((at, i) => assert.ok(at - (flushes[i - 1] ?? -1) <= 5));
  }
});

Deno.test("a transfer of 16 MiB takes four envelopes of memory, and no copy of the result", async () => {
  const { publisher } = new RecordedPublisher();
  const answer = largeAnswerOf([payload(16 * MIB - 1000)]);
  const [outcome] = answer.outcomes;
  assert.ok(outcome !== undefined);
  // What the answer was made from would be freed at some moment and hide what is allocated.
  const external = () => Deno.memoryUsage().external;
  let peak = 0, chunks = 0;
  const before = external();
  const channel: ResultChannel = {
    source: "pool",
    workerDirect: false,
    maxPayload: MIB,
    publish() {
      chunks++;
      peak = Math.max(peak, external() - before);
    },
    flush: () => Promise.resolve(),
  };
  assert.equal(await publisher.outcome(finishedItem(channel), answer, outcome, ""), true);
  assert.equal(chunks, 22);
  assert.ok(peak < 5 * MIB, `${peak} bytes at the peak`);
});

Deno.test("the compact error keeps what is known of the run, and drops what made it too large", async () => {
  const channel = new RecordingChannel(700);
  const id = "x".repeat(2000);
  const { reported } = await publish(channel, {
    raw_output: { dense: { values: [0.5], dim: 1 } },
    inference_ms: 17.5,
    units: { input_tokens: 9 },
  }, { accepts_result_chunks: false, item: { id } });
  assert.deepEqual(reported, { published: "compact" });
  const result = decodeWorkResult(channel.messages[0] ?? new Uint8Array());
  assert.deepEqual(
    [result.success, result.errorCode, result.inferenceMs, result.units, result.resultMsgpack.length],
    [false, "PAYLOAD_TOO_LARGE", 17.5, { input_tokens: 9n }, 0],
  );
});

Deno.test("an error whose own text is too large gives way to the compact error", async () => {
  const channel = new RecordingChannel(600);
  const text = "why ".repeat(1000);
  const outcome = { disposition: "publish_error_and_ack", error: text, error_code: "inference_error" };
  assert.deepEqual((await publish(channel, outcome, { accepts_result_chunks: false })).reported, {
    published: "compact",
  });
  const { publisher } = new RecordedPublisher();
  const { work } = finishedItem(channel, { accepts_result_chunks: false });
  assert.equal(await publisher.refusal(channel, work, { code: "x", message: text }), true);
  for (const message of channel.messages) assert.equal(decodeWorkResult(message).errorCode, "PAYLOAD_TOO_LARGE");
});

Deno.test("a limit below even the compact error is a failure that publishes nothing", async () => {
  const channel = new RecordingChannel(1);
  const { sent, reported } = await publish(channel, payload(10));
  assert.equal(sent, false);
  assert.ok(reported !== undefined && "failed" in reported && reported.failed === "planning");
  assert.match(String(reported.error), /MessageTooLargeError: the compact error of \d+ bytes exceeds .* of 1 bytes/);
  assert.deepEqual(channel.log, []);
});

Deno.test("the first failure ends a transfer", async (t) => {
  const refuse = () => {
    throw new Error("closed");
  };
  await t.step("of a chunk", async () => {
    const channel = new RecordingChannel(MIB);
    channel.beforePublish = (count) => count === 2 ? refuse() : undefined;
    const { sent, reported } = await publish(channel, payload(5 * MIB));
    assert.deepEqual([sent, channel.log.length], [false, 2]);
    assert.ok(reported !== undefined && "failed" in reported && reported.failed === "publish");
  });
  await t.step("of a chunk that was waited for", async () => {
    const channel = new RecordingChannel(MIB);
    channel.beforePublish = (count) => count === 1 ? Promise.reject(new Error("closed")) : Promise.resolve();
    const { sent } = await publish(channel, payload(5 * MIB));
    assert.deepEqual([sent, channel.log.length], [false, 1]);
  });
  await t.step("of a flush in between", async () => {
    const channel = new RecordingChannel(MIB);
    channel.beforeFlush = refuse;
    const { sent, reported } = await publish(channel, payload(5 * MIB));
    assert.deepEqual([sent, channel.messages.length], [false, 4]);
    assert.ok(reported !== undefined && "failed" in reported && reported.failed === "flush");
  });
  await t.step("of the last flush", async () => {
    const channel = new RecordingChannel(MIB);
    channel.beforeFlush = (count) => count === 1 ? refuse() : undefined;
    const { sent, reported } = await publish(channel, payload(5 * MIB));
    assert.deepEqual([sent, channel.messages.length], [false, 7]);
    assert.ok(reported !== undefined && "failed" in reported && reported.failed === "flush");
  });
  await t.step("a limit that was lowered on the way", async () => {
    const channel = new RecordingChannel(MIB);
    channel.beforeFlush = () => void (channel.maxPayload = 1000);
    const { sent, reported } = await publish(channel, payload(5 * MIB));
    assert.deepEqual([sent, channel.messages.length], [false, 4]);
    assert.ok(reported !== undefined && "failed" in reported);
    assert.match(String(reported.error), /a result chunk of \d+ bytes exceeds the transport limit of 1000 bytes/);
  });
});

Deno.test("chunks and their flush follow each other without giving up the turn", async () => {
  // A connection that is lost in a later turn must not lose chunks that no flush will miss.
  const channel = new RecordingChannel(MIB);
  let turn = 0, published = -1;
  const turns: [number, number][] = [];
  channel.beforePublish = (count) => {
    if (count % 4 === 0) {
      published = turn;
      queueMicrotask(() => turn++);
    }
  };
  channel.beforeFlush = () => void turns.push([published, turn]);
  await publish(channel, payload(5 * MIB));
  assert.equal(turns.length, 2);
  for (const [first, flushed] of turns) assert.equal(first, flushed);
});

Deno.test("large results are made and sent one after the other, in order, and a failure holds up nobody", async () => {
  const { publisher, outcomes } = new RecordedPublisher();
  const answer = largeAnswerOf([payload(2 * MIB), payload(2 * MIB), payload(2 * MIB)]);
  const channel = new RecordingChannel(MIB);
  const active = new Set<number>();
  const sent = answer.outcomes.map((outcome, index) => {
    const own = new RecordingChannel(MIB);
    own.beforePublish = () => {
      active.add(index);
      assert.equal(active.size, 1, "two large results at once");
      if (index === 1) {
        active.delete(index);
        throw new Error("closed");
      }
    };
    own.beforeFlush = () => void active.delete(index);
    return publisher.outcome({ ...finishedItem(channel), delivery: own }, answer, outcome, "");
  });
  assert.deepEqual(await Promise.all(sent), [true, false, true]);
  assert.deepEqual(outcomes.map((one) => "published" in one), [true, false, true]);
});

Deno.test("the caller's id is that of the item that ran", async () => {
  const idOf = async (item: Value, fetched?: unknown, operation = "encode") => {
    const channel = new RecordingChannel();
    const { publisher } = new RecordedPublisher();
    const answer = largeAnswerOf([{ raw_output: { dense: { values: [0.5], dim: 1 } } }]);
    const [outcome] = answer.outcomes;
    assert.ok(outcome !== undefined);
    const input = fetched === undefined ? INLINE_INPUT : { item: encodeNotation(fetched), payloadFetchMs: 3.5 };
    await publisher.outcome(finishedItem(channel, { item, operation }, input), answer, outcome, "");
    const result = decodeWorkResult(channel.messages[0] ?? new Uint8Array());
    assert.equal(result.payloadFetchMs, fetched === undefined ? undefined : 3.5);
    const framed = decodeNotation(result.resultMsgpack) as { readonly id?: string };
    return framed.id;
  };
  assert.equal(await idOf({ id: "abc" }), "abc");
  assert.equal(await idOf(null, { id: "def" }), "def");
  assert.equal(await idOf({ id: 5 }), undefined);
  assert.equal(await idOf(null), undefined);
  assert.equal(await idOf({ id: "abc" }, undefined, "extract"), undefined);
});

Deno.test("pieces that fit after all go out as one message", async () => {
  const channel = new RecordingChannel(10);
  const result: LargeResult = {
    pieces: [Uint8Array.of(1, 2), new Uint8Array(0), Uint8Array.of(3)],
    identity: { workItemId: new Uint8Array(1), requestId: new Uint8Array(1), itemIndex: 0 },
    compact: () => {
      throw new Error("not needed");
    },
  };
  assert.deepEqual(await publishLarge(channel, "x", true, result), { published: "single" });
  assert.deepEqual(channel.log, [Uint8Array.of(1, 2, 3)]);
  const failing = new RecordingChannel(10);
  failing.beforePublish = () => {
    throw new Error("closed");
  };
  const outcome = publishSingle(failing, "x", new Uint8Array(1));
  assert.ok("failed" in outcome && outcome.failed === "publish");
});
