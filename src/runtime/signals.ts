/**
 * Signals (runtime.md 6): the first SIGTERM or SIGINT starts the drain, for good. A second SIGTERM changes nothing; a second
 * SIGINT is somebody at a terminal who wants out, and ends the process at once.
 */

/** Exit code after the second SIGINT: 128 + 2, as shells report it. */
export const INTERRUPTED_EXIT_CODE = 130;

/** The signals that are listened for. */
export type StopSignal = "SIGTERM" | "SIGINT";

/** Where signals come from. */
export interface SignalSource {
  add(signal: StopSignal, handler: () => void): void;
  remove(signal: StopSignal, handler: () => void): void;
}

/** The signals of the process. */
export const processSignals: SignalSource = {
  add: (signal, handler) => Deno.addSignalListener(signal, handler),
  remove: (signal, handler) => Deno.removeSignalListener(signal, handler),
};

/** Says once, and for good, that the process is to stop. */
export class ShutdownLatch {
  readonly #controller = new AbortController();
  #reason: string | undefined;

  /** Aborted when the latch is set; hand it to everything that waits. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why the process stops; `undefined` while it does not. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Resolves when the latch is set. */
  get whenSet(): Promise<void> {
    if (this.signal.aborted) return Promise.resolve();
    return new Promise((resolve) => this.signal.addEventListener("abort", () => resolve(), { once: true }));
  }

  /** Sets the latch. @returns false when it was set already; the first reason stays. */
  set(reason: string): boolean {
    if (this.#reason !== undefined) return false;
    this.#reason = reason;
    this.#controller.abort(new DOMException(reason, "AbortError"));
    return true;
  }
}

/** What happens on signals beyond setting the latch. */
export interface SignalActions {
  /** Called at the second SIGINT, not called without it (the reference ignores later signals). Must end the process. */
  readonly onSecondInterrupt?: () => void;
  /** Called for signals that change nothing. */
  readonly onIgnored?: (signal: StopSignal) => void;
}

/** Sets `latch` at the first SIGTERM or SIGINT. @returns a function that ends the listening. */
export function listenForSignals(latch: ShutdownLatch, actions: SignalActions, source = processSignals): () => void {
  let interrupts = 0;
  const onSignal = (signal: StopSignal) => () => {
    if (signal === "SIGINT") interrupts++;
    if (latch.set(signal)) return;
    if (signal === "SIGINT" && interrupts > 1 && actions.onSecondInterrupt !== undefined) actions.onSecondInterrupt();
    else actions.onIgnored?.(signal);
  };
  const handlers = { SIGTERM: onSignal("SIGTERM"), SIGINT: onSignal("SIGINT") } as const;
  for (const signal of ["SIGTERM", "SIGINT"] as const) source.add(signal, handlers[signal]);
  return () => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) source.remove(signal, handlers[signal]);
  };
}
