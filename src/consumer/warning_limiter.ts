/** Warnings that a stream of odd messages would otherwise repeat for each of them. */
import type { Clock } from "../runtime/clock.ts";

const INTERVAL_MS = 30_000;

/** Lets one warning of a kind through per 30 s, with the number of those held back before it. */
export class WarningLimiter<Kind extends string> {
  readonly #clock: Clock;
  readonly #last = new Map<Kind, { at: number; heldBack: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `warn` unless one of this kind was let through a short while ago. */
  warn(kind: Kind, warn: (heldBack: number) => void): void {
    const now = this.#clock.now();
    const last = this.#last.get(kind);
    if (last !== undefined && now - last.at < INTERVAL_MS) {
      last.heldBack++;
      return;
    }
    this.#last.set(kind, { at: now, heldBack: 0 });
    warn(last?.heldBack ?? 0);
  }
}
