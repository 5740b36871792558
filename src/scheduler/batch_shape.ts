/** What is known of a batch when it is formed: enough to say how long the backend will take for it. */
import type { BatchKey, Operation } from "./schedulable.ts";

/** A batch that has been formed, or that could be. */
export interface BatchShape {
  readonly modelId: string;
  readonly operation: Operation;
  readonly items: number;
  /** Sum of the items' costs. */
  readonly cost: number;
  /** Largest cost of an item. A backend that pads computes `items × longest`. */
  readonly longest: number;
  /** Items of the model that go on waiting. */
  readonly queueDepth: number;
  /** Batches of the model in flight already. */
  readonly inFlight: number;
}

/**
 * Whether a batch may be formed; asked a few times for each batch, about its length and about shorter ones. A batch of one item
 * is formed in any case. Must not throw and must be quick: it is asked while batches leave.
 */
export type FitsShape = (shape: BatchShape) => boolean;

/** The same for the batches of one key: number of items, sum and largest of their costs. */
export type FitsPrefix = (key: BatchKey, items: number, cost: number, longest: number) => boolean;
