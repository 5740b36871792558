/**
 * The event trace of the delivery path: what arrived, what was decided, what came of it, without payloads.
 * `SIE_TRACE_FILE` writes it as JSON lines; replay and simulation read the same events.
 *
 * Whoever emits holds a `TraceSink | undefined`; with tracing off that is `undefined`, and nothing is built:
 *
 * ```ts
 * if (trace !== undefined) trace.emit({ kind: "arrival", at: clock.now(), … });
 * ```
 */
import type { Clock } from "./clock.ts";
import { errorText } from "./errors.ts";

/** Number of one delivery within the process, counted from 0; ties the events of one item together. */
export type DeliveryNumber = number;

interface TraceEventBase {
  /** Monotonic milliseconds ({@link Clock.now}); the header line ties them to the wall clock. */
  readonly at: number;
}

/** A delivery reached the process. */
export interface ArrivalEvent extends TraceEventBase {
  readonly kind: "arrival";
  readonly delivery: DeliveryNumber;
  readonly source: "nats_pool" | "nats_direct" | "local";
  /** `encode`, `score`, `extract`, `generate`, or what the item said. */
  readonly operation: string;
  readonly model: string;
  /** Size of the message in bytes. */
  readonly bytes: number;
  /** How often the broker has delivered it, this time included; 1 for local ingest. */
  readonly attempt: number;
  readonly workItemId: string;
}

/** A gate turned the item away; its settlement follows. */
export interface RefusedEvent extends TraceEventBase {
  readonly kind: "refused";
  readonly delivery: DeliveryNumber;
  readonly reason: string;
}

/** The item is prepared and goes into the queue of its key with this cost. */
export interface CostEvent extends TraceEventBase {
  readonly kind: "cost";
  readonly delivery: DeliveryNumber;
  readonly key: string;
  readonly cost: number;
}

/** A batch was formed and is about to be sent to the backend. */
export interface BatchEvent extends TraceEventBase {
  readonly kind: "batch";
  /** Number of the batch within the process, counted from 0. */
  readonly batch: number;
  readonly key: string;
  /** Flush reason, as in scheduler.md 5.2. */
  readonly reason: string;
  readonly cost: number;
  readonly deliveries: readonly DeliveryNumber[];
  /** Expected backend time in milliseconds, where batch times are predicted. */
  readonly predictedMs?: number;
}

/** The backend answered a batch with at least one success; only where batch times are learnt or predicted. */
export interface BatchTimeEvent extends TraceEventBase {
  readonly kind: "batch_time";
  readonly batch: number;
  /** Time that the backend says it took, else the time until its answer; milliseconds. */
  readonly measuredMs: number;
  /** What was expected when the batch was sent. */
  readonly predictedMs?: number;
}

/** What came of one item: a result, or an error that was published in its place. */
export interface OutcomeEvent extends TraceEventBase {
  readonly kind: "outcome";
  readonly delivery: DeliveryNumber;
  /** Absent when the item never reached the backend. */
  readonly batch?: number;
  readonly outcome: "success" | "error" | "retry";
  /** Error code, for everything but a success. */
  readonly code?: string;
}

/** The one settlement of a delivery, or the deliberate lack of one. */
export interface SettlementEvent extends TraceEventBase {
  readonly kind: "settlement";
  readonly delivery: DeliveryNumber;
  readonly action: "ack" | "nak" | "none";
  readonly delayMs?: number;
  readonly reason: string;
}

/** Every event of the trace. */
export type TraceEvent =
  | ArrivalEvent
  | RefusedEvent
  | CostEvent
  | BatchEvent
  | BatchTimeEvent
  | OutcomeEvent
  | SettlementEvent;

/** Takes events. Must not throw and must not wait. */
export interface TraceSink {
  emit(event: TraceEvent): void;
}

/** First line of a trace file: `at` and `unixMs` are the same moment. */
export interface TraceHeader {
  readonly kind: "header";
  readonly version: 1;
  readonly at: number;
  readonly unixMs: number;
}

/** Written where events had to be left out because the file did not keep up. */
export interface TraceGap {
  readonly kind: "gap";
  readonly at: number;
  readonly dropped: number;
}

/** Where the lines go; resolves when all bytes are written. */
export interface TraceOutput {
  write(bytes: Uint8Array): Promise<void>;
  close(): void;
}

/** Settings of a {@link TraceWriter}. */
export interface TraceWriterOptions {
  readonly clock: Clock;
  readonly output: TraceOutput;
  /** Characters held back at most, written and unwritten together; what comes on top is dropped and counted. Default 8 Mi. */
  readonly maxBuffered?: number;
  /** Longest time an event waits before it is written, in milliseconds. Default 200. */
  readonly flushAfterMs?: number;
  /** Called once, when writing failed; from then on events are dropped. */
  readonly onFailure?: (text: string) => void;
}

/** Writes events as JSON lines: buffered, bounded, one write at a time, never waited for by the path that emits. */
export class TraceWriter implements TraceSink {
  readonly #options: Required<TraceWriterOptions>;
  #lines: string[] = [];
  #linesSize = 0;
  #inFlight = 0;
  #droppedSinceGap = 0;
  #failed = false;
  #closed = false;
  #cancelTimer: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  /** Events left out since the start. */
  dropped = 0;

  constructor(options: TraceWriterOptions) {
    this.#options = { maxBuffered: 8 * 1024 * 1024, flushAfterMs: 200, onFailure: () => {}, ...options };
    const { clock } = options;
    this.#append({ kind: "header", version: 1, at: clock.now(), unixMs: clock.unixMs() });
  }

  emit(event: TraceEvent): void {
    if (this.#closed || this.#failed || this.#linesSize + this.#inFlight >= this.#options.maxBuffered) {
      this.dropped++;
      this.#droppedSinceGap++;
      return;
    }
    if (this.#droppedSinceGap > 0) {
      this.#append({ kind: "gap", at: event.at, dropped: this.#droppedSinceGap });
      this.#droppedSinceGap = 0;
    }
    this.#append(event);
  }

  /** Writes what is buffered and closes the output. A second call does nothing. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#droppedSinceGap > 0 && !this.#failed) {
      this.#append({ kind: "gap", at: this.#options.clock.now(), dropped: this.#droppedSinceGap });
    }
    this.#cancelTimer?.();
    while (this.#writing !== undefined) await this.#writing;
    await this.#writeAll();
    this.#options.output.close();
  }

  #append(line: TraceEvent | TraceHeader | TraceGap): void {
    const text = JSON.stringify(line) + "\n";
    this.#lines.push(text);
    this.#linesSize += text.length;
    if (this.#writing !== undefined || this.#cancelTimer !== undefined || this.#closed) return;
    this.#cancelTimer = this.#options.clock.after(this.#options.flushAfterMs, () => {
      this.#cancelTimer = undefined;
      this.#writing = this.#writeAll();
    });
  }

  async #writeAll(): Promise<void> {
    const encoder = new TextEncoder();
    await undefined;
    while (this.#lines.length > 0 && !this.#failed) {
      const text = this.#lines.join("");
      this.#lines = [];
      this.#linesSize = 0;
      this.#inFlight = text.length;
      try {
        await this.#options.output.write(encoder.encode(text));
      } catch (thrown) {
        this.#failed = true;
        this.#lines = [];
        this.#options.onFailure(errorText(thrown));
      }
      this.#inFlight = 0;
    }
    // In the same turn in which nothing was left: an event that comes later sets a timer again.
    this.#writing = undefined;
  }
}

/** Opens `path` for appending, as the output of a {@link TraceWriter}. Throws when that is not possible. */
export async function openTraceFile(path: string): Promise<TraceOutput> {
  const file = await Deno.open(path, { append: true, create: true, mode: 0o600 });
  return {
    async write(bytes) {
      for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
    },
    close: () => file.close(),
  };
}
