import { SidecarError } from "../runtime/errors.ts";

/** Class of a failed backend call; also its telemetry label (spec/ipc.md 1.9). */
export type IpcErrorKind =
  | "io" /* connect, read or write failed */
  | "timeout"
  | "encode" /* the request cannot be serialised */
  | "frame_too_large" /* request or announced answer above 32 MiB */
  | "decode" /* the answer does not fit its type */
  | "response_chunk" /* a fault in a chunked answer, or an answer to another request */
  | "server" /* `ok=false`, or `ok=true` without a body */
  | "version_mismatch";

/** A backend call that failed. All of them are transient: the work is NAKed. */
export class IpcError extends SidecarError {
  readonly kind: IpcErrorKind;

  constructor(kind: IpcErrorKind, message: string, options?: ErrorOptions) {
    super(`ipc_${kind}`, message, options);
    this.kind = kind;
  }

  /** Whether the backend refused because it is draining: other workers should get the work at once (queue.md 5.3). */
  get draining(): boolean {
    return this.kind === "server" && this.message === "draining";
  }
}
