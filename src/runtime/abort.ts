/** Waiting for something no longer than a signal allows. */
import type { CancelTimer, Clock } from "./clock.ts";

/** What {@link unlessAborted} resolves to when the signal came first. */
export const ABORTED: unique symbol = Symbol("aborted");

/** Choices of {@link unlessAborted}. */
export interface AbortOptions<T> {
  /** The wait goes on for so many milliseconds after the signal. */
  readonly grace?: { readonly clock: Clock; readonly ms: number };
  /** Takes the value that comes when nobody waits for it any more: what was acquired has to be given back. */
  readonly late?: (value: T) => void;
}

/** Waits for `promise` unless `signal` is aborted first. A failure that comes after that goes unseen. */
export function unlessAborted<T>(
  promise: Promise<T>,
  signal: AbortSignal,
  { grace, late }: AbortOptions<T> = {},
): Promise<T | typeof ABORTED> {
  return new Promise((resolve, reject) => {
    let isOver = false;
    let cancelGrace: CancelTimer = () => {};
    const giveUp = () => {
      isOver = true;
      resolve(ABORTED);
    };
    const onAbort = () => {
      if (grace === undefined) giveUp();
      else cancelGrace = grace.clock.after(grace.ms, giveUp);
    };
    const forget = () => {
      cancelGrace();
      signal.removeEventListener("abort", onAbort);
    };
    promise.then((value) => {
      forget();
      if (isOver) late?.(value);
      else resolve(value);
    }, (thrown: unknown) => {
      forget();
      reject(thrown);
    });
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}
