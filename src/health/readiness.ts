/** Readiness of the worker (health-telemetry.md 1 and 2): not draining, and the backend answered not long ago. */
import type { Clock } from "../runtime/clock.ts";

/** Whether the worker is ready, and why not. */
export type ReadinessState =
  | { readonly ready: true }
  | { readonly ready: false; readonly reason: "draining" | "handshake_pending" }
  | { readonly ready: false; readonly reason: "stale"; readonly ageMs: number; readonly windowMs: number };

/** What readiness depends on; times are monotonic milliseconds. */
export interface ReadinessInputs {
  readonly draining: boolean;
  /** Time of the last successful heartbeat; `undefined` before the first. */
  readonly lastPingAt: number | undefined;
  readonly now: number;
  readonly windowMs: number;
}

/** Age that a heartbeat may reach, in milliseconds. A multiplier of 0 counts as 3; the product does not overflow. */
export function staleWindowMs(pingIntervalMs: number, multiplier: number): number {
  return Math.min(pingIntervalMs * (multiplier === 0 ? 3 : multiplier), Number.MAX_SAFE_INTEGER);
}

/** The rule, without state. The first reason that holds is given: draining, no heartbeat yet, too old. */
export function readinessOf({ draining, lastPingAt, now, windowMs }: ReadinessInputs): ReadinessState {
  if (draining) return { ready: false, reason: "draining" };
  if (lastPingAt === undefined) return { ready: false, reason: "handshake_pending" };
  // Whole milliseconds, as they are printed: an age that reads like the window is still inside it.
  const ageMs = Math.floor(now - lastPingAt);
  return ageMs > windowMs ? { ready: false, reason: "stale", ageMs, windowMs } : { ready: true };
}

/** Body of `/readyz` for a state. */
export function readinessText(state: ReadinessState): string {
  if (state.ready) return "ok";
  switch (state.reason) {
    case "draining":
      return "not ready: draining";
    case "handshake_pending":
      return "not ready: handshake pending";
    case "stale":
      return `not ready: heartbeat stale (${state.ageMs} ms ago, threshold ${state.windowMs} ms)`;
  }
}

/** Readiness of the running worker. */
export class Readiness {
  readonly windowMs: number;
  readonly #clock: Clock;
  #draining = false;
  #lastPingAt: number | undefined;

  /** @param windowMs see {@link staleWindowMs}. */
  constructor(clock: Clock, windowMs: number) {
    this.#clock = clock;
    this.windowMs = windowMs;
  }

  /** A heartbeat round found a ready backend child. */
  pingSucceeded(): void {
    this.#lastPingAt = this.#clock.now();
  }

  /** The drain has begun; this is never taken back. */
  drain(): void {
    this.#draining = true;
  }

  /** The state at this moment. */
  state(): ReadinessState {
    return readinessOf({
      draining: this.#draining,
      lastPingAt: this.#lastPingAt,
      now: this.#clock.now(),
      windowMs: this.windowMs,
    });
  }

  get ready(): boolean {
    return this.state().ready;
  }

  /** True when the backend answered once and has been silent for too long since; progress leases pause then. */
  get heartbeatLost(): boolean {
    return this.#lastPingAt !== undefined && Math.floor(this.#clock.now() - this.#lastPingAt) > this.windowMs;
  }
}
