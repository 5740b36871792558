/** Listening to the gateways' cancel signals (spec/queue.md 7.1): three plain subscriptions that come back when they end. */
import { getLogger } from "@logtape/logtape";
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import type { BrokerConnection, BrokerMessage, BrokerSubscription } from "./broker_connection.ts";
import type { Cancellations } from "./cancellations.ts";
import { BrokerError } from "./errors.ts";
import { isComplete, isGatewaySignal, parseBatchCancel, parseCancel, parseWorkCancel } from "./guards.ts";
import { WarningLimiter } from "./warning_limiter.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

const REOPEN_MS = 500;

/** What listening needs. */
export interface CancelSubscriptionsParts {
  readonly connection: BrokerConnection;
  readonly clock: Clock;
  readonly cancellations: Cancellations;
  /** Our worker id as a subject token. */
  readonly workerToken: string;
  readonly onGenerateCancel: (requestId: string) => void;
}

interface Topic {
  readonly subject: string;
  /** Without it the start fails. */
  readonly required: boolean;
  handle(subject: string): void;
}

/** The three subscriptions. */
export class CancelSubscriptions {
  readonly #parts: CancelSubscriptionsParts;
  readonly #topics: readonly Topic[];
  readonly #open = new Map<Topic, BrokerSubscription>();
  readonly #timers = new Set<CancelTimer>();
  readonly #warnings: WarningLimiter<string>;
  #closed = false;

  constructor(parts: CancelSubscriptionsParts) {
    this.#parts = parts;
    this.#warnings = new WarningLimiter(parts.clock);
    this.#topics = [
      { subject: "work_cancel.>", required: true, handle: (subject) => this.#onWorkCancel(subject) },
      { subject: "batch_cancel.>", required: true, handle: (subject) => this.#onBatchCancel(subject) },
      { subject: "cancel.>", required: false, handle: (subject) => this.#onCancel(subject) },
    ];
  }

  /**
   * Opens them and waits until the broker has them.
   *
   * @throws BrokerError `permission` when one of the first two is refused
   */
  async open(): Promise<void> {
    for (const topic of this.#topics) this.#subscribe(topic);
    await this.#parts.connection.flush();
    const refused = this.#topics.filter((topic) => topic.required && !this.#open.has(topic));
    if (refused.length === 0) return;
    this.close();
    const subjects = refused.map(({ subject }) => subject).join(" and ");
    throw new BrokerError("permission", `the user lacks the right to subscribe to ${subjects}`);
  }

  /** Ends them. */
  close(): void {
    this.#closed = true;
    for (const cancel of this.#timers) cancel();
    if (this.#parts.connection.state !== "closed") {
      for (const subscription of this.#open.values()) subscription.close();
    }
    this.#open.clear();
  }

  #subscribe(topic: Topic): void {
    const { connection } = this.#parts;
    if (this.#closed || connection.state === "closed") return;
    const subscription = connection.subscribe(
      topic.subject,
      (message) => this.#onMessage(topic, message),
      (error) => this.#onEnd(topic, error),
    );
    this.#open.set(topic, subscription);
  }

  #onEnd(topic: Topic, error: Error): void {
    this.#open.delete(topic);
    if (this.#closed) return;
    this.#warnings.warn(
      topic.subject,
      (heldBack) =>
        logger.warn("the subscription {subject} ended and is opened again: {error}; {more} more like it", {
          subject: topic.subject,
          error: error.message,
          more: heldBack,
        }),
    );
    const cancel = this.#parts.clock.after(REOPEN_MS, () => {
      this.#timers.delete(cancel);
      this.#subscribe(topic);
    });
    this.#timers.add(cancel);
  }

  #onMessage(topic: Topic, message: BrokerMessage): void {
    if (isGatewaySignal(message.reply, message.headers?.keys() ?? [])) return topic.handle(message.subject);
    logger.warn("a signal on {subject} did not come from a gateway and is dropped", { subject: message.subject });
  }

  #onWorkCancel(subject: string): void {
    const key = parseWorkCancel(subject);
    if (key !== undefined) this.#parts.cancellations.cancelRequest(key);
  }

  #onBatchCancel(subject: string): void {
    const requestId = parseBatchCancel(subject, this.#parts.workerToken);
    if (requestId !== undefined) this.#parts.cancellations.cancelBatch(requestId);
  }

  #onCancel(subject: string): void {
    const key = parseCancel(subject);
    if (key === undefined) return;
    if (isComplete(key)) this.#parts.cancellations.cancelRequest(key);
    this.#parts.onGenerateCancel(key.requestId);
  }
}
