/**
 * Time as a value that is passed in. Nothing under `src/` reads the time or sets a timer except through a {@link Clock},
 * so the same code runs in production, against the vectors and in a simulation with virtual time (design.md, decision 2).
 */

/** Cancels a timer set by {@link Clock.after}. Calling it twice, or after the timer fired, does nothing. */
export type CancelTimer = () => void;

/** Source of time and timers. */
export interface Clock {
  /** Monotonic milliseconds since an arbitrary start; never goes back. */
  now(): number;
  /** Wall-clock milliseconds since the Unix epoch; can jump. Only for time stamps that leave the process or came from outside. */
  unixMs(): number;
  /** Calls `action` once, at the earliest after `delayMs` milliseconds. */
  after(delayMs: number, action: () => void): CancelTimer;
}

/** The longest delay that a JavaScript timer holds, in milliseconds (2^31 - 1); longer ones would fire at once. */
const LONGEST_TIMER_MS = 2_147_483_647;

/** The runtime adds a whole tick to delays of whole milliseconds; just below them it does not, and fires no earlier than asked. */
const TICK_CORRECTION_MS = 0.01;

/** The clock of the running process. */
export const systemClock: Clock = {
  now: () => performance.now(),
  unixMs: () => Date.now(),
  after(delayMs, action) {
    const handle = setTimeout(action, Math.min(Math.max(delayMs - TICK_CORRECTION_MS, 0), LONGEST_TIMER_MS));
    return () => clearTimeout(handle);
  },
};

/**
 * Waits `delayMs` milliseconds, or less when `signal` is aborted.
 *
 * @returns true when the whole time has passed, false when the wait was cut short.
 */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<boolean> {
  if (signal?.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const onAbort = () => {
      cancel();
      resolve(false);
    };
    const cancel = clock.after(delayMs, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve(true);
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
