/** What is cancelled is remembered, for as long and as many as the contract says (spec/queue.md 7.2 to 7.4). */
import assert from "node:assert/strict";
import { Cancellations } from "../../src/consumer/cancellations.ts";
import { parseBatchCancel, parseCancel, parseWorkCancel } from "../../src/consumer/guards.ts";
import { TOMBSTONE_CAP, Tombstones } from "../../src/consumer/tombstones.ts";
import type { Delivery } from "../../src/dispatch/delivery.ts";
import type { Checkpoint } from "../../src/dispatch/views.ts";
import { decodeWorkItem, type WorkItem } from "../../src/wire/work_item.ts";
import { type Value, workItemBytes } from "../harness/work_items.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

Deno.test("an entry lives as long as it was given, and is gone at that moment", () => {
  const stones = new Tombstones(1_000);
  stones.add("a", 0);
  assert.equal(stones.has("a", 999), true);
  assert.equal(stones.has("a", 1_000), false);
  assert.equal(stones.size, 0, "a lookup removes what has expired");
});

Deno.test("refreshing prolongs, and counts once", () => {
  const stones = new Tombstones(1_000, 2);
  stones.add("a", 0);
  stones.add("a", 900);
  assert.equal(stones.size, 1);
  assert.equal(stones.has("a", 1_500), true);
  stones.add("b", 1_600);
  assert.equal(stones.has("a", 1_700), true, "a second key fits beside a refreshed one");
});

Deno.test("at the cap the oldest leaves; a refreshed one is not the oldest", () => {
  const stones = new Tombstones(1_000, 3);
  for (const key of ["a", "b", "c"]) stones.add(key, 0);
  stones.add("a", 1);
  stones.add("d", 2);
  assert.deepEqual(["a", "b", "c", "d"].map((key) => stones.has(key, 3)), [true, false, true, true]);
});

Deno.test("expired entries make room before the cap does", () => {
  const stones = new Tombstones(1_000, 2);
  stones.add("a", 0);
  stones.add("b", 500);
  stones.add("c", 1_200);
  assert.deepEqual(["a", "b", "c"].map((key) => stones.has(key, 1_200)), [false, true, true]);
});

Deno.test("no life and no room keep nothing; a life beyond thirty days is thirty days", () => {
  const none = new Tombstones(0);
  none.add("a", 0);
  assert.equal(none.has("a", 0), false);
  const noRoom = new Tombstones(1_000, 0);
  noRoom.add("a", 0);
  assert.equal(noRoom.has("a", 0), false);
  const long = new Tombstones(Number.MAX_SAFE_INTEGER);
  long.add("a", 0);
  assert.equal(long.has("a", 30 * 86_400_000 - 1), true);
  assert.equal(long.has("a", 30 * 86_400_000), false);
});

Deno.test("a flood of refreshes and of new keys stays within the cap", () => {
  const stones = new Tombstones(60_000);
  for (let i = 0; i < 2 * TOMBSTONE_CAP; i++) stones.add("same", i / 1_000);
  assert.equal(stones.size, 1);
  for (let i = 0; i < TOMBSTONE_CAP + 5; i++) stones.add(`key-${i}`, 300);
  assert.equal(stones.size, TOMBSTONE_CAP);
  assert.equal(stones.has("key-5", 300), true);
  assert.equal(stones.has("key-4", 300), false);
});

const CHECKPOINTS: readonly Checkpoint[] = [
  "intake",
  "before_model_readiness",
  "model_readiness",
  "after_model_readiness",
  "before_payload_fetch",
  "after_payload_fetch",
  "before_ipc",
];

function cancellations(clock: VirtualClock, enforce = false, onExpiredRun?: (work: WorkItem) => void) {
  const deadlines = { enforce, skewToleranceMs: 5_000, maxBudgetMs: 180_000, tombstoneTtlMs: 1_800_000 };
  return new Cancellations({ clock, deadlines, ...(onExpiredRun === undefined ? {} : { onExpiredRun }) });
}

function work(fields: { readonly [key: string]: Value }): WorkItem {
  return decodeWorkItem(workItemBytes({ request_id: "r", router_id: "gw", ...fields }));
}

function from(source: Delivery["source"]): Delivery {
  return { source, workerDirect: source !== "pool", attempt: 1 } as Delivery;
}

Deno.test("which kind of cancellation reaches which work", () => {
  const cases: [string, "request" | "batch", { readonly [key: string]: Value }, Delivery["source"], boolean][] = [
    ["a request's cancel, encode from the pool", "request", {}, "pool", true],
    ["a request's cancel, score sent directly", "request", { operation: "score" }, "direct", true],
    ["a request's cancel, an unknown operation", "request", { operation: "what" }, "pool", true],
    ["a request's cancel, generation", "request", { operation: "generate" }, "pool", false],
    ["another router's request of the same id", "request", { router_id: "gw-2" }, "pool", false],
    ["work without a router", "request", { router_id: "" }, "pool", false],
    ["another request", "request", { request_id: "r2" }, "pool", false],
    ["a call back, sent directly", "batch", {}, "direct", true],
    ["a call back, from the pool", "batch", {}, "pool", false],
    ["a call back, generation sent directly", "batch", { operation: "generate" }, "direct", false],
  ];
  for (const [name, kind, fields, source, expected] of cases) {
    const view = cancellations(new VirtualClock());
    if (kind === "request") view.cancelRequest({ routerId: "gw", requestId: "r" });
    else view.cancelBatch("r");
    for (const checkpoint of CHECKPOINTS) {
      const reason = view.dropReason(work(fields), from(source), checkpoint);
      assert.equal(reason, expected ? "completed" : undefined, `${name} at ${checkpoint}`);
    }
  }
});

Deno.test("an expired deadline drops work only when it is enforced, and is counted once when it is not", () => {
  const clock = new VirtualClock();
  const now = clock.unixMs() / 1000;
  const expired = work({ timestamp: now - 60, deadline: now - 20 });
  const enforcing = cancellations(clock, true);
  enforcing.cancelRequest({ routerId: "gw", requestId: "r" });
  for (const checkpoint of CHECKPOINTS) {
    assert.equal(enforcing.dropReason(expired, from("pool"), checkpoint), "deadline_exceeded");
    assert.equal(enforcing.dropReason(expired, from("local"), checkpoint), "completed");
  }
  const ran: string[] = [];
  const watching = cancellations(clock, false, ({ workItemId }) => ran.push(workItemId));
  for (const checkpoint of CHECKPOINTS) {
    assert.equal(watching.dropReason(expired, from("pool"), checkpoint), undefined);
  }
  assert.deepEqual(ran, ["r.0"]);
  assert.equal(
    cancellations(clock, true).dropReason(
      work({ operation: "generate", timestamp: now - 60, deadline: now - 20 }),
      from("direct"),
      "intake",
    ),
    undefined,
  );
});

Deno.test("a deadline that cannot be believed is none", () => {
  const clock = new VirtualClock();
  const now = clock.unixMs() / 1000;
  const view = cancellations(clock, true);
  for (const fields of [{ timestamp: now - 400, deadline: now - 20 }, { timestamp: 0, deadline: now - 20 }]) {
    assert.equal(view.dropReason(work(fields), from("pool"), "intake"), undefined);
    assert.equal(view.remainingMs(work(fields), from("pool")), undefined);
  }
});

Deno.test("how long a batch may last", () => {
  const clock = new VirtualClock();
  const now = clock.unixMs() / 1000;
  const view = cancellations(clock);
  const close = (actual: number | undefined, expected: number) =>
    assert.ok(Math.abs((actual ?? NaN) - expected) < 1, `${actual} is not ${expected}`);
  close(view.remainingMs(work({ timestamp: now - 1, deadline: now + 30 }), from("pool")), 35_000);
  assert.equal(view.remainingMs(work({ timestamp: now - 1 }), from("pool")), undefined);
  assert.equal(view.remainingMs(work({ timestamp: now - 1, deadline: now + 30 }), from("local")), undefined);
  assert.equal(view.remainingMs(work({ timestamp: now - 60, deadline: now - 20 }), from("pool")), undefined);
});

Deno.test("a cancellation is forgotten after its life, and a call back after two minutes", async () => {
  const clock = new VirtualClock();
  const view = cancellations(clock);
  view.cancelRequest({ routerId: "gw", requestId: "r" });
  view.cancelBatch("b");
  const batch = work({ request_id: "b" });
  assert.equal(view.dropReason(batch, from("direct"), "intake"), "completed");
  await clock.advance(120_000);
  assert.equal(view.dropReason(batch, from("direct"), "intake"), undefined);
  assert.equal(view.dropReason(work({}), from("pool"), "intake"), "completed");
  await clock.advance(1_680_000);
  assert.equal(view.dropReason(work({}), from("pool"), "intake"), undefined);
});

Deno.test("a signal whose ids are longer than any gateway's is not remembered", () => {
  const long = "x".repeat(512);
  assert.notEqual(parseWorkCancel(`work_cancel.gw-1.${long.slice(0, 490)}`), undefined);
  assert.equal(parseWorkCancel(`work_cancel.gw-1.${long}`), undefined);
  assert.equal(parseCancel(`cancel.gw-1.${long}`), undefined);
  assert.equal(parseBatchCancel(`batch_cancel.gw-1.worker-1.${long}`, "worker-1"), undefined);
});
