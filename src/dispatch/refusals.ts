/** Error results that the queue side makes itself: codes and texts of spec/queue.md 3.1. */

/** Why an item is answered with an error instead of being run. */
export interface Refusal {
  readonly code: string;
  readonly message: string;
  /** Seconds after which the caller may try again; passed on to the gateway. */
  readonly retryAfterS?: number;
}

export const UNKNOWN_OPERATION: Refusal = { code: "bad_operation", message: "unknown operation" };
export const PAYLOAD_UNRESOLVED: Refusal = { code: "payload_error", message: "failed to resolve item" };
export const PAYLOAD_OVER_LIMIT: Refusal = {
  code: "PAYLOAD_TOO_LARGE",
  message: "referenced payload exceeds the worker size limit",
};
/** Generation on the batch entrance of local ingest (spec/local-ingest.md 6). */
export const LOCAL_GENERATE_UNSUPPORTED: Refusal = {
  code: "bad_operation",
  message: "generate is not supported on the local-ingest lane (P2.6)",
};

/** The model failed to load for good. */
export function modelLoadFailed(modelId: string): Refusal {
  return { code: "MODEL_LOAD_FAILED", message: `Model '${modelId}' failed to load permanently.` };
}

/** Media or input that no backend would take. */
export function invalidInput(message: string): Refusal {
  return { code: "INVALID_INPUT", message };
}

/** Audio that cannot be prepared; lower case is the contract's (spec/preparation.md 13, 8). */
export function invalidAudio(message: string): Refusal {
  return { code: "invalid_request", message };
}

/** What a backend's retry becomes for an item that stands in for a refused local route (spec/queue.md 5.3, fallback_reason). */
export function remoteRouteRefused(errorCode: string | undefined, retryAfterS: number): Refusal {
  const message = "The remote profile cannot serve this request now";
  return { code: errorCode ?? "QUEUE_FULL", message, retryAfterS };
}
