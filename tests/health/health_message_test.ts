/** The message's derived values and limits, beyond the vectors. */
import assert from "node:assert/strict";
import { type HealthFacts, healthMessage, totalSlots } from "../../src/health/health_message.ts";
import { Residency } from "../../src/health/residency.ts";
import { isSaturated } from "../../src/health/saturation.ts";
import { staleWindowMs } from "../../src/health/readiness.ts";

const facts: HealthFacts = {
  workerId: "w",
  machineProfile: "m",
  pool: "p",
  bundle: "b",
  gpuCount: -3,
  children: 2,
  ready: true,
  readyChildren: 9,
  bundleConfigHash: "h",
  loadedModels: ["b", "a", "b"],
  loadingModels: [],
  unsupportedModels: [" ", "x"],
  queueDepth: 3e9,
  pendingCost: 9e15,
  inflightBatches: 3e9,
  saturated: true,
};

Deno.test("numbers stay in the ranges of their types; slots never exceed the total", () => {
  const message = JSON.parse(healthMessage(facts, false));
  assert.equal(message.queue_depth, 2_147_483_647);
  assert.equal(message.inflight_batches, 2_147_483_647);
  assert.equal(message.pending_cost, 9e15);
  assert.deepEqual([message.gpu_count, message.total_gpu_slots, message.ready_gpu_slots], [-3, 2, 2]);
  assert.deepEqual(message.loaded_models, ["a", "b"]);
  assert.deepEqual(message.unsupported_models, ["x"]);
  assert.equal(totalSlots(0, 0), 1);
});

Deno.test("a worker without the versioned protocols never advertises them", () => {
  const message = JSON.parse(healthMessage(facts, false));
  assert.deepEqual(Object.keys(message).filter((key) => key.startsWith("supports_") && message[key]), []);
  assert.equal("numerical_process_inventory" in message, false);
});

Deno.test("an inventory that is too large is left out as a whole", () => {
  const versioned = (padding: number) => ({
    ...facts,
    versioned: {
      authorityChildren: true,
      authorityConsumer: true,
      admissionChildren: true,
      admissionConsumer: true,
      inventory: { observed_at_unix_ms: 1, children: [{ snapshot: "é".repeat(padding) }] },
    },
  });
  const has = (padding: number) =>
    "numerical_process_inventory" in JSON.parse(healthMessage(versioned(padding), false));
  const envelope = JSON.stringify({ observed_at_unix_ms: 1, children: [{ snapshot: "" }] }).length;
  const fits = Math.floor((65_536 - envelope) / 2);
  assert.deepEqual([has(fits), has(fits + 1)], [true, false]);
});

Deno.test("loaded models come from ready children, and stay when a round has none", () => {
  const residency = new Residency();
  const answer = (child: number, ready: boolean, loadedModels: string[]) => ({
    child,
    ready,
    loadedModels,
    loadingModels: [],
  });
  residency.update(0, [answer(0, true, ["b", "a"]), answer(1, true, ["c", "a"]), answer(2, false, ["x"])]);
  assert.deepEqual(residency.loadedModels, ["a", "b", "c"]);
  residency.update(1, [answer(0, false, [])]);
  assert.deepEqual(residency.loadedModels, ["a", "b", "c"]);
  residency.update(2, [answer(0, true, [])]);
  assert.deepEqual(residency.loadedModels, []);
});

Deno.test("a worker without slots for a batch still has capacity for one", () => {
  const load = { queueDepth: 1, inflightBatches: 0, readySlots: 1, maxConcurrentBatches: 0 };
  assert.equal(isSaturated(false, load), true);
  assert.equal(isSaturated(true, { ...load, readySlots: 0 }), false);
});

Deno.test("the stale window does not overflow", () => {
  assert.equal(staleWindowMs(Number.MAX_SAFE_INTEGER, 4_294_967_295), Number.MAX_SAFE_INTEGER);
});
