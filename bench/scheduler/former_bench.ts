/**
 * Cost of one item in a batch former, by the number of items that wait: `deno bench bench/scheduler/former_bench.ts`. One
 * iteration submits and takes a batch of 64 items one submission at a time, so divide by 64 for the cost of an item.
 */
import { DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import { BatchFormer } from "../../src/scheduler/batch_former.ts";
import type { Schedulable } from "../../src/scheduler/schedulable.ts";

const BATCH = 64;
const config = { current: { ...DEFAULT_BATCH_CONFIG, maxBatchRequests: BATCH, maxBatchCost: Number.MAX_SAFE_INTEGER } };

/** What dispatch's items look like to the scheduler. */
class Item implements Schedulable {
  readonly cost: number;
  readonly hardCostCap = Infinity;
  readonly runsAlone = false;
  queueEntry: object | undefined = undefined;

  constructor(cost: number) {
    this.cost = cost;
  }
}

/** Endless costs, the same in each run. */
function costsOf(kind: "unit" | "mixed"): () => number {
  let x = 1;
  return kind === "unit" ? () => 1 : () => 1 + ((x = Math.imul(x, 1664525) + 1013904223) >>> 23);
}

for (const kind of ["unit", "mixed"] as const) {
  for (const pending of [10, 1000, 20_000]) {
    const cost = costsOf(kind);
    const former = new BatchFormer<Item>({ operation: "encode", lora: "" }, config, {});
    let sequence = 0;
    let now = 0;
    const submitOne = () => former.submit([new Item(cost())], now += 0.01, sequence++);
    for (let i = 0; i < pending; i++) submitOne();
    Deno.bench({ name: `${kind} costs, ${pending} waiting`, group: kind, baseline: pending === 10 }, () => {
      for (let i = 0; i < BATCH; i++) {
        submitOne();
        former.dueReason(now, false);
      }
      former.take();
    });
  }
}
