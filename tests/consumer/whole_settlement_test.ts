/**
 * The rows of spec/queue.md 5.2 and 5.3: each situation with a real broker and a real backend connection, the exact settlement as the
 * broker sees it, what the gateway gets, and the metric.
 */
import assert from "node:assert/strict";
import { eventually } from "../harness/process.ts";
import { type Value } from "../harness/work_items.ts";
import { ACK, FAILED, LATER, LOADING, NAK_BASE, NAK_HAND_OVER, STARTED } from "./whole_answers.ts";
import { type Behaviour, outcomeOf, READY, Whole, type WholeOptions } from "./whole_rig.ts";

interface Case {
  readonly name: string;
  readonly behaviour: Behaviour;
  readonly fields?: { readonly [key: string]: Value };
  readonly environment?: Record<string, string>;
  readonly config?: string;
  /** The settlement; undefined: none is sent. */
  readonly body: string | undefined;
  readonly metric?: string;
  /** Error code of the WorkResult that the gateway gets, "" for a success; undefined: it gets none. */
  readonly result?: string;
  readonly retryAfterS?: number;
  /** Progress is sent before. */
  readonly progress?: boolean;
}

const BIG_UNITS = Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`unit_${i}`, i]));

const GROUP: readonly Case[] = [
  {
    name: "5.2 a foreign hash",
    behaviour: {},
    fields: { bundle_config_hash: "somebody-else" },
    body: NAK_BASE,
    metric: "nak pool success retry",
  },
  {
    name: "5.2 EnsureModelReady fails",
    behaviour: { ready: () => "no" },
    body: NAK_BASE,
    metric: "nak pool success retry",
  },
  { name: "5.2 retry_later", behaviour: { ready: () => LATER }, body: NAK_BASE, metric: "nak pool success retry" },
  {
    name: "5.2 failed for good",
    behaviour: { ready: () => FAILED },
    body: ACK,
    metric: "ack pool success completed",
    result: "MODEL_LOAD_FAILED",
  },
  {
    name: "5.2 loading, then ready",
    behaviour: { ready: (question) => question === 1 ? STARTED : question === 2 ? LOADING : READY },
    body: ACK,
    metric: "ack pool success completed",
    result: "",
    progress: true,
  },
  {
    name: "5.2 load, and the model is ready",
    behaviour: {},
    fields: { operation: "load", reply_subject: "" },
    body: ACK,
    metric: "ack pool success completed",
  },
  {
    name: "5.2 an unknown operation",
    behaviour: {},
    fields: { operation: "transmogrify" },
    body: ACK,
    metric: "ack pool success completed",
    result: "bad_operation",
  },
  {
    name: "5.3 a payload that cannot be resolved",
    behaviour: {},
    fields: { item: null, payload_ref: "req_0.bin" },
    body: ACK,
    metric: "ack pool success completed",
    result: "payload_error",
  },
  {
    name: "5.3 media that are none",
    behaviour: {},
    fields: { operation: "extract", item: { images: [{ data: "text" }] }, output_types: null },
    body: ACK,
    metric: "ack pool success completed",
    result: "INVALID_INPUT",
  },
  {
    name: "5.3 RunBatch fails: the backend drains",
    behaviour: { run: "draining" },
    body: NAK_HAND_OVER,
    metric: "nak pool success retry",
  },
  { name: "5.3 RunBatch fails", behaviour: { run: "out of luck" }, body: NAK_BASE, metric: "nak pool success retry" },
  { name: "5.3 a result", behaviour: {}, body: ACK, metric: "ack pool success completed", result: "" },
  {
    name: "5.3 an error of the backend's",
    behaviour: {
      run: (item) =>
        outcomeOf(item, {
          disposition: "publish_error_and_ack",
          result_msgpack: { $bin: "" },
          error: "too odd",
          error_code: "ODD_INPUT",
        }),
    },
    body: ACK,
    metric: "ack pool success completed",
    result: "ODD_INPUT",
  },
  {
    name: "5.3 nobody wants the result",
    behaviour: {},
    fields: { reply_subject: "" },
    body: ACK,
    metric: "ack pool success completed",
  },
  {
    name: "5.3 a result that is too large for the transport",
    behaviour: { run: (item) => outcomeOf(item, { result_msgpack: { $bin_repeat: [0xc0, 40_000] } }) },
    fields: { accepts_result_chunks: false },
    config: "max_payload: 20000",
    body: ACK,
    metric: "ack pool success completed",
    result: "PAYLOAD_TOO_LARGE",
  },
  {
    name: "5.3 a result that cannot be published",
    behaviour: {
      run: (item) => outcomeOf(item, { result_msgpack: { $bin_repeat: [0xc0, 40_000] }, units: BIG_UNITS }),
    },
    fields: { accepts_result_chunks: false },
    config: "max_payload: 2000",
    body: undefined,
  },
  {
    name: "5.3 nak_retry with a delay",
    behaviour: {
      run: (item) => outcomeOf(item, { disposition: "nak_retry", nak_delay_ms: 1_234, result_msgpack: { $bin: "" } }),
    },
    body: '-NAK {"delay":1234000000}',
    metric: "nak pool success retry",
  },
  {
    name: "5.3 nak_retry without a delay",
    behaviour: { run: (item) => outcomeOf(item, { disposition: "nak_retry", result_msgpack: { $bin: "" } }) },
    body: NAK_BASE,
    metric: "nak pool success retry",
  },
  {
    name: "5.3 nak_retry of an item that stands in for a refused route",
    behaviour: {
      run: (item) => outcomeOf(item, { disposition: "nak_retry", nak_delay_ms: 2_500, result_msgpack: { $bin: "" } }),
    },
    fields: { fallback_reason: "local route refused" },
    body: ACK,
    metric: "ack pool success completed",
    result: "QUEUE_FULL",
    retryAfterS: 3,
  },
  {
    name: "5.3 no outcome for the item",
    behaviour: { run: () => undefined },
    body: NAK_BASE,
    metric: "nak pool success retry",
  },
  {
    name: "5.3 an outcome for somebody else",
    behaviour: { run: (item) => outcomeOf({ ...item, work_item_id: "stranger.0" }) },
    body: NAK_BASE,
    metric: "nak pool success retry",
  },
];

const optionsOf = ({ behaviour, environment, config }: Case): WholeOptions => ({
  behaviour,
  ...(environment === undefined ? {} : { environment }),
  ...(config === undefined ? {} : { config }),
});

for (const one of GROUP) {
  Deno.test(one.name, async () => {
    await using whole = await Whole.start(optionsOf(one));
    const request = await whole.gateway.send({ ...(one.fields === undefined ? {} : { fields: one.fields }) });
    if (one.body === undefined) {
      await eventually("it is left", () => whole.core.ledger.counts.left === 1);
      await whole.connection.flush();
      assert.deepEqual(whole.settlements(), []);
    } else {
      const [first] = await whole.settled(1);
      assert.equal(first, one.body);
      assert.ok((whole.metrics.counts[one.metric ?? ""] ?? 0) >= 1, JSON.stringify(whole.metrics.counts));
    }
    if (one.result !== undefined) {
      await eventually("the gateway has the result", () => request.results.has(0));
      assert.equal(request.results.get(0)?.errorCode ?? "", one.result);
      assert.equal(request.results.get(0)?.success, one.result === "");
      assert.equal(request.results.get(0)?.retryAfterS, one.retryAfterS);
    } else {
      await whole.gateway.nats.flush();
      assert.equal(request.results.size, 0);
    }
    assert.equal(whole.acks.count("+WPI") > 0, one.progress ?? false, "progress");
    await whole.stop();
  });
}

Deno.test("5.2 shutdown while a group waits for its model: handed over", async () => {
  await using whole = await Whole.start({ behaviour: { ready: () => LOADING } });
  await whole.gateway.send({ items: 5 });
  await eventually("the group waits", () => Object.keys(whole.core.dispatcher.waitingForModels()).length === 1);
  await eventually("progress was sent", () => whole.acks.count("+WPI") >= 5);
  whole.consumer.stopPulling();
  whole.shutdown.abort();
  assert.deepEqual(await whole.settled(5), Array(5).fill(NAK_HAND_OVER));
  await whole.stop();
});

Deno.test("5.2 parking is bounded: what finds no place is sent back; a warm model does not wait", async () => {
  await using whole = await Whole.start({
    environment: { SIE_NATS_FETCH_BUDGET: "8", SIE_PULL_LOOP_MAX_OUTSTANDING: "8" },
    behaviour: { ready: (question) => question <= 20 ? LOADING : READY },
  });
  const cold = await whole.gateway.send({ items: 20, fields: { model_id: "cold/model" } });
  await eventually("all places are taken", () => whole.core.dispatcher.waitingForModels()["cold/model"] === 8);
  await eventually("the others are sent back", () => (whole.metrics.counts["nak pool success retry"] ?? 0) >= 12);
  assert.ok(whole.settlements().every((body) => body === NAK_BASE));
  assert.equal(cold.results.size, 0);
  await whole.stop();
});

Deno.test("5.2 beyond the model's batch budget: the rest is handed over, in order, and comes again", async () => {
  await using whole = await Whole.start({ behaviour: { ready: () => ({ ...READY, batch_budget: 3 }) } });
  await whole.gateway.send({ items: 10 });
  await whole.gateway.answered();
  await eventually("everything is settled", () => whole.core.ledger.outstanding === 0);
  assert.ok((whole.metrics.counts["nak pool success retry"] ?? 0) >= 7);
  assert.ok(whole.settlements().every((body) => body === ACK || body === NAK_HAND_OVER));
  await whole.stop();
});

Deno.test("5.3 a large result goes out in chunks, and is ACKed after them", async () => {
  const size = 2_500_000;
  await using whole = await Whole.start({
    config: "max_payload: 1MB",
    behaviour: { run: (item) => outcomeOf(item, { result_msgpack: { $bin_repeat: [0xc0, size] } }) },
  });
  const request = await whole.gateway.send({ fields: { accepts_result_chunks: true } });
  await whole.gateway.answered();
  assert.deepEqual(await whole.settled(1), [ACK]);
  assert.equal(request.results.get(0)?.resultMsgpack.length, size);
  assert.equal(request.chunks, 4);
  await whole.stop();
});

Deno.test("5.2 and 5.3 a cancelled item is ACKed without a word at every checkpoint that it reaches", async () => {
  await using whole = await Whole.start({ behaviour: { ready: () => LOADING } });
  const request = await whole.gateway.send({ items: 4 });
  await eventually("the group waits", () => Object.keys(whole.core.dispatcher.waitingForModels()).length === 1);
  await whole.gateway.cancel(request.requestId);
  assert.deepEqual(await whole.settled(4), Array(4).fill(ACK));
  assert.equal(whole.gateway.strays, 0);
  assert.equal(whole.calls("RunBatch"), 0);
  await whole.stop();
});

Deno.test("5.2 an expired deadline is ACKed without a word when it is enforced", async () => {
  await using whole = await Whole.start({ environment: { SIE_WORK_DEADLINE_ENFORCE: "1" } });
  const now = Date.now() / 1000;
  await whole.gateway.send({ fields: { timestamp: now - 60, deadline: now - 30 } });
  assert.deepEqual(await whole.settled(1), [ACK]);
  assert.equal(whole.metrics.counts["ack pool success deadline_exceeded"], 1);
  assert.equal(whole.calls("RunBatch"), 0);
  await whole.stop();
});
