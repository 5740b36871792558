import { SidecarError } from "../runtime/errors.ts";

/**
 * Why a call failed: no connection, a lost one, an answer that breaks the protocol, a refusal by the sidecar, no answer in time, a
 * request that does not fit a frame, or an end that the caller asked for.
 */
export type LocalIngestFault = "connect" | "closed" | "protocol" | "refused" | "timeout" | "too_large" | "aborted";

/** A failed call. Code `local_ingest_` and the fault. */
export class LocalIngestError extends SidecarError {
  readonly fault: LocalIngestFault;
  /** With fault `refused`: what stands before the first colon of the sidecar's text, e.g. `RETRY_LATER` or `TimeoutError`. */
  readonly reason: string | undefined;

  constructor(fault: LocalIngestFault, message: string, options?: ErrorOptions) {
    super(`local_ingest_${fault}`, message, options);
    this.fault = fault;
    this.reason = fault === "refused" ? /^\w+(?=$|:)/.exec(message)?.[0] : undefined;
  }
}
