/**
 * Sends a lane's settlements, and only to the stream that the deliveries came from. The broker knows a message by its number alone:
 * a stream that was deleted or lost with a server's memory, and made anew, counts from one again, and the ACK of an old message
 * would remove a new one that nobody has run. So whenever the stream may be another one, because the connection broke or the
 * consumer is gone, settlements wait until the broker has said when the stream was made; what belongs to a lost stream is not sent.
 */
import { getLogger } from "@logtape/logtape";
import type { SettleReason } from "../dispatch/delivery.ts";
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { PROGRESS_BODY } from "./acks.ts";
import type { BrokerConnection, ConnectionSession } from "./broker_connection.ts";
import type { ConsumerMetrics, LaneKind } from "./consumer_metrics.ts";
import { progressIntervalMs } from "./progress_keeper.ts";
import type { LaneFacts } from "./provisioning.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** Pause before the broker is asked again. */
const RETRY_MS = 500;

/** What ends a delivery, ready to be sent. */
export interface SettlementMessage {
  readonly operation: "ack" | "nak";
  readonly reason: SettleReason;
  readonly ackSubject: string;
  readonly body: Uint8Array;
  /** {@link LaneSettlements.incarnation} when the delivery came. */
  readonly incarnation: number;
  /** The connection that a result went out on: the settlement goes out on the same one or not at all. */
  readonly answeredOn: ConnectionSession | undefined;
}

/** What sending needs. */
export interface LaneSettlementsParts {
  readonly lane: LaneKind;
  readonly connection: BrokerConnection;
  readonly clock: Clock;
  readonly metrics: ConsumerMetrics;
  /** When the broker made the stream; undefined when there is none. Rejects when the broker does not say. */
  readonly streamCreated: () => Promise<string | undefined>;
  /** Called when the stream is known again. */
  readonly onSure: () => void;
  /** Called when there is no stream. */
  readonly onGone: () => void;
}

/** See the file's comment. */
export class LaneSettlements {
  readonly #parts: LaneSettlementsParts;
  #created: string | undefined;
  #incarnation = 0;
  #sure = true;
  /** Counts doubts: an answer that was asked for before the last one says nothing. */
  #doubts = 0;
  #doubtedAt = 0;
  #asking = false;
  #closed = false;
  #wakeUp: (() => void) | undefined;
  #ackWaitMs: number;
  #deferred: SettlementMessage[] = [];

  constructor(parts: LaneSettlementsParts, facts: LaneFacts) {
    this.#parts = parts;
    this.#created = facts.streamCreated;
    this.#ackWaitMs = facts.ackWaitMs;
  }

  /** Number of the stream that deliveries come from now; another one than before after a loss. */
  get incarnation(): number {
    return this.#incarnation;
  }

  /** Settlements that wait. */
  get waiting(): number {
    return this.#deferred.length;
  }

  /**
   * Sends progress and counts it. While the stream is in doubt nothing is sent; {@link LaneSettlementsParts.onSure} is the time for
   * it. Nor is anything for a stream that is gone.
   *
   * @returns false when it cannot be sent any more
   */
  progress(ackSubject: string, incarnation: number): boolean {
    const { connection, lane, metrics } = this.#parts;
    if (incarnation !== this.#incarnation) return true;
    const sent = this.#sure && connection.send(ackSubject, PROGRESS_BODY);
    const lost = !sent && connection.state === "closed";
    if (sent || lost) metrics.settled(lane, "progress", sent ? "success" : "error", "none");
    return !lost;
  }

  /** Sends a settlement now, or when the stream is known again. */
  send(message: SettlementMessage): void {
    if (!this.#sure && !this.#closed && this.#parts.connection.state !== "closed") {
      this.#deferred.push(message);
      return;
    }
    this.#count(message, message.incarnation === this.#incarnation && this.#sure && this.#sendNow(message));
  }

  /** From now on the stream may be another one: nothing is sent until {@link resolve} has found out. */
  doubt(): void {
    if (this.#sure) this.#doubtedAt = this.#parts.clock.now();
    this.#sure = false;
    this.#doubts++;
  }

  /** Asks the broker until it has said which stream there is, or the connection breaks. Call it again after that. */
  async resolve(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    while (!this.#sure && !this.#closed && this.#parts.connection.connected) {
      const doubts = this.#doubts;
      try {
        const created = await this.#parts.streamCreated();
        if (doubts === this.#doubts && !this.#closed) this.#settleDoubt(created);
      } catch (thrown) {
        logger.info("the stream of the {lane} lane cannot be looked up yet: {error}", {
          lane: this.#parts.lane,
          error: errorText(thrown),
        });
        await this.#pause();
      }
    }
    this.#asking = false;
  }

  /** Takes note of what was found out about the lane. Does not end a doubt. */
  observe(facts: LaneFacts): void {
    this.#ackWaitMs = facts.ackWaitMs;
    if (facts.streamCreated !== undefined) this.#learn(facts.streamCreated);
  }

  /** Sends nothing any more that has to wait. */
  close(): void {
    this.#closed = true;
    this.#wakeUp?.();
    for (const message of this.#deferred.splice(0)) this.#count(message, false);
  }

  #learn(created: string | undefined): void {
    if (created === this.#created) return;
    // Where there was no stream nothing can have come from it.
    if (this.#created !== undefined) {
      this.#incarnation++;
      logger.warn("the stream of the {lane} lane is gone or was made anew; what came from it is not settled", {
        lane: this.#parts.lane,
      });
    }
    this.#created = created;
  }

  #settleDoubt(created: string | undefined): void {
    const { clock, onSure, onGone } = this.#parts;
    this.#learn(created);
    this.#sure = true;
    // The last progress may have been an interval before the doubt.
    const stale = clock.now() - this.#doubtedAt > this.#ackWaitMs - progressIntervalMs(this.#ackWaitMs);
    for (const message of this.#deferred.splice(0)) {
      // Not heard of us for so long, the broker has given the item to somebody else; a NAK would take it from there.
      const useless = message.operation === "nak" && stale;
      this.#count(message, message.incarnation === this.#incarnation && !useless && this.#sendNow(message));
    }
    onSure();
    if (created === undefined) onGone();
  }

  #sendNow({ ackSubject, body, answeredOn }: SettlementMessage): boolean {
    const { connection } = this.#parts;
    if (answeredOn !== undefined && answeredOn !== connection.session) return false;
    return connection.send(ackSubject, body);
  }

  #count({ operation, reason, ackSubject }: SettlementMessage, sent: boolean): void {
    const { lane, metrics } = this.#parts;
    metrics.settled(lane, operation, sent ? "success" : "error", reason);
    if (!sent) logger.warn("{subject}: the {operation} was not sent", { subject: ackSubject, operation });
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const cancel: CancelTimer = this.#parts.clock.after(RETRY_MS, () => this.#wakeUp?.());
      this.#wakeUp = () => {
        this.#wakeUp = undefined;
        cancel();
        resolve();
      };
    });
  }
}
