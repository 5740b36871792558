/** Faults in the middle of the path: one item's fault stays its own, every delivery is settled once, every permit comes back. */
import assert from "node:assert/strict";
import type { Sent } from "../../src/dispatch/result_sender.ts";
import type { AudioPreparer } from "../../src/dispatch/views.ts";
import type { ModelReadiness } from "../../src/ipc/backend.ts";
import { batchAnswer, success } from "./doubles.ts";
import { ACK, NAK_BASE, NAK_HAND_OVER, READY, Rig, settlements } from "./rig.ts";

const CRASHED = { did: "leave", reason: "crashed" };

Deno.test("a progress that fails just when the model is ready frees the parking places once", async () => {
  const rig = new Rig({ fetchBudget: 4 });
  const states: ModelReadiness[] = [{ state: "loading_started" }];
  rig.backend.readiness = () => states.shift() ?? READY;
  const parked = rig.arrivals(2);
  await rig.dispatcher.accept(parked);
  for (const { delivery } of parked) delivery.progressWorks = false;
  await rig.run();
  assert.deepEqual(settlements(parked), [NAK_BASE, NAK_BASE]);

  // There are as many places as before, no more and no fewer.
  states.push({ state: "loading_started" });
  const again = rig.arrivals(5, { request_id: "again" });
  await rig.dispatcher.accept(again);
  assert.deepEqual(settlements(again), [undefined, undefined, undefined, undefined, NAK_BASE]);
  await rig.run();
  assert.equal(rig.ledger.outstanding, 0);
});

Deno.test("a shutdown does not wait for a question that the backend does not answer", async (t) => {
  await t.step("the first question of a group", async () => {
    const rig = new Rig();
    rig.backend.readiness = () => new Promise(() => {});
    const arrivals = rig.arrivals(2);
    const accepted = rig.dispatcher.accept(arrivals);
    await rig.run(1000);
    rig.shutdown.abort();
    await rig.run(2000);
    await accepted;
    assert.deepEqual(settlements(arrivals), [NAK_HAND_OVER, NAK_HAND_OVER]);
  });
  await t.step("a later question for parked work", async () => {
    const rig = new Rig();
    const states: ModelReadiness[] = [{ state: "loading_started" }];
    rig.backend.readiness = () => states.shift() ?? new Promise(() => {});
    const arrivals = rig.arrivals(2);
    await rig.dispatcher.accept(arrivals);
    await rig.run(10_000);
    rig.shutdown.abort();
    await rig.run(2000);
    await rig.dispatcher.parkedGroupsSettled();
    assert.deepEqual(settlements(arrivals), [NAK_HAND_OVER, NAK_HAND_OVER]);
  });
});

Deno.test("work that becomes ready after the schedulers have drained is handed over", async () => {
  const rig = new Rig();
  const answer = Promise.withResolvers<ModelReadiness>();
  rig.backend.readiness = () => answer.promise;
  const arrivals = rig.arrivals(2);
  const accepted = rig.dispatcher.accept(arrivals);
  await rig.run(10);
  assert.deepEqual(await rig.schedulers.drainAll(1000), []);
  answer.resolve(READY);
  await accepted;
  assert.deepEqual(settlements(arrivals), [NAK_HAND_OVER, NAK_HAND_OVER]);
});

Deno.test("an item whose preparation fails unexpectedly does not touch the others of its group", async () => {
  const slow = Promise.withResolvers<void>();
  const audio: AudioPreparer = {
    async prepare(item) {
      if (new TextDecoder().decode(item).includes("broken")) throw new TypeError("a bug");
      await slow.promise;
      return undefined;
    },
  };
  const rig = new Rig({ audio });
  const arrivals = [
    rig.arrival({ request_id: "a", operation: "extract", item: { text: "slow" } }),
    rig.arrival({ request_id: "b", operation: "extract", item: { text: "broken" } }),
    rig.arrival({ request_id: "c" }),
  ];
  const accepted = rig.dispatcher.accept(arrivals);
  await rig.run(10);
  slow.resolve();
  await accepted;
  await rig.run();
  assert.deepEqual(settlements(arrivals), [ACK, CRASHED, ACK]);
  assert.equal(rig.ledger.counts.refused, 0);
});

Deno.test("a refusal in a batch that cannot be sent does not touch the other items", async (t) => {
  const faults: [string, () => Sent | Promise<Sent>][] = [
    ["thrown", () => {
      throw new Error("the transport broke");
    }],
    ["rejected", () => Promise.reject(new Error("the transport broke"))],
  ];
  for (const [name, fault] of faults) {
    await t.step(name, async () => {
      const rig = new Rig();
      rig.backend.answer = (body) =>
        batchAnswer(
          body.entries.map(({ work }) =>
            success(work.workItemId, work.itemIndex === 1 ? { disposition: "nak_retry" } : {})
          ),
        );
      rig.sender.refusal = fault as typeof rig.sender.refusal;
      const arrivals = rig.arrivals(3, { fallback_reason: "local_full" });
      await rig.dispatcher.accept(arrivals);
      await rig.run();
      assert.deepEqual(settlements(arrivals), [ACK, NAK_BASE, ACK]);
      assert.equal(rig.ledger.counts.refused, 0);
    });
  }
});

Deno.test("a delay that no broker and no timer can hold is shortened", async () => {
  const rig = new Rig();
  rig.backend.answer = (body) =>
    batchAnswer(
      body.entries.map(({ work }) =>
        success(work.workItemId, { disposition: "nak_retry", nak_delay_ms: Number.MAX_SAFE_INTEGER })
      ),
    );
  const arrival = rig.arrival();
  await rig.dispatcher.accept([arrival]);
  await rig.run();
  assert.deepEqual(arrival.delivery.settlement, { did: "nak", delayMs: 2_147_483_647, reason: "retry" });
});

Deno.test("an arrival that cannot even be looked at does not touch the others", async () => {
  const rig = new Rig();
  rig.admitted.has = () => {
    throw new TypeError("a bug");
  };
  const arrivals = [rig.arrival({ request_id: "a" }), rig.arrival({ request_id: "b", admission_pool: "p" })];
  await rig.dispatcher.accept([...arrivals].reverse());
  await rig.run();
  assert.deepEqual(settlements(arrivals), [ACK, CRASHED]);
});
