/** Error answers of generation that the sidecar makes itself: codes and texts of spec/queue.md 3.1. */
import type { Refusal } from "../dispatch/refusals.ts";
import { modelLoadFailed } from "../dispatch/refusals.ts";

/** The load has just begun. */
export function modelLoading(modelId: string): Refusal {
  return { code: "MODEL_LOADING", message: `Model '${modelId}' is loading; retry later.` };
}

/** The load was running already. */
export function modelStillLoading(modelId: string): Refusal {
  return { code: "MODEL_LOADING", message: `Model '${modelId}' is still loading; retry later.` };
}

/** The load failed for good. */
export const modelFailed = modelLoadFailed;

/** The fetched parameters are not MessagePack. */
export const UNDECODABLE_PAYLOAD: Refusal = {
  code: "internal_error",
  message: "failed to decode offloaded generate payload",
};

/** The work item cannot be written for the backend. */
export const UNENCODABLE: Refusal = { code: "internal_error", message: "failed to encode generate work item" };
