/** The outer retry of config calls (spec/ipc.md 1.9): a backend that is not there yet is waited for. */
import { type Clock, sleep } from "../runtime/clock.ts";
import { IpcError } from "./errors.ts";

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;

/** Whether a config call is made again: after a timeout, after what every call is retried for, and when nobody listens. */
function isWorthRetrying(thrown: unknown): boolean {
  if (!(thrown instanceof IpcError)) return false;
  return thrown.kind === "timeout" || thrown.retryable || thrown.io === "connection_refused";
}

/**
 * Makes a config call until it succeeds or fails for good; the pause between two tries doubles from 250 ms to 5 s. When `signal` is
 * aborted the last error is thrown.
 */
export async function retryConfigCall<Answer>(
  clock: Clock,
  signal: AbortSignal,
  call: () => Promise<Answer>,
): Promise<Answer> {
  for (let pause = FIRST_PAUSE_MS;; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    try {
      return await call();
    } catch (thrown) {
      if (!isWorthRetrying(thrown) || !await sleep(clock, pause, signal)) throw thrown;
    }
  }
}
