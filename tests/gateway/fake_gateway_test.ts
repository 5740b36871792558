/** The test gateway's own choices on a real broker: which worker, when the pool, and what becomes of a refused generation. */
import assert from "node:assert/strict";
import { pickWorker, type WorkerLoad } from "../../src/gateway/rendezvous.ts";
import { routingHash } from "../../src/gateway/routing_key.ts";
import { LANE, resultOf, Rig, type Script } from "../consumer/support.ts";
import { eventually } from "../harness/process.ts";
import { msgpack } from "../harness/work_items.ts";

const IDLE = { readyGpuSlots: 1, pendingCost: 0, queueDepth: 0, inflight: 0 };
/** The second one is not there: no stream takes its work. */
const WORKERS: readonly WorkerLoad[] = [{ name: LANE.workerId, ...IDLE }, { name: "worker-away", ...IDLE }];

Deno.test("equal keys go to the same worker, and to the pool where that worker cannot be reached", async () => {
  await using rig = await Rig.start();
  rig.gateway.workers = WORKERS;
  const keys = Array.from({ length: 12 }, (_, index) => `session-${index}`);
  const here = keys.filter((routingKey) => pickWorker(WORKERS, routingHash({ routingKey }))?.name === LANE.workerId);
  assert.ok(here.length > 0 && here.length < keys.length, "both workers are chosen");
  for (const routingKey of keys) await rig.gateway.send({ requestId: routingKey, items: 2, routing: { routingKey } });
  await rig.gateway.send({ requestId: "no-key", routing: {} });
  await rig.gateway.answered();
  await rig.settled();
  const direct = rig.intake.arrivals.filter(({ delivery }) => delivery.workerDirect);
  assert.deepEqual(new Set(direct.map(({ work }) => work.requestId)), new Set(here));
  assert.equal(direct.length, 2 * here.length);
  assert.deepEqual(rig.gateway.totals(), { sent: 25, answered: 25, duplicated: 0 });
  await rig.stop();
});

/** Refuses direct work, and streams what comes from the pool. */
const refusing: Script = async ({ delivery, work }) => {
  const attempt = { request_id: work.requestId, attempt_id: delivery.workerDirect ? "first" : "second" };
  const publish = async (fields: Parameters<typeof msgpack>[0]) => {
    await delivery.publish(work.replySubject, msgpack(fields));
  };
  if (delivery.workerDirect) await publish({ kind: "nak", ...attempt, reason: "kv_budget" });
  else {
    await publish({ kind: "chunk", ...attempt, seq: 0, text_delta: "x", done: false });
    await publish({ kind: "chunk", ...attempt, seq: 1, text_delta: "", done: true, finish_reason: "stop" });
  }
  delivery.ack("completed");
};

Deno.test("a generation that its worker refuses is sent to the pool once, and streams from there", async () => {
  await using rig = await Rig.start({ script: refusing });
  rig.gateway.workers = WORKERS.slice(0, 1);
  const request = await rig.gateway.send({
    requestId: "gen-1",
    fields: { operation: "generate", item: null, output_types: null, generate: { prompt: "Once", max_new_tokens: 4 } },
    routing: { prompt: "Once" },
  });
  await eventually("the stream has ended", () => request.finished);
  await rig.settled();
  assert.deepEqual(request.naks, ["kv_budget"]);
  assert.ok(request.stream.republished);
  assert.deepEqual(request.generation.map(({ seq, done }) => [seq, done]), [[0, false], [1, true]]);
  assert.deepEqual(rig.intake.arrivals.map(({ delivery }) => delivery.source), ["direct", "pool"]);
  await rig.stop();
});

Deno.test("a publication that a real gateway would drop is a violation", async () => {
  await using rig = await Rig.start({
    script: async ({ delivery, work }) => {
      const chunk = { kind: "chunk", request_id: work.requestId, attempt_id: "a", text_delta: "" };
      await delivery.publish(work.replySubject, msgpack({ ...chunk, seq: 0, done: false }));
      await delivery.publish(work.replySubject, msgpack({ ...chunk, seq: 2, done: false }));
      await delivery.publish(work.replySubject, msgpack({ ...chunk, seq: 1, done: true, finish_reason: "tired" }));
      await delivery.publish(work.replySubject, resultOf("other.0"));
      delivery.ack("completed");
    },
  });
  await rig.gateway.send({ requestId: "gen-2", fields: { operation: "generate" } });
  await rig.settled();
  await eventually("all four messages are judged", () => rig.gateway.violations().length >= 3);
  assert.deepEqual(rig.gateway.violations(), [
    "gen-2: chunk 2 after 1 chunks",
    "gen-2: a message cannot be read: chunk.finish_reason: unknown finish reason 'tired'",
    "gen-2: a result of other in the inbox of gen-2",
  ]);
});
