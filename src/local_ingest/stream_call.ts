/** One `publish_generate_stream` call (spec/local-ingest.md 7.2 to 7.6): checks, deadline, chunks out, one terminal. */
import type { ChunkSink, GenerationOutcome, GenerationRunner, StreamErrorCode } from "../generate/local_runner.ts";
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { Pace } from "../runtime/pace.ts";
import type { IngestBody } from "../wire/ingest/request.ts";
import type { WorkItem } from "../wire/work_item.ts";
import { poolRefusal } from "./pool_admission.ts";
import { isDecodeFault, isGenerateEndpoint, validateGeneration } from "./validation.ts";

/** What a stream works with. */
export interface StreamCallParts {
  /** Pool of this worker's lane. */
  readonly pool: string;
  readonly generation: GenerationRunner;
  readonly clock: Clock;
}

/** Why a connection stops its operations; the reason of the signal given to {@link runStreamCall}. */
export type StopReason = "gone" | "shutdown";

/** The one terminal of a stream. */
export type StreamTerminal =
  | { readonly kind: "final"; readonly chunks: number }
  | { readonly kind: "error"; readonly error: string };

/** Text of a stream's error answer. */
export function streamError(code: StreamErrorCode, message: string): string {
  return `${code}: ${message}`;
}

/**
 * Runs one stream.
 *
 * @param send writes one chunk; see {@link ChunkSink.chunk}. The signal says that the stream was stopped
 * @param stop aborted with a {@link StopReason}
 */
export async function runStreamCall(
  parts: StreamCallParts,
  body: IngestBody,
  send: (payload: Uint8Array, seq: number, stopped: AbortSignal) => Promise<void>,
  stop: AbortSignal,
): Promise<StreamTerminal> {
  const checked = await checkedItem(parts.pool, body, new Pace(parts.clock));
  if (typeof checked === "string") return { kind: "error", error: checked };
  if (stop.aborted) return { kind: "error", error: streamError("DISCONNECTED", disconnectText(stop)) };
  // What the caller wrote there means nothing here; the backend gets a subject that no other stream has.
  checked.replySubject = `_LOCAL.${body.requestId}`;
  const stopped = new AbortController();
  const onStop = () => stopped.abort();
  stop.addEventListener("abort", onStop, { once: true });
  const cancelDeadline = afterLong(parts.clock, body.timeoutMs, onStop);
  const sink: ChunkSink = { chunk: (payload, seq) => send(payload, seq, stopped.signal) };
  try {
    return terminal(await parts.generation.run(checked, sink, stopped.signal), body.timeoutMs, stop);
  } finally {
    cancelDeadline();
    stop.removeEventListener("abort", onStop);
  }
}

/** The one item of a valid call, or the error text. */
async function checkedItem(pool: string, body: IngestBody, pace: Pace): Promise<WorkItem | string> {
  const validation = await validateGeneration(body, pace);
  if (!validation.ok) {
    const code = isDecodeFault(validation.error) ? "DECODE_ERROR" : "INVALID_TRANSPORT_BINDING";
    return streamError(code, validation.error);
  }
  if (!isGenerateEndpoint(body)) {
    return streamError("BAD_OPERATION", "publish_generate_stream requires endpoint generate");
  }
  const refusal = poolRefusal(pool, body.admissionPool, validation.value.admissionPool);
  return refusal === undefined ? validation.value : streamError("POOL_ADMISSION_REJECTED", refusal);
}

function terminal(outcome: GenerationOutcome, timeoutMs: bigint, stop: AbortSignal): StreamTerminal {
  switch (outcome.kind) {
    case "complete":
      return { kind: "final", chunks: outcome.chunks };
    case "failed":
      return { kind: "error", error: streamError(outcome.code, outcome.message) };
    case "stopped": {
      const what = stop.aborted
        ? streamError("DISCONNECTED", disconnectText(stop))
        : streamError("TIMEOUT", `generation timed out after ${timeoutMs}ms`);
      const cancel = outcome.cancelFailure === undefined ? "" : `; cancellation failed: ${outcome.cancelFailure}`;
      const drain = outcome.drainTimedOut ? "; backend cancellation drain timed out" : "";
      return { kind: "error", error: `${what}${cancel}${drain}` };
    }
  }
}

function disconnectText(stop: AbortSignal): string {
  const reason: StopReason = stop.reason === "shutdown" ? "shutdown" : "gone";
  return reason === "shutdown" ? "the sidecar is shutting down" : "the connection has been closed";
}

/** The longest delay that one timer holds, in milliseconds (2^31 - 1). */
const LONGEST_TIMER_MS = 2_147_483_647;

/** Calls `action` after `delayMs` milliseconds of any length; 0 is never. */
function afterLong(clock: Clock, delayMs: bigint, action: () => void): CancelTimer {
  if (delayMs <= 0n) return () => {};
  let left = delayMs;
  let cancel: CancelTimer = () => {};
  const next = () => {
    if (left === 0n) return action();
    const step = left > BigInt(LONGEST_TIMER_MS) ? BigInt(LONGEST_TIMER_MS) : left;
    left -= step;
    cancel = clock.after(Number(step), next);
  };
  next();
  return () => cancel();
}
