/**
 * Background tasks (runtime.md 5): none ends unseen. One that ends although nobody stopped it is logged as an error, and
 * those that the worker cannot do without are started again after a second.
 */
import { type Clock, sleep } from "./clock.ts";
import { errorText } from "./errors.ts";

/** Pause before a task is started again. */
export const RESTART_PAUSE_MS = 1000;

/** Where the end of tasks is reported. */
export interface TaskLog {
  error(message: string, fields: Record<string, unknown>): void;
}

/** How a task is looked after. */
export interface TaskOptions {
  /** Start it again when it ends unexpectedly. Default false. */
  readonly restart?: boolean;
  /** It may return before it is stopped; only a thrown error is unexpected. Default false. */
  readonly mayEnd?: boolean;
}

/** Runs named tasks until they are stopped. */
export class Supervisor {
  readonly #clock: Clock;
  readonly #log: TaskLog;
  readonly #controller = new AbortController();
  readonly #running = new Map<Promise<void>, string>();
  /** Unexpected ends since the start. */
  failures = 0;

  constructor(clock: Clock, log: TaskLog) {
    this.#clock = clock;
    this.#log = log;
  }

  /** Names of the tasks that have not ended, in the order of their start. */
  get running(): string[] {
    return [...this.#running.values()];
  }

  /**
   * Starts `task`. Its signal is aborted by {@link stop} or by the returned function, and it must end soon after.
   *
   * @returns a function that stops this task alone and resolves when it has ended.
   */
  start(name: string, task: (signal: AbortSignal) => Promise<void>, options: TaskOptions = {}): () => Promise<void> {
    const own = new AbortController();
    const signal = AbortSignal.any([this.#controller.signal, own.signal]);
    const done = this.#lookAfter(name, task, options, signal).finally(() => this.#running.delete(done));
    this.#running.set(done, name);
    return () => {
      own.abort();
      return done;
    };
  }

  /** Stops all tasks. @returns when all have ended. */
  async stop(): Promise<void> {
    this.#controller.abort();
    await Promise.all(this.#running.keys());
  }

  async #lookAfter(
    name: string,
    task: (signal: AbortSignal) => Promise<void>,
    options: TaskOptions,
    signal: AbortSignal,
  ): Promise<void> {
    while (!signal.aborted) {
      let why = "it returned";
      try {
        await task(signal);
        if (options.mayEnd === true) return;
      } catch (thrown) {
        why = errorText(thrown);
      }
      // Whatever a stopped task ends with, its end was asked for.
      if (signal.aborted) return;
      this.failures++;
      const restart = options.restart === true;
      this.#log.error("a background task ended unexpectedly", { task: name, why, restart });
      if (!restart) return;
      await sleep(this.#clock, RESTART_PAUSE_MS, signal);
    }
  }
}

/** What the last resort needs. */
export interface LastResort {
  readonly log: TaskLog;
  /** Ends the process after what was logged is written. */
  readonly exit: (code: number) => void;
}

/**
 * Ends the process with exit code 1 and a log line when an error or a rejection reaches the top: nothing may fail silently,
 * and nothing may run on in a state nobody has thought of. @returns a function that takes this back.
 */
export function installLastResort(resort: LastResort, target: EventTarget = globalThis): () => void {
  let called = false;
  const end = (event: Event, what: string, thrown: unknown) => {
    event.preventDefault();
    // Errors on the way out must not start over.
    if (called) return;
    called = true;
    resort.log.error(`exited with error: ${what}`, {
      error: errorText(thrown),
      stack: thrown instanceof Error ? thrown.stack : undefined,
    });
    resort.exit(1);
  };
  const onRejection = (event: Event) =>
    end(event, "unhandled rejection", event instanceof PromiseRejectionEvent ? event.reason : event);
  const onError = (event: Event) => end(event, "uncaught error", event instanceof ErrorEvent ? event.error : event);
  target.addEventListener("unhandledrejection", onRejection);
  target.addEventListener("error", onError);
  return () => {
    target.removeEventListener("unhandledrejection", onRejection);
    target.removeEventListener("error", onError);
  };
}
