/** The backend as the rest of the program sees it; `ipc/` implements it over one or several Unix sockets (spec/ipc.md). */
import type { BatchOutcome } from "../wire/ipc/batch_outcome.ts";
import type { RunBatchBody } from "../wire/ipc/batch_requests.ts";

/** What a model tells about itself when it is ready (spec/ipc.md 4.2). */
export interface ModelDescriptor {
  readonly tokenizerPath: string | undefined;
  readonly tokenizerId: string | undefined;
  readonly maxSeqLen: number | undefined;
  readonly outputTypes: readonly string[];
  readonly supportsRunBatch: boolean;
  readonly defaultQueryTemplate: string | undefined;
  readonly defaultDocTemplate: string | undefined;
  readonly maxConcurrentDispatch: number | undefined;
}

/** Answer of EnsureModelReady (spec/ipc.md 3.2, 4.1). */
export type ModelReadiness =
  | {
    readonly state: "ready";
    readonly batchBudget: number | undefined;
    readonly descriptor: ModelDescriptor | undefined;
  }
  | { readonly state: "loading_started" | "loading_in_progress" | "retry_later" | "failed" };

/** One event of a generation stream (spec/ipc.md 5.2). Bytes stay valid only until the next event is asked for. */
export type GenerateEvent =
  | { readonly kind: "in_progress" }
  | { readonly kind: "publish"; readonly replySubject: string; readonly payload: Uint8Array }
  | { readonly kind: "ack" }
  | { readonly kind: "nak"; readonly delayMs: number | undefined }
  | { readonly kind: "done" }
  | { readonly kind: "unknown"; readonly name: string };

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
