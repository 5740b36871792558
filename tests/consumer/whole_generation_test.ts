/** The rows of spec/queue.md 5.4, generation: each situation with a real broker and a real backend connection. */
import assert from "node:assert/strict";
import { toHex } from "../harness/paths.ts";
import { eventually } from "../harness/process.ts";
import { msgpack, type Value } from "../harness/work_items.ts";
import { ACK, FAILED, LATER, LOADING, NAK_BASE, NAK_HAND_OVER, STARTED } from "./whole_answers.ts";
import { type Behaviour, Whole } from "./whole_rig.ts";

const REPLY = "_INBOX.gw-1.gen-1";

/** One chunk of a generation, as the backend makes it. */
function chunk(seq: number, done: boolean): Record<string, unknown> {
  const payload = msgpack({
    kind: "chunk",
    request_id: "gen-1",
    attempt_id: "attempt-1",
    seq,
    text_delta: "x",
    done,
    ...(done ? { finish_reason: "stop" } : {}),
  });
  return { kind: "publish", reply_subject: REPLY, payload: { $bin: toHex(payload) } };
}

interface StreamCase {
  readonly name: string;
  readonly behaviour: Behaviour;
  readonly fields?: { readonly [key: string]: Value };
  readonly body: string;
  /** Chunks that the gateway gets. */
  readonly chunks: number;
  readonly errorCode?: string;
  readonly progress?: boolean;
}

const STREAMS: readonly StreamCase[] = [
  { name: "5.4 EnsureModelReady fails", behaviour: { ready: () => "no" }, body: NAK_BASE, chunks: 0 },
  { name: "5.4 EnsureModelReady: draining", behaviour: { ready: () => "draining" }, body: NAK_HAND_OVER, chunks: 0 },
  {
    name: "5.4 loading has started",
    behaviour: { ready: () => STARTED },
    body: ACK,
    chunks: 1,
    errorCode: "MODEL_LOADING",
  },
  { name: "5.4 still loading", behaviour: { ready: () => LOADING }, body: ACK, chunks: 1, errorCode: "MODEL_LOADING" },
  { name: "5.4 retry_later", behaviour: { ready: () => LATER }, body: NAK_BASE, chunks: 0 },
  { name: "5.4 failed", behaviour: { ready: () => FAILED }, body: ACK, chunks: 1, errorCode: "MODEL_LOAD_FAILED" },
  {
    name: "5.4 parameters that cannot be fetched",
    behaviour: {},
    fields: { generate: null, payload_ref: "gen_0.bin" },
    body: NAK_BASE,
    chunks: 0,
  },
  {
    name: "5.4 media that are none",
    behaviour: {},
    fields: { generate: { messages: [{ role: "user", content: "x", images: [{ data: "!!!" }] }], max_new_tokens: 1 } },
    body: ACK,
    chunks: 1,
    errorCode: "INVALID_INPUT",
  },
  { name: "5.4 a foreign hash", behaviour: {}, fields: { bundle_config_hash: "other" }, body: NAK_BASE, chunks: 0 },
  {
    name: "5.4 a whole stream",
    behaviour: {
      stream: [{ kind: "in_progress" }, chunk(0, false), chunk(1, true), { kind: "ack" }, { kind: "done" }],
    },
    body: ACK,
    chunks: 2,
    progress: true,
  },
  {
    name: "5.4 the backend's nak with a delay",
    behaviour: { stream: [{ kind: "nak", delay_ms: 700 }, { kind: "done" }] },
    body: '-NAK {"delay":700000000}',
    chunks: 0,
  },
  {
    name: "5.4 the backend's nak without a delay; what follows it changes nothing",
    behaviour: { stream: [{ kind: "nak" }, { kind: "ack" }, { kind: "in_progress" }, { kind: "done" }] },
    body: NAK_BASE,
    chunks: 0,
  },
  {
    name: "5.4 an unknown event is ignored",
    behaviour: { stream: [{ kind: "telemetry" }, { kind: "ack" }, { kind: "done" }] },
    body: ACK,
    chunks: 0,
  },
  {
    name: "5.4 the stream ends unsettled",
    behaviour: { stream: [chunk(0, false), { kind: "done" }] },
    body: NAK_BASE,
    chunks: 1,
  },
  { name: "5.4 the stream breaks", behaviour: { stream: [chunk(0, false), "close"] }, body: NAK_BASE, chunks: 1 },
  {
    name: "5.4 a chunk for another subject",
    behaviour: { stream: [{ ...chunk(0, false), reply_subject: "_INBOX.gw-2.x" }, { kind: "ack" }, { kind: "done" }] },
    body: NAK_BASE,
    chunks: 0,
  },
];

for (const one of STREAMS) {
  Deno.test(one.name, async () => {
    await using whole = await Whole.start({ behaviour: one.behaviour });
    const request = await whole.gateway.send({
      requestId: "gen-1",
      fields: {
        operation: "generate",
        item: null,
        output_types: null,
        generate: { prompt: "Once", max_new_tokens: 4 },
        ...one.fields,
      },
    });
    const [first] = await whole.settled(1);
    assert.equal(first, one.body);
    await eventually("the chunks are there", () => request.generation.length === one.chunks);
    if (one.errorCode !== undefined) {
      const text = new TextDecoder().decode(request.generation[0]?.bytes);
      assert.ok(text.includes(one.errorCode), text);
      assert.equal(request.generation[0]?.done, true);
    }
    assert.equal(whole.acks.count("+WPI") > 0, one.progress ?? false, "progress");
    await whole.stop();
  });
}
