/** What dispatch does with work in each situation of spec/queue.md 5.1 to 5.3, with the exact settlement. */
import assert from "node:assert/strict";
import { IpcError } from "../../src/ipc/errors.ts";
import type { ModelReadiness } from "../../src/ipc/backend.ts";
import { batchAnswer, success } from "./doubles.ts";
import { ACK, NAK_BASE, NAK_HAND_OVER, READY, Rig, settlements, take } from "./rig.ts";

Deno.test("encode, score and extract items run in batches of their own kind and are ACKed", async () => {
  const rig = new Rig();
  const arrivals = [
    rig.arrival({ request_id: "a" }),
    rig.arrival({ request_id: "b", operation: "score", query_item: { text: "q" }, score_items: [{ text: "d" }] }),
    rig.arrival({ request_id: "c", operation: "extract", labels: ["person"] }),
    rig.arrival({ request_id: "d", options: { lora: "fr" } }),
  ];
  await take(rig, arrivals);
  assert.deepEqual(settlements(arrivals), [ACK, ACK, ACK, ACK]);
  assert.deepEqual(
    rig.backend.batches.map(({ operation, loraKey, entries }) => `${operation}/${loraKey}/${entries.length}`).sort(),
    ["encode//1", "encode/fr/1", "extract//1", "score//1"],
  );
  assert.equal(rig.ledger.outstanding, 0);
  assert.equal(rig.ledger.counts.refused, 0);
});

Deno.test("each item is settled by its own outcome, in whatever order the backend answers", async () => {
  const rig = new Rig();
  rig.backend.answer = (body) =>
    batchAnswer(
      body.entries.map(({ work }) => {
        if (work.itemIndex === 1) return success(work.workItemId, { disposition: "nak_retry", nak_delay_ms: 250 });
        if (work.itemIndex === 2) return success(work.workItemId, { disposition: "nak_retry" });
        if (work.itemIndex === 3) {
          return success(work.workItemId, {
            disposition: "publish_error_and_ack",
            error: "no",
            error_code: "INVALID_INPUT",
          });
        }
        return success(work.workItemId);
      }).filter(({ item_index }) => item_index !== 4).reverse(),
    );
  const arrivals = rig.arrivals(5);
  await take(rig, arrivals);
  assert.deepEqual(settlements(arrivals), [
    ACK,
    { did: "nak", delayMs: 250, reason: "retry" },
    NAK_BASE,
    ACK,
    NAK_BASE,
  ]);
  assert.equal(rig.ledger.outstanding, 0);
});

Deno.test("two items with one id are bound first come, first served; an outcome for nobody is ignored", async () => {
  const rig = new Rig();
  rig.backend.answer = () =>
    batchAnswer([
      success("dup.0", { error_code: "first" }),
      success("dup.0", { disposition: "nak_retry", nak_delay_ms: 7 }),
      success("stranger.0"),
    ]);
  const arrivals = [rig.arrival({ request_id: "dup" }), rig.arrival({ request_id: "dup" })];
  await take(rig, arrivals);
  assert.deepEqual(settlements(arrivals), [ACK, { did: "nak", delayMs: 7, reason: "retry" }]);
});

Deno.test("a result that cannot be published leaves its delivery unsettled; an error of our own is NAKed", async () => {
  const rig = new Rig();
  rig.sender.failing.add("req-1.0");
  rig.sender.throwing.add("req-1.1");
  rig.sender.failing.add("bad.0");
  const arrivals = [...rig.arrivals(3), rig.arrival({ request_id: "bad", operation: "translate" })];
  await take(rig, arrivals);
  const LEFT = { did: "leave", reason: "publish_failed" };
  assert.deepEqual(settlements(arrivals), [LEFT, LEFT, ACK, NAK_BASE]);
});

Deno.test("a failed batch call sends the whole batch back: at once when the backend drains, else after the base delay", async () => {
  for (
    const [failure, settlement] of [
      [new IpcError("server", "draining"), NAK_HAND_OVER],
      [new IpcError("server", "draining soon"), NAK_BASE],
      [new IpcError("timeout", "no answer within 60000 ms"), NAK_BASE],
      [new Error("anything"), NAK_BASE],
    ] as const
  ) {
    const rig = new Rig();
    rig.backend.answer = () => Promise.reject(failure);
    const arrivals = rig.arrivals(3);
    await take(rig, arrivals);
    assert.deepEqual(settlements(arrivals), [settlement, settlement, settlement], failure.message);
  }
});

Deno.test("models that cannot be had", async (t) => {
  const cases: [string, () => ModelReadiness | Promise<ModelReadiness>, unknown][] = [
    ["the call fails", () => Promise.reject(new IpcError("io", "connection refused")), NAK_BASE],
    ["retry_later", () => ({ state: "retry_later" }), NAK_BASE],
    ["failed", () => ({ state: "failed" }), ACK],
  ];
  for (const [name, readiness, settlement] of cases) {
    await t.step(name, async () => {
      const rig = new Rig();
      rig.backend.readiness = readiness;
      const arrivals = rig.arrivals(2);
      await take(rig, arrivals);
      assert.deepEqual(settlements(arrivals), [settlement, settlement]);
      assert.equal(rig.backend.batches.length, 0);
      if (name !== "failed") return;
      assert.deepEqual(rig.sender.sent.map((sent) => sent.kind === "refusal" ? sent.refusal : sent), [
        { code: "MODEL_LOAD_FAILED", message: "Model 'test/model' failed to load permanently." },
        { code: "MODEL_LOAD_FAILED", message: "Model 'test/model' failed to load permanently." },
      ]);
    });
  }
});

Deno.test("work of a loading model is held with progress and asked for again, then runs", async () => {
  const rig = new Rig();
  const states: ModelReadiness[] = [{ state: "loading_started" }, { state: "loading_in_progress" }, READY];
  const askedAt: number[] = [];
  rig.backend.readiness = () => {
    askedAt.push(rig.clock.now());
    return states.shift() ?? READY;
  };
  const arrivals = rig.arrivals(2);
  await take(rig, arrivals);
  assert.deepEqual(askedAt, [0, 5000, 15_000]);
  for (const { delivery } of arrivals) {
    assert.deepEqual(delivery.events.map(({ did }) => did), ["release", "progress", "progress", "progress", "ack"]);
  }
});

Deno.test("a loading model holds up no other model, and later work for it joins the wait without a question", async () => {
  const rig = new Rig();
  let loaded = false;
  rig.backend.readiness = (model) => model === "cold" && !loaded ? { state: "loading_in_progress" } : READY;
  const cold = rig.arrival({ request_id: "c1", model_id: "cold" });
  const warm = rig.arrival({ request_id: "w1", model_id: "warm" });
  await take(rig, [cold, warm], 1000);
  assert.deepEqual(settlements([cold, warm]), [undefined, ACK]);
  const second = rig.arrival({ request_id: "c2", model_id: "cold" });
  const questions = rig.backend.asked.length;
  await rig.dispatcher.accept([second]);
  assert.equal(rig.backend.asked.length, questions);
  assert.deepEqual(rig.dispatcher.waitingForModels(), { cold: 2 });
  loaded = true;
  await rig.run();
  assert.deepEqual(settlements([cold, second]), [ACK, ACK]);
  assert.deepEqual(rig.dispatcher.waitingForModels(), {});
});

Deno.test("parking places are limited, freed at the end, and not taken by local work", async () => {
  const rig = new Rig({ fetchBudget: 2 });
  let loaded = false;
  rig.backend.readiness = () => loaded ? { ...READY, batchBudget: 64 } as ModelReadiness : { state: "loading_started" };
  const queued = rig.arrivals(3);
  const local = rig.arrival({ request_id: "local" }, "local");
  await take(rig, [...queued, local], 100);
  assert.deepEqual(settlements(queued), [undefined, undefined, NAK_BASE]);
  loaded = true;
  await rig.run();
  assert.deepEqual(settlements([...queued, local]), [ACK, ACK, NAK_BASE, ACK]);
  loaded = false;
  const again = rig.arrivals(3, { request_id: "again" });
  await take(rig, again, 100);
  assert.deepEqual(settlements(again), [undefined, undefined, NAK_BASE]);
});

Deno.test("waiting for a model ends: shutdown, failed progress, the longest hold, failure, cancellation", async (t) => {
  await t.step("shutdown hands the work over", async () => {
    const rig = new Rig();
    rig.backend.readiness = () => ({ state: "loading_started" });
    const arrivals = rig.arrivals(2);
    await take(rig, arrivals, 100);
    rig.shutdown.abort();
    await rig.run(100);
    await rig.dispatcher.parkedGroupsSettled();
    assert.deepEqual(settlements(arrivals), [NAK_HAND_OVER, NAK_HAND_OVER]);
  });
  await t.step("a progress that fails sends the group back", async () => {
    const rig = new Rig();
    rig.backend.readiness = () => ({ state: "loading_started" });
    const arrivals = rig.arrivals(2);
    await take(rig, arrivals, 100);
    (arrivals[1] as ReturnType<Rig["arrival"]>).delivery.progressWorks = false;
    await rig.run();
    assert.deepEqual(settlements(arrivals), [NAK_BASE, NAK_BASE]);
  });
  for (const referenceCompatible of [false, true]) {
    await t.step(`the longest hold, referenceCompatible ${referenceCompatible}`, async () => {
      const rig = new Rig({ referenceCompatible });
      rig.backend.readiness = () => ({ state: "loading_in_progress" });
      const arrivals = rig.arrivals(1);
      const holdMs = referenceCompatible ? 600_000 : 1_800_000;
      await take(rig, arrivals, holdMs - 20_000);
      assert.deepEqual(settlements(arrivals), [undefined]);
      await rig.run(40_000);
      assert.deepEqual(settlements(arrivals), [NAK_BASE]);
    });
  }
  await t.step("a load that fails for good is answered", async () => {
    const rig = new Rig();
    const states: ModelReadiness[] = [{ state: "loading_started" }, { state: "failed" }];
    rig.backend.readiness = () => states.shift() ?? { state: "failed" };
    const arrivals = rig.arrivals(1);
    await take(rig, arrivals);
    assert.deepEqual(settlements(arrivals), [ACK]);
    assert.equal(rig.sender.sent.length, 1);
  });
  await t.step("cancelled work leaves the group", async () => {
    const rig = new Rig();
    const states: ModelReadiness[] = [{ state: "loading_started" }, { state: "loading_in_progress" }, READY];
    rig.backend.readiness = () => states.shift() ?? READY;
    const arrivals = rig.arrivals(2);
    await take(rig, arrivals, 100);
    rig.drops.set("req-1.0 model_readiness", "completed");
    await rig.run();
    assert.deepEqual(settlements(arrivals), [ACK, ACK]);
    assert.deepEqual(rig.sender.sent.map(({ item }) => item), ["req-1.1"]);
  });
});

Deno.test("what goes beyond a model's budget is handed over, in order", async () => {
  const rig = new Rig();
  rig.backend.readiness = () => ({ ...READY, batchBudget: 2 } as ModelReadiness);
  const arrivals = rig.arrivals(4);
  await take(rig, arrivals);
  assert.deepEqual(settlements(arrivals), [ACK, ACK, NAK_HAND_OVER, NAK_HAND_OVER]);
});

Deno.test("cancellation and deadlines are looked at at every checkpoint, and a hit is ACKed without a result", async (t) => {
  const stages = ["intake", "before_model_readiness", "after_model_readiness", "before_payload_fetch", "before_ipc"];
  for (const stage of stages) {
    await t.step(stage, async () => {
      const rig = new Rig();
      rig.drops.set(`req-1.0 ${stage}`, "deadline_exceeded");
      const arrivals = rig.arrivals(2);
      await take(rig, arrivals);
      assert.deepEqual(settlements(arrivals), [{ did: "ack", reason: "deadline_exceeded" }, ACK]);
      assert.deepEqual(rig.sender.sent.map(({ item }) => item), ["req-1.1"]);
      assert.deepEqual(rig.checkpoints.get("req-1.1"), stages);
      assert.deepEqual(rig.schedulers.totals(), { pendingItems: 0, pendingCost: 0, inflightBatches: 0 });
    });
  }
});

Deno.test("what is cancelled while it waits for a batch leaves at once; what is in a batch is answered", async () => {
  const rig = new Rig();
  const batches = Promise.withResolvers<void>();
  rig.backend.answer = async (body) => {
    await batches.promise;
    return batchAnswer(body.entries.map(({ work }) => success(work.workItemId)));
  };
  // Two batches of the pipeline are at the backend; the rest waits.
  const arrivals = [
    ...rig.arrivals(12, { request_id: "a" }),
    ...rig.arrivals(12, { request_id: "b" }),
    ...rig.arrivals(3, { request_id: "c" }),
    ...rig.arrivals(3, { request_id: "d" }),
  ];
  await take(rig, arrivals, 100);
  assert.equal(rig.schedulers.totals().pendingItems, 6);
  rig.cancelled.add("a").add("c");
  rig.dispatcher.somethingCancelled();
  rig.dispatcher.somethingCancelled();
  await rig.run(20);
  assert.equal(rig.clock.timerCount, 0);
  assert.deepEqual(rig.schedulers.totals(), { pendingItems: 3, pendingCost: 3, inflightBatches: 2 });
  const ended = () => arrivals.filter(({ delivery }) => delivery.settlement !== undefined);
  assert.deepEqual([...new Set(ended().map(({ work }) => work.requestId))], ["c"]);
  batches.resolve();
  await rig.run();
  assert.equal(ended().length, 30);
  assert.equal(rig.sender.sent.length, 27);
  assert.equal(rig.ledger.counts.refused, 0);
});

Deno.test("pool admission refuses items of a logical pool that this worker does not serve; local work is not asked", async () => {
  const rig = new Rig();
  rig.admitted.add("ours");
  const arrivals = [
    rig.arrival({ request_id: "a", admission_pool: "theirs" }),
    rig.arrival({ request_id: "b", admission_pool: "ours" }),
    rig.arrival({ request_id: "c", admission_pool: "theirs", operation: "generate" }),
    rig.arrival({ request_id: "d", admission_pool: "theirs" }, "local"),
  ];
  await take(rig, arrivals);
  const refused = { did: "nak", delayMs: 5000, reason: "pool_not_assigned" };
  assert.deepEqual(settlements(arrivals), [refused, ACK, refused, ACK]);
});

Deno.test("generation leaves the batch path at once and is never dropped by a tombstone", async () => {
  const rig = new Rig();
  rig.drops.set("g.0 intake", "completed");
  const arrival = rig.arrival({ request_id: "g", operation: "generate", generate: { prompt: "x", max_new_tokens: 1 } });
  await take(rig, [arrival]);
  assert.deepEqual(rig.generated.map(({ work }) => work.requestId), ["g"]);
  assert.equal(arrival.delivery.settlement, undefined);
  assert.equal(rig.backend.asked.length, 0);
});

Deno.test("an item of another configuration is sent back alone; with SIE_COMPAT=reference its group is", async () => {
  for (const referenceCompatible of [false, true]) {
    const rig = new Rig({ hash: "now", referenceCompatible });
    const arrivals = [
      rig.arrival({ request_id: "a", bundle_config_hash: "now" }),
      rig.arrival({ request_id: "b", bundle_config_hash: "then" }),
      rig.arrival({ request_id: "c" }),
    ];
    await take(rig, arrivals);
    assert.deepEqual(
      settlements(arrivals),
      referenceCompatible ? [NAK_BASE, NAK_BASE, NAK_BASE] : [ACK, NAK_BASE, ACK],
    );
    if (referenceCompatible) continue;
    const hashes = rig.sender.sent.map((sent) => sent.kind === "outcome" ? [sent.item, sent.executedHash] : sent);
    assert.deepEqual(hashes.sort(), [["a.0", "now"], ["c.0", ""]]);
  }
});

Deno.test("a configuration change between readiness and run is seen under the barrier", async () => {
  for (const referenceCompatible of [false, true]) {
    const rig = new Rig({ hash: "old", referenceCompatible });
    await rig.barrier.enterExclusive();
    const arrivals = [
      rig.arrival({ item_index: 0, bundle_config_hash: "old" }),
      rig.arrival({ item_index: 1 }),
    ];
    const accepted = rig.dispatcher.accept(arrivals);
    await rig.run(1000);
    assert.equal(rig.backend.batches.length, 0);
    rig.config.commit("new", []);
    rig.barrier.leaveExclusive();
    await rig.run(1000);
    await accepted;
    assert.deepEqual(settlements(arrivals), [NAK_BASE, referenceCompatible ? NAK_BASE : ACK]);
    assert.equal(rig.barrier.sharedHolders, 0);
  }
});

Deno.test("what is cancelled while its batch waits for a configuration change does not run", async () => {
  const rig = new Rig();
  await rig.barrier.enterExclusive();
  const arrivals = [rig.arrival({ request_id: "a" }), rig.arrival({ request_id: "b" })];
  const accepted = rig.dispatcher.accept(arrivals);
  await rig.run(1000);
  rig.cancelled.add("a");
  rig.barrier.leaveExclusive();
  await rig.run(1000);
  await accepted;
  assert.deepEqual(settlements(arrivals), [ACK, ACK]);
  assert.deepEqual(rig.sender.sent.map(({ item }) => item), ["b.0"]);
});

Deno.test("a model that the configuration cannot serve is refused at intake", async () => {
  const rig = new Rig();
  rig.config.commit("", ["test/model"]);
  const arrival = rig.arrival();
  await take(rig, [arrival]);
  assert.deepEqual(arrival.delivery.settlement, { did: "nak", delayMs: 5000, reason: "model_unsupported" });
  assert.equal(rig.backend.asked.length, 0);
});

Deno.test("a retry of an item that stands in for a refused local route is answered", async () => {
  const rig = new Rig();
  rig.backend.answer = (body) =>
    batchAnswer(
      body.entries.map(({ work }) => success(work.workItemId, { disposition: "nak_retry", nak_delay_ms: 1500 })),
    );
  const arrival = rig.arrival({ fallback_reason: "local_full" });
  await take(rig, [arrival]);
  assert.deepEqual(arrival.delivery.settlement, ACK);
  assert.deepEqual(rig.sender.sent.map((sent) => sent.kind === "refusal" && sent.refusal), [
    { code: "QUEUE_FULL", message: "The remote profile cannot serve this request now", retryAfterS: 2 },
  ]);
});

Deno.test("a batch call may last until the latest live deadline of its items", async () => {
  const rig = new Rig();
  const now = rig.clock.unixMs() / 1000;
  await take(rig, [
    rig.arrival({ item_index: 0, deadline: now + 50 }),
    rig.arrival({ item_index: 1, deadline: now + 90 }),
    rig.arrival({ item_index: 2 }),
  ]);
  const limits = rig.backend.callOptions.map((options) => options?.atLeastMs ?? 0);
  assert.ok(Math.max(...limits) > 80_000 && Math.max(...limits) <= 90_000, `limits ${limits}`);
});

Deno.test("a crash of a group or of a batch leaves its items to redelivery, counted", async () => {
  const rig = new Rig();
  rig.backend.answer = () => undefined as never;
  const arrivals = rig.arrivals(2);
  await take(rig, arrivals);
  assert.deepEqual(settlements(arrivals), [{ did: "leave", reason: "crashed" }, { did: "leave", reason: "crashed" }]);
  assert.equal(rig.ledger.counts.left, 2);
});

Deno.test("the trace tells the life of an item without its payload", async () => {
  const rig = new Rig();
  await take(rig, [rig.arrival()]);
  assert.deepEqual(rig.trace.map(({ kind }) => kind), ["arrival", "cost", "batch", "outcome", "settlement"]);
  assert.ok(!JSON.stringify(rig.trace).includes("hello"));
});
