/**
 * What local ingest needs of generation: running one stream and stopping one. {@link LocalGeneration} implements it. The socket
 * knows nothing of backends, models or hashes; the runner nothing of frames.
 */
import type { WorkItem } from "../wire/work_item.ts";

/** Codes of a stream's error answer (spec/local-ingest.md 7.6). */
export type StreamErrorCode =
  | "INVALID_TRANSPORT_BINDING"
  | "DUPLICATE_REQUEST"
  | "CAPACITY_EXHAUSTED"
  | "DECODE_ERROR"
  | "BAD_OPERATION"
  | "POOL_ADMISSION_REJECTED"
  | "DISCONNECTED"
  | "BUNDLE_CONFIG_MISMATCH"
  | "MODEL_LOADING"
  | "MODEL_LOAD_FAILED"
  | "BACKEND_UNAVAILABLE"
  | "INVALID_INPUT"
  | "INTERNAL_ERROR"
  | "TRANSPORT_FAILURE"
  | "RETRY_LATER"
  | "TIMEOUT";

/** How a generation ended, seen from the backend's side. */
export type GenerationOutcome =
  /** The terminal chunk and its acknowledgement came; `chunks` were handed to the sink. */
  | { readonly kind: "complete"; readonly chunks: number }
  /** Refused before the stream, or the stream broke its rules, or the backend failed; whatever ran has been cancelled. */
  | { readonly kind: "failed"; readonly code: StreamErrorCode; readonly message: string }
  /** `signal` was aborted: the backend was told to cancel, and its stream was waited for within the limits of 7.6. */
  | {
    readonly kind: "stopped";
    /** Why the cancel signal could not be delivered. */
    readonly cancelFailure: string | undefined;
    /** The backend's stream did not end within the drain limit. */
    readonly drainTimedOut: boolean;
  };

/** Takes the chunks of one stream, one after another. */
export interface ChunkSink {
  /**
   * Writes one chunk map. Resolves when the frame has been written, or will not be because the stream was stopped: the bytes are not
   * used any more afterwards. Rejects with the reason when the chunk cannot be sent.
   */
  chunk(payload: Uint8Array, seq: number): Promise<void>;
}

/** Runs generations for the local socket. */
export interface GenerationRunner {
  /**
   * Runs the one item of a validated request to its end. The reply subject has been set to `_LOCAL.{request_id}`. Never rejects.
   *
   * @param signal aborted at the deadline, on disconnect and at shutdown
   */
  run(work: WorkItem, sink: ChunkSink, signal: AbortSignal): Promise<GenerationOutcome>;

  /**
   * Tells the backend to stop a generation, within the 5 s of spec/local-ingest.md 9.
   *
   * @returns undefined when it was told, otherwise the text of the error answer
   */
  cancel(requestId: string): Promise<string | undefined>;
}
