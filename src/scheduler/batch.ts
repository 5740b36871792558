/** A formed batch, and what whoever runs it tells back. */
import type { BatchKey } from "./schedulable.ts";

/** Why a batch was cut; the labels of the metric `flush.reason` (spec/scheduler.md 5.2). */
export type FlushReason =
  | "single_oversize" /* one item waits and is above the cost cap */
  | "cost_cap" /* the cost cap is reached */
  | "count_cap" /* the number of items is reached */
  | "timeout" /* the oldest item has waited long enough */
  | "coalesce" /* nothing has arrived for long enough */
  | "idle_bypass" /* the model was idle, so the item leaves at once */
  | "drain"; /* taken after a primary batch while a permit was free, or at shutdown */

/** `primary`: chosen by the flush rules; opens a wave. `drain`: a further batch of the same wave, or of the shutdown (6.3). */
export type BatchRole = "primary" | "drain";

/** A batch on its way to the backend. */
export interface FormedBatch<T> {
  readonly modelId: string;
  readonly key: BatchKey;
  /** Cheapest first; at least one. The array is the receiver's. */
  readonly items: T[];
  /** Sum of the items' costs. */
  readonly totalCost: number;
  readonly role: BatchRole;
  readonly reason: FlushReason;
  /** Clock time at which the batch left the former, in milliseconds. */
  readonly formedAt: number;
  /** Items of the model that waited on when it left. */
  readonly queueDepth: number;
  /** Batches of the model that were in flight then. */
  readonly inFlight: number;
}

/**
 * What the controller needs of a batch with at least one success and a total time above 0 (7.10). Of any other batch nothing is
 * told.
 */
export interface BatchFeedback {
  /** Time the backend worked on the batch, in milliseconds. */
  readonly inferenceMs?: number | undefined;
  /** Submission to settlement of each distinct request that succeeded, in milliseconds. */
  readonly latenciesMs: readonly number[];
}

/**
 * Runs one batch until each of its items is settled. The permit of the batch is released when the promise resolves. It must not
 * reject: whoever runs a batch settles its items whatever happens.
 */
export type RunBatch<T> = (batch: FormedBatch<T>) => Promise<BatchFeedback | undefined>;
