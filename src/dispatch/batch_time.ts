/** What dispatch knows of the predictor of batch times: it is asked before a batch runs and told afterwards. */
import type { BatchShape } from "../scheduler/batch_shape.ts";
import type { WorkUnit } from "./work_unit.ts";

/** A batch on its way through the backend. */
export interface TimedBatch {
  /** Expected backend time in milliseconds, undefined while nothing can be said. */
  readonly predictedMs: number | undefined;
  /** Tells the backend time in milliseconds, at most once; not for a batch that failed. */
  ended(measuredMs: number): void;
}

/** Predicts the backend time of batches and learns from what is measured. Neither call waits or throws. */
export interface BatchTimes {
  /** A batch is about to be sent. */
  begin(shape: BatchShape): TimedBatch;
}

/** The shape of what is sent: the formed batch without the items that were dropped or sent back meanwhile. */
export function sentShape(
  batch: Pick<BatchShape, "modelId" | "queueDepth" | "inFlight"> & { readonly key: Pick<BatchShape, "operation"> },
  units: readonly WorkUnit[],
): BatchShape {
  let cost = 0, longest = 0;
  for (const unit of units) {
    cost += unit.cost;
    longest = Math.max(longest, unit.cost);
  }
  const { modelId, queueDepth, inFlight } = batch;
  return { modelId, operation: batch.key.operation, items: units.length, cost, longest, queueDepth, inFlight };
}
