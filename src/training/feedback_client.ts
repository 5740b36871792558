/**
 * Sends feedback to a trainer over its Unix socket, never blocking the sender (online-training.md, section 5): a bounded
 * queue, one message in flight, at-least-once delivery, reconnection with backoff.
 */
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { readAck } from "./feedback_message.ts";
import { encodeMessage, type FeedbackMessage } from "./feedback_message.ts";
import { LineConnection } from "./line_connection.ts";
import type { TrainingLog } from "./log.ts";

/** Limits of the client; the defaults are the reference's. */
export interface FeedbackLimits {
  /** Messages that may wait. */
  readonly queue: number;
  readonly connectMs: number;
  /** For the write, and again for the answer. */
  readonly exchangeMs: number;
  /** First and longest wait after a failed connect; doubles in between. */
  readonly connectBackoffMs: { readonly first: number; readonly longest: number };
  /** First and longest wait between connections on which no message was accepted; the first redial comes at once. */
  readonly redialBackoffMs: { readonly first: number; readonly longest: number };
}

/** See {@link FeedbackLimits}. */
export const FEEDBACK_LIMITS: FeedbackLimits = {
  queue: 1000,
  connectMs: 5000,
  exchangeMs: 2000,
  connectBackoffMs: { first: 2000, longest: 120_000 },
  redialBackoffMs: { first: 100, longest: 2000 },
};

/** What a client is made of. */
export interface FeedbackClientOptions {
  readonly socketPath: string;
  readonly clock: Clock;
  readonly log: TrainingLog;
  readonly limits?: Partial<FeedbackLimits>;
}

/** See the file's comment. */
export class FeedbackClient {
  readonly #options: FeedbackClientOptions;
  readonly #limits: FeedbackLimits;
  readonly #stop = new AbortController();
  #queue: FeedbackMessage[] = [];
  /** Index of the oldest waiting message; the array is compacted now and then. */
  #head = 0;
  /** Sent but not accepted; goes first on the next connection and holds no place in the queue. */
  #retained: FeedbackMessage | undefined;
  #draining: Promise<void> | undefined;
  #changed = Promise.withResolvers<void>();
  #dropped = 0;
  #delivered = 0;
  #rejected = 0;

  /** Starts nothing; {@link send} works before {@link start}. */
  constructor(options: FeedbackClientOptions) {
    this.#options = options;
    this.#limits = { ...FEEDBACK_LIMITS, ...options.limits };
  }

  /** Messages lost here: the queue was full, or the message cannot be written. */
  get dropped(): number {
    return this.#dropped;
  }
  /** Messages that the trainer acknowledged. */
  get delivered(): number {
    return this.#delivered;
  }
  /** Messages that the trainer refused for good. */
  get rejected(): number {
    return this.#rejected;
  }
  /** Messages that wait or are in flight. */
  get outstanding(): number {
    return this.#waiting + (this.#retained === undefined ? 0 : 1);
  }

  /** Queues a message; never waits. Returns false when the queue is full: the message is lost and counted. */
  send(message: FeedbackMessage): boolean {
    if (this.#waiting >= this.#limits.queue) {
      this.#dropped++;
      return false;
    }
    this.#queue.push(message);
    this.#notify();
    return true;
  }

  /** Begins to send. Calling it again, or after {@link close}, does nothing. */
  start(): void {
    if (this.#stop.signal.aborted) return;
    this.#draining ??= this.#drain();
  }

  /** Stops and waits until the connection is closed. Waiting messages are thrown away, uncounted. */
  async close(): Promise<void> {
    this.#stop.abort();
    this.#notify();
    await this.#draining;
  }

  /** Resolves at the next change of a counter or of the queue, or at once after {@link close}. */
  changed(): Promise<void> {
    return this.#stop.signal.aborted ? Promise.resolve() : this.#changed.promise;
  }

  /** Whether another message would be queued. */
  get hasRoom(): boolean {
    return this.#waiting < this.#limits.queue;
  }

  get #waiting(): number {
    return this.#queue.length - this.#head;
  }

  #notify(): void {
    const { resolve } = this.#changed;
    this.#changed = Promise.withResolvers();
    resolve();
  }

  async #drain(): Promise<void> {
    const { signal } = this.#stop, { clock } = this.#options;
    let connectWait = this.#limits.connectBackoffMs.first, redialWait = 0;
    while (await this.#hasMessage()) {
      const connection = await this.#connect();
      if (connection === undefined) {
        await sleep(clock, connectWait, signal);
        connectWait = Math.min(2 * connectWait, this.#limits.connectBackoffMs.longest);
        continue;
      }
      connectWait = this.#limits.connectBackoffMs.first;
      const settledBefore = this.#settled();
      await this.#use(connection);
      connection.close();
      if (this.#settled() > settledBefore) redialWait = 0;
      if (redialWait > 0) await sleep(clock, redialWait, signal);
      redialWait = Math.min(
        Math.max(this.#limits.redialBackoffMs.first, 2 * redialWait),
        this.#limits.redialBackoffMs.longest,
      );
    }
  }

  #settled(): number {
    return this.#delivered + this.#rejected + this.#dropped;
  }

  /** Waits for a message. Returns false at the end. */
  async #hasMessage(): Promise<boolean> {
    while (!this.#stop.signal.aborted && this.#retained === undefined && this.#waiting === 0) {
      await this.#changed.promise;
    }
    return !this.#stop.signal.aborted;
  }

  async #connect(): Promise<LineConnection | undefined> {
    const { socketPath, clock, log } = this.#options;
    try {
      return await LineConnection.open(socketPath, {
        clock,
        limitMs: this.#limits.connectMs,
        signal: this.#stop.signal,
      });
    } catch (thrown) {
      if (!this.#stop.signal.aborted) log.warn(`feedback: cannot connect to ${socketPath}: ${errorText(thrown)}`);
      return undefined;
    }
  }

  /** Sends messages until the connection is of no more use. */
  async #use(connection: LineConnection): Promise<void> {
    const { log } = this.#options;
    const closing = () => connection.close();
    this.#stop.signal.addEventListener("abort", closing, { once: true });
    try {
      while (await this.#hasMessage()) {
        const message = this.#retained ?? this.#take();
        this.#retained = message;
        const line = this.#encode(message);
        if (line === undefined) continue;
        const answer = await connection.exchange(line, this.#limits.exchangeMs);
        if (!this.#settle(message, answer)) return;
      }
    } catch (thrown) {
      if (!this.#stop.signal.aborted) log.warn(`feedback: connection lost, the message is kept: ${errorText(thrown)}`);
    } finally {
      this.#stop.signal.removeEventListener("abort", closing);
    }
  }

  #take(): FeedbackMessage {
    const message = this.#queue[this.#head++] as FeedbackMessage;
    if (this.#head >= this.#limits.queue || this.#head === this.#queue.length) {
      this.#queue = this.#queue.slice(this.#head);
      this.#head = 0;
    }
    return message;
  }

  /** The line; a message that cannot be written is dropped, and the next one follows. */
  #encode(message: FeedbackMessage): Uint8Array | undefined {
    try {
      return encodeMessage(message);
    } catch (thrown) {
      this.#options.log.warn(`feedback: job ${JSON.stringify(message.jobId)} cannot be sent: ${errorText(thrown)}`);
      this.#dropped++;
      this.#done();
      return undefined;
    }
  }

  /** Returns whether the connection goes on. */
  #settle(message: FeedbackMessage, answer: string): boolean {
    const { log } = this.#options;
    const verdict = readAck(answer);
    switch (verdict.kind) {
      case "accepted":
        if (verdict.checkpoint !== "") log.info(`feedback: checkpoint ${verdict.checkpoint} at step ${verdict.step}`);
        if (verdict.trainingError !== "") log.warn(`feedback: the trainer will retry: ${verdict.trainingError}`);
        this.#delivered++;
        break;
      case "retry_later":
        log.info(`feedback: not accepted now, the message is kept: ${verdict.error}`);
        return false;
      case "rejected":
        log.warn(`feedback: job ${JSON.stringify(message.jobId)} was rejected: ${verdict.error}`);
        this.#rejected++;
        break;
      case "unreadable":
        log.info("feedback: the answer is not JSON; the message counts as delivered");
        this.#delivered++;
        break;
    }
    this.#done();
    return true;
  }

  #done(): void {
    this.#retained = undefined;
    this.#notify();
  }
}
