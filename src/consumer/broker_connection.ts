/**
 * The connection to the broker as the rest of the consumer sees it: publications in order, flow control, and what has to be known
 * about a connection that comes and goes. Everything goes through one connection, because a result and the ACK that follows it must
 * reach the broker in that order (spec/queue.md 0).
 */
import type { Msg, NatsConnection, Subscription } from "@nats-io/nats-core";
import { NatsConnectionImpl, type ProtocolHandler } from "@nats-io/nats-core/internal";
import { getLogger } from "@logtape/logtape";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { BrokerError } from "./errors.ts";
import { FlowWindow } from "./flow_window.ts";
import { Outbox } from "./outbox.ts";
import { grantFor, rightFor } from "./rights.ts";
import { WarningLimiter } from "./warning_limiter.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** Whether messages can be sent now. */
export type ConnectionState = "connected" | "reconnecting" | "closed";

/** Told when the connection changes; all optional. */
export interface ConnectionListener {
  /** The connection broke: answers to what was sent last may never come. */
  disconnected?(): void;
  /** It is there again, subscriptions included. */
  reconnected?(): void;
  /** The broker refused a publication or a subscription for want of rights. */
  refused?(operation: "publish" | "subscription", subject: string): void;
  /** It will not come back. */
  closed?(): void;
}

/** A message as handlers get it. */
export type BrokerMessage = Msg;

/** Something that can be ended. */
export interface BrokerSubscription {
  close(): void;
}

/** Identity of one established connection: messages sent in another one may be lost. */
export type ConnectionSession = object;

/** max_payload that is assumed while no server has told another. */
const DEFAULT_MAX_PAYLOAD = 1_048_576;

/**
 * How long the broker may take to answer a flush, in milliseconds. One that answers nothing is taken for dead before that, by its
 * pings; but a connection that is closed for good never fails what it owes.
 */
const FLUSH_LIMIT_MS = 10_000;
/** The same at the end, which has a limit of its own. */
const LAST_FLUSH_LIMIT_MS = 3_000;

/** One NATS connection, made by `connectToBroker`. */
export class BrokerConnection {
  readonly nats: NatsConnection;
  readonly #protocol: ProtocolHandler;
  readonly #clock: Clock;
  readonly #outbox: Outbox;
  readonly #window: FlowWindow;
  readonly #warnings: WarningLimiter<string>;
  readonly #listeners = new Set<ConnectionListener>();
  readonly #waiters = new Set<() => void>();
  /** Fail the flushes that wait for an answer. */
  readonly #flushes = new Set<(reason: Error) => void>();
  #maxPayload = DEFAULT_MAX_PAYLOAD;

  constructor(nats: NatsConnection, clock: Clock) {
    if (!(nats instanceof NatsConnectionImpl)) throw new TypeError("not a connection of this NATS client");
    this.nats = nats;
    this.#protocol = nats.protocol;
    this.#clock = clock;
    this.#outbox = new Outbox(nats.protocol);
    this.#window = new FlowWindow(() => this.flush());
    this.#warnings = new WarningLimiter(clock);
    void this.#watch();
  }

  get state(): ConnectionState {
    return this.#protocol.isClosed() ? "closed" : this.#protocol.connected ? "connected" : "reconnecting";
  }

  get connected(): boolean {
    return this.#protocol.connected;
  }

  get session(): ConnectionSession {
    return this.#protocol.transport;
  }

  /** Largest message in bytes that the server takes, as it said last. */
  get maxPayload(): number {
    const told = this.#protocol.info?.max_payload;
    if (told !== undefined) this.#maxPayload = told;
    return this.#maxPayload;
  }

  /**
   * Publishes a message. When much is under way already the call waits until the broker has taken some of that.
   *
   * @throws BrokerError `too_large`, `subject`, `closed`, `disconnected`; or rejects with the last: whether the message arrived is
   *   then unknown
   */
  publish(subject: string, payload: Uint8Array): void | Promise<void> {
    const { maxPayload } = this;
    if (payload.length > maxPayload) {
      throw new BrokerError("too_large", `a message of ${payload.length} bytes is above max_payload ${maxPayload}`);
    }
    if (!this.connected) throw this.#away(0);
    this.#outbox.publish(subject, payload);
    return this.#window.handed(this.#outbox.handed);
  }

  /** Sends a small message at once, without flow control; false when the connection is away or closed. */
  send(subject: string, payload: Uint8Array, reply = ""): boolean {
    if (!this.connected) return false;
    this.#outbox.publish(subject, payload, reply);
    return true;
  }

  /** Calls `handler` with each message of a subject. The subscription outlives reconnections. */
  subscribe(
    subject: string,
    handler: (message: BrokerMessage) => void,
    onEnd?: (error: Error) => void,
  ): BrokerSubscription {
    const subscription: Subscription = this.nats.subscribe(subject, {
      callback: (error, message) => {
        if (error !== null) return onEnd?.(error);
        // An exception in here would end the client's reader, silently.
        try {
          handler(message);
        } catch (thrown) {
          logger.error("a message on {subject} was not handled: {error}", { subject, error: errorText(thrown) });
        }
      },
    });
    return { close: () => subscription.unsubscribe() };
  }

  /**
   * Resolves when the broker has taken everything published so far; rejects when the connection breaks before that, or when there is
   * no answer within `limitMs`.
   */
  async flush(limitMs = FLUSH_LIMIT_MS): Promise<void> {
    if (!this.connected) throw new BrokerError("disconnected", "the connection to the broker is down");
    this.#outbox.flush();
    const { promise: failed, reject } = Promise.withResolvers<never>();
    const cancel = this.#clock.after(limitMs, () => reject(new Error(`no answer within ${limitMs} ms`)));
    this.#flushes.add(reject);
    try {
      await Promise.race([this.nats.flush(), failed]);
    } catch (thrown) {
      throw new BrokerError("disconnected", `the connection to the broker broke: ${errorText(thrown)}`, {
        cause: thrown,
      });
    } finally {
      cancel();
      this.#flushes.delete(reject);
    }
  }

  /** Waits until there is a connection. Rejects with `disconnected` after `limitMs`, with `closed` when there will be none. */
  async untilConnected(limitMs: number): Promise<void> {
    if (this.state === "reconnecting") {
      await new Promise<void>((resolve) => {
        const finish = () => {
          cancel();
          this.#waiters.delete(finish);
          resolve();
        };
        const cancel = this.#clock.after(limitMs, finish);
        this.#waiters.add(finish);
      });
    }
    if (!this.connected) throw this.#away(limitMs);
  }

  /** Listens to changes; the returned function ends that. */
  listen(listener: ConnectionListener): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  /** Breaks the connection and makes a new one: for a server that answers on the socket but no longer does its work. */
  reconnect(): void {
    void this.nats.reconnect();
  }

  /** Sends what is left and closes. */
  async close(): Promise<void> {
    if (this.connected) {
      try {
        await this.flush(LAST_FLUSH_LIMIT_MS);
      } catch (thrown) {
        logger.warn("the last messages may not have reached the broker: {error}", { error: errorText(thrown) });
      }
    }
    await this.nats.close();
  }

  #away(patienceMs: number): BrokerError {
    return this.state === "closed"
      ? new BrokerError("closed", "the connection to the broker is closed")
      : new BrokerError("disconnected", `the connection to the broker did not come back within ${patienceMs} ms`);
  }

  async #watch(): Promise<void> {
    for await (const status of this.nats.status()) {
      switch (status.type) {
        case "disconnect":
          logger.warn("the connection to {server} broke", { server: status.server });
          this.#outbox.discard();
          this.#window.reset();
          this.#tell((listener) => listener.disconnected?.());
          break;
        case "reconnect":
          logger.info("connected to {server} again", { server: status.server });
          for (const waiter of [...this.#waiters]) waiter();
          this.#tell((listener) => listener.reconnected?.());
          break;
        case "error":
          this.#onServerError(status.error);
          break;
        case "staleConnection":
          logger.warn("the broker does not answer pings; the connection is made anew");
          break;
        case "ldm":
          logger.info("{server} is about to shut down", { server: status.server });
          break;
        case "update":
          logger.info("servers of the cluster: {added} added, {deleted} gone", {
            added: status.added?.length ?? 0,
            deleted: status.deleted?.length ?? 0,
          });
          break;
        default:
      }
    }
    for (const waiter of [...this.#waiters]) waiter();
    for (const fail of [...this.#flushes]) fail(new Error("it is closed"));
    this.#window.reset();
    this.#tell((listener) => listener.closed?.());
  }

  #onServerError(error: Error): void {
    const refusal = error as Partial<{ operation: "publish" | "subscription"; subject: string }>;
    if (refusal.operation === undefined || refusal.subject === undefined) {
      logger.warn("the broker reports: {error}", { error: error.message });
      return;
    }
    const { operation, subject } = refusal;
    // Subjects differ from one message to the next; the right that is missing does not.
    this.#warnings.warn(
      `${operation} ${grantFor(subject) ?? subject.split(".", 1)[0]}`,
      (heldBack) =>
        logger.warn("the broker refuses: no right to {operation} {right}; {more} more like it", {
          operation: operation === "publish" ? "publish to" : "subscribe to",
          right: rightFor(subject),
          more: heldBack,
        }),
    );
    this.#tell((listener) => listener.refused?.(operation, subject));
  }

  #tell(what: (listener: ConnectionListener) => void): void {
    for (const listener of [...this.#listeners]) {
      try {
        what(listener);
      } catch (thrown) {
        logger.error("a change of the connection was not handled: {error}", { error: errorText(thrown) });
      }
    }
  }
}
