/** What `/debug/batches` shows, whatever callers call their models. */
import assert from "node:assert/strict";
import { batchReport, type Core } from "../../src/serve/core.ts";

Deno.test("a model is shown by its name, also one that objects have of themselves", () => {
  const names = ["org/model", "__proto__", "constructor"];
  const scheduler = { pendingItems: 1, pendingCost: 2, inflightBatches: 0, pipelineDepth: 2 };
  const core = {
    schedulers: { schedulers: () => names.map((modelId) => ({ ...scheduler, modelId })) },
    dispatcher: { waitingForModels: () => ({}) },
    generation: { running: 0 },
    ledger: { counts: {}, outstanding: 0 },
    batchTimes: undefined,
  } as unknown as Core;
  const report = JSON.parse(
    JSON.stringify(batchReport(core)),
    (key, value) => key === "models" ? Object.keys(value) : value,
  );
  assert.deepEqual(report.models, names);
});
