/** Sends health messages (health-telemetry.md 5.1 and 5.4): at once, at each interval, and when residency changes. */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { isReported } from "../runtime/repeated.ts";
import { type HealthFacts, healthMessage, healthSubject } from "./health_message.ts";

/** Where messages go. Either function may throw or reject; that is logged and the next interval tries again. */
export interface HealthChannel {
  publish(subject: string, payload: Uint8Array): void | Promise<void>;
  /** Resolves when what was published has reached the broker. */
  flush(): Promise<void>;
}

/** Where failures are reported. */
export interface HealthLog {
  warn(message: string, fields: Record<string, unknown>): void;
}

/** What a {@link HealthPublisher} needs. */
export interface HealthPublisherOptions {
  readonly clock: Clock;
  /** At least 1. */
  readonly intervalMs: number;
  /** Reads the facts at the moment of sending. */
  readonly facts: () => HealthFacts;
  readonly channel: HealthChannel;
  readonly log: HealthLog;
}

/** One publisher a process; {@link run} it once. */
export class HealthPublisher {
  readonly #options: HealthPublisherOptions;
  #failures = 0;
  #wake: (() => void) | undefined;
  #askedFor = false;

  constructor(options: HealthPublisherOptions) {
    this.#options = options;
  }

  /** Asks for a message at once, without moving the interval. Several before it is sent are one. */
  requestNow(): void {
    this.#askedFor = true;
    this.#wake?.();
  }

  /**
   * Publishes until `signal` is aborted, then retracts the worker and waits until the broker has it. Messages are sent one
   * after the other; ticks that pass while one is being sent are not made up.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs } = this.#options;
    let due = clock.now();
    while (!signal.aborted) {
      if (!this.#askedFor && clock.now() < due) {
        await this.#wait(due - clock.now(), signal);
        continue;
      }
      this.#askedFor = false;
      if (clock.now() >= due) due += intervalMs * (Math.floor((clock.now() - due) / intervalMs) + 1);
      await this.#send(false);
    }
    await this.retract();
  }

  /** Publishes and flushes the retraction; best effort. The drain sends a second one this way. */
  async retract(): Promise<void> {
    if (!await this.#send(true)) return;
    try {
      await this.#options.channel.flush();
    } catch (thrown) {
      this.#failed("the retraction of this worker may not have reached the broker", thrown);
    }
  }

  async #send(terminated: boolean): Promise<boolean> {
    const { channel, facts } = this.#options;
    try {
      const current = facts();
      const payload = new TextEncoder().encode(healthMessage(current, terminated));
      await channel.publish(healthSubject(current.workerId), payload);
      this.#failures = 0;
      return true;
    } catch (thrown) {
      this.#failed("the health message was not published", thrown);
      return false;
    }
  }

  #failed(message: string, thrown: unknown): void {
    this.#failures++;
    if (isReported(this.#failures)) {
      this.#options.log.warn(message, { error: errorText(thrown), failures: this.#failures });
    }
  }

  /** Waits for the next tick, a request, or the end. */
  #wait(delayMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        cancel();
        signal.removeEventListener("abort", done);
        this.#wake = undefined;
        resolve();
      };
      const cancel = this.#options.clock.after(delayMs, done);
      signal.addEventListener("abort", done, { once: true });
      this.#wake = done;
    });
  }
}
