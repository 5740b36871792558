/** What stands in for the broker's redelivery (spec/local-ingest.md 6). */
import { IngestLimits } from "../wire/ingest/limits.ts";
import { quoted } from "../wire/ingest/quoted.ts";

/** What follows a negative acknowledgement: the item is dispatched again, or given up with an error result. */
export type RetryDecision =
  | { readonly kind: "again"; readonly afterMs: number }
  | { readonly kind: "exhausted" };

/**
 * Decides on a negative acknowledgement.
 *
 * @param redispatches how often the item has been dispatched again so far
 * @param delayMs the delay that was asked for
 */
export function afterNak(redispatches: number, delayMs: number): RetryDecision {
  if (redispatches >= IngestLimits.redeliveryAttempts) return { kind: "exhausted" };
  return { kind: "again", afterMs: Math.min(Math.max(delayMs, 0), IngestLimits.retryDelayCapMs) };
}

/** The error result of an item that is given up. */
export function retriesExhausted(workItemId: string): { readonly code: string; readonly message: string } {
  return {
    code: "inference_error",
    message: `worker requested redelivery (nak) for ${quoted(workItemId)} but the local-ingest lane has no broker ` +
      `redelivery; exhausted ${IngestLimits.redeliveryAttempts} in-lane retries`,
  };
}
