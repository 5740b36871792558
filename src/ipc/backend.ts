/** The backend as the rest of the program sees it; `ipc/` implements it over one or several Unix sockets (spec/ipc.md). */
import type { BatchOutcome } from "../wire/ipc/batch_outcome.ts";
import type { RunBatchBody } from "../wire/ipc/batch_requests.ts";
import type { GenerateEvent } from "../wire/ipc/generate_event.ts";
import type { ModelDescriptor, ModelReadiness } from "../wire/ipc/readiness.ts";

export type { GenerateEvent, ModelDescriptor, ModelReadiness };

/** What a batch call may take beyond the ordinary request timeout. */
export interface BatchCallOptions {
  /** Limit of the call in milliseconds; the larger of this and the request timeout counts (1.8). */
  readonly atLeastMs?: number;
}

/** The methods that dispatch needs. All of them reject with {@link IpcError}. */
export interface Backend {
  /** Asks for a model; cheap, called before every group. */
  ensureModelReady(modelId: string): Promise<ModelReadiness>;
  /** Runs one batch. The outcome's bytes belong to the caller: they are not reused. */
  runBatch(body: RunBatchBody, options?: BatchCallOptions): Promise<BatchOutcome>;
  /**
   * Starts a generation on a connection of its own. The next event is read only when it is asked for; ends after `done`. Leaving
   * the iteration early (return) or aborting `signal` closes the connection.
   */
  generate(modelId: string, workItemMsgpack: Uint8Array, signal?: AbortSignal): AsyncIterable<GenerateEvent>;
  /** Tells every child to stop the generation of a request; true when one of them had it. */
  signalGenerateCancel(requestId: string): Promise<boolean>;
}
