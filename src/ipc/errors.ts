/** Failures of backend calls (spec/ipc.md 1.9). */
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

/** What failed beneath an `io` error. */
export type IoKind =
  | "broken_pipe"
  | "connection_reset"
  | "connection_aborted"
  | "unexpected_eof"
  | "not_found"
  | "not_connected"
  | "would_block" /* the listen queue is full */
  | "connection_refused"
  | "closed" /* this side closed the connection: shutdown, or the caller gave up */
  | "other";

/** After these a call is tried once more: the backend was replaced, or is about to listen (1.9). */
const RETRYABLE: ReadonlySet<IoKind> = new Set<IoKind>([
  "broken_pipe",
  "connection_reset",
  "connection_aborted",
  "unexpected_eof",
  "not_found",
  "not_connected",
  "would_block",
]);

/** Details of an {@link IpcError}. */
export interface IpcErrorOptions extends ErrorOptions {
  readonly io?: IoKind;
}

/** A backend call that failed. All of them are transient: the work is NAKed. */
export class IpcError extends SidecarError {
  readonly kind: IpcErrorKind;
  /** Set for `io` errors only. */
  readonly io: IoKind | undefined;

  constructor(kind: IpcErrorKind, message: string, options: IpcErrorOptions = {}) {
    super(`ipc_${kind}`, message, options);
    this.kind = kind;
    this.io = kind === "io" ? options.io ?? "other" : undefined;
  }

  /** Whether the backend refused because it is draining: other workers should get the work at once (queue.md 5.3). */
  get draining(): boolean {
    return this.kind === "server" && this.message === "draining";
  }

  /** Whether the same bytes are sent once more (1.9). */
  get retryable(): boolean {
    return this.io !== undefined && RETRYABLE.has(this.io);
  }
}

/** Deno's error classes, each with the kind it stands for. */
const IO_CLASSES: readonly (readonly [new (...args: never[]) => Error, IoKind])[] = [
  [Deno.errors.BrokenPipe, "broken_pipe"],
  [Deno.errors.ConnectionReset, "connection_reset"],
  [Deno.errors.ConnectionAborted, "connection_aborted"],
  [Deno.errors.UnexpectedEof, "unexpected_eof"],
  [Deno.errors.NotFound, "not_found"],
  [Deno.errors.NotConnected, "not_connected"],
  [Deno.errors.WouldBlock, "would_block"],
  [Deno.errors.ConnectionRefused, "connection_refused"],
  [Deno.errors.BadResource, "closed"],
  [Deno.errors.Interrupted, "closed"],
];

/** The `io` error for something the runtime threw while `doing` (e.g. "connecting to /run/backend.sock"). */
export function ioError(doing: string, thrown: unknown): IpcError {
  const io = IO_CLASSES.find(([type]) => thrown instanceof type)?.[1] ?? "other";
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  return new IpcError("io", `${doing}: ${text}`, { io, cause: thrown });
}
