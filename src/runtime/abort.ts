/** Waiting for something no longer than a signal allows. */
import type { CancelTimer, Clock } from "./clock.ts";

/** What {@link unlessAborted} resolves to when the signal came first. */
export const ABORTED: unique symbol = Symbol("aborted");

/**
 * Waits for `promise`, but after `signal` is aborted for at most `graceMs` milliseconds more. What becomes of the promise then is
 * nobody's business: a late failure goes unseen.
 */
export function unlessAborted<T>(
  promise: Promise<T>,
  signal: AbortSignal,
  clock: Clock,
  graceMs: number,
): Promise<T | typeof ABORTED> {
  return new Promise((resolve, reject) => {
    let cancel: CancelTimer = () => {};
    const onAbort = () => {
      cancel = clock.after(graceMs, () => resolve(ABORTED));
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    const end = () => {
      cancel();
      signal.removeEventListener("abort", onAbort);
    };
    promise.then(
      (value) => {
        end();
        resolve(value);
      },
      (thrown: unknown) => {
        end();
        reject(thrown);
      },
    );
  });
}
