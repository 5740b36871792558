/**
 * Cost of one item through a whole model scheduler, from submission to the return of the permit, with a backend that answers at
 * once: `deno bench bench/scheduler/loop_bench.ts`. One iteration is 64 items; divide by 64.
 */
import { systemClock } from "../../src/runtime/clock.ts";
import { DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import { ModelScheduler } from "../../src/scheduler/model_scheduler.ts";
import type { BatchKey, Schedulable } from "../../src/scheduler/schedulable.ts";

const BATCH = 64;
const done = Promise.resolve(undefined);

class Item implements Schedulable {
  readonly cost = 1;
  readonly hardCostCap = Infinity;
  readonly runsAlone = false;
  queueEntry: object | undefined = undefined;
}

for (const keys of [1, 20]) {
  const batchKeys: BatchKey[] = Array.from({ length: keys }, (_, i) => ({
    operation: "encode",
    lora: i === 0 ? "" : `lora-${i}`,
  }));
  const scheduler = new ModelScheduler<Item>("model", {
    clock: systemClock,
    config: { ...DEFAULT_BATCH_CONFIG, maxBatchRequests: BATCH, maxBatchWaitMs: 0 },
    pipelineDepth: 2,
    idleBypass: true,
    waveCadence: true,
    onFault: (_batch, thrown) => {
      throw thrown;
    },
    run: () => done,
  });
  Deno.bench({ name: `64 items under ${keys} key(s), one by one`, group: "loop" }, async () => {
    for (let i = 0; i < BATCH; i++) {
      scheduler.submit(batchKeys[i % keys] ?? { operation: "encode", lora: "" }, [new Item()]);
    }
    while (scheduler.pendingItems > 0) await done;
  });
}
