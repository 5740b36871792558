/**
 * One JetStream message of work: settled at most once, by a message to its ACK subject. It is its own arrival, and its own element
 * in the list of deliveries kept alive: one object per message.
 */
import { getLogger } from "@logtape/logtape";
import {
  type Delivery,
  type DeliverySource,
  type LeaveReason,
  type Settled,
  settledBy,
  type SettleReason,
} from "../dispatch/delivery.ts";
import type { Arrival } from "../dispatch/intake.ts";
import type { WorkItem } from "../wire/work_item.ts";
import { attemptOf } from "./ack_subject.ts";
import { ACK_BODY, nakBody } from "./acks.ts";
import type { BrokerConnection, ConnectionSession } from "./broker_connection.ts";
import type { SettlementLedger } from "../dispatch/delivery.ts";
import type { ConsumerMetrics, LaneKind } from "./consumer_metrics.ts";
import type { Held } from "./held_list.ts";
import type { LaneSettlements } from "./lane_settlements.ts";
import type { KeptDelivery } from "./progress_keeper.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/**
 * How long the publication of a result waits for a connection that is away, in milliseconds. After that the item is left to
 * redelivery; a shorter absence costs nothing.
 */
const PUBLISH_PATIENCE_MS = 30_000;

/** What a delivery needs of the lane it came through; one object for all of them. */
export interface DeliveryHost {
  readonly connection: BrokerConnection;
  readonly settlements: LaneSettlements;
  readonly ledger: SettlementLedger;
  readonly metrics: ConsumerMetrics;
  readonly lane: LaneKind;
  /** What ACK subjects of the lane begin with, up to the delivery count. */
  readonly ackPrefix: string;
  /** Called once, at the settlement: the delivery takes up no more room. */
  settled(delivery: JetStreamDelivery): void;
  /** Called when the delivery gives its pull permit back before that. */
  permitReleased(delivery: JetStreamDelivery): void;
}

const NOT_PUBLISHED = undefined;

/** See the file's comment. */
export class JetStreamDelivery implements Delivery, Arrival, KeptDelivery {
  readonly number: number;
  readonly work: WorkItem;
  readonly workerDirect: boolean;
  readonly arrivedAt: number;
  /** Bytes of the message, as counted in the byte budget. */
  readonly bytes: number;
  readonly #host: DeliveryHost;
  readonly #ackSubject: string;
  readonly #incarnation: number;
  #settled = false;
  /** Whether it still holds a pull permit; {@link DeliveryHost} takes it back once. */
  holdsPermit = true;
  /** Number of cancellations known when it was last found not to be cancelled; see `Cancellations`. */
  clearAtVersion = 0;
  /** The connection on which something was last published for the caller. */
  #publishedOn: ConnectionSession | undefined = NOT_PUBLISHED;

  // Element of the lane's HeldList.
  dueAt = 0;
  previous: Held | undefined = undefined;
  next: Held | undefined = undefined;
  held = false;

  constructor(
    host: DeliveryHost,
    work: WorkItem,
    ackSubject: string,
    workerDirect: boolean,
    bytes: number,
    at: number,
  ) {
    this.#host = host;
    this.work = work;
    this.#ackSubject = ackSubject;
    this.workerDirect = workerDirect;
    this.bytes = bytes;
    this.arrivedAt = at;
    this.#incarnation = host.settlements.incarnation;
    this.number = host.ledger.opened();
  }

  get delivery(): this {
    return this;
  }

  get settled(): boolean {
    return this.#settled;
  }

  get source(): DeliverySource {
    return this.#host.lane;
  }

  get attempt(): number {
    return attemptOf(this.#ackSubject, this.#host.ackPrefix);
  }

  get maxPayload(): number {
    return this.#host.connection.maxPayload;
  }

  publish(replySubject: string, payload: Uint8Array): void | Promise<void> {
    const { connection } = this.#host;
    if (!connection.connected) return this.#publishLater(replySubject, payload);
    const waiting = connection.publish(replySubject, payload);
    this.#publishedOn = connection.session;
    return waiting;
  }

  flush(): Promise<void> {
    return this.#host.connection.flush();
  }

  releasePermit(): void {
    if (this.#settled) return;
    this.#host.permitReleased(this);
  }

  progress(): boolean {
    return !this.#settled && this.#host.settlements.progress(this.#ackSubject, this.#incarnation);
  }

  ack(reason: SettleReason): Settled {
    const { connection } = this.#host;
    const answered = this.#publishedOn !== NOT_PUBLISHED;
    if (answered && !(connection.connected && this.#publishedOn === connection.session)) return this.#leaveUnsure();
    if (this.#begin("ack")) this.#send("ack", ACK_BODY, reason, this.#publishedOn);
    return settledBy("ack");
  }

  nak(delayMs: number, reason: SettleReason): Settled {
    if (this.#begin("nak")) this.#send("nak", nakBody(delayMs), reason);
    return settledBy("nak");
  }

  leave(reason: LeaveReason): Settled {
    if (this.#begin("left")) {
      logger.debug("delivery {number} is left to redelivery: {reason}", { number: this.number, reason });
    }
    return settledBy("left");
  }

  async #publishLater(replySubject: string, payload: Uint8Array): Promise<void> {
    const { connection } = this.#host;
    // Told apart from its publication: the connection that it went out on is noted in the same turn.
    await connection.untilConnected(PUBLISH_PATIENCE_MS);
    const waiting = connection.publish(replySubject, payload);
    this.#publishedOn = connection.session;
    await waiting;
  }

  /**
   * The result went out on a connection that broke since: it may be lost, and an ACK would lose the item with it. Redelivery runs
   * it again, which at-least-once allows.
   */
  #leaveUnsure(): Settled {
    if (this.#begin("left")) {
      logger.warn("{item} may be unanswered since the connection broke; it is left to redelivery", {
        item: this.work.workItemId,
      });
    }
    return settledBy("left");
  }

  /** Notes the settlement; false when there was one already. */
  #begin(action: Settled["action"]): boolean {
    const first = !this.#settled;
    this.#host.ledger.settle(action, first);
    if (!first) {
      logger.error("delivery {number} was settled twice; the second time ({action}) is ignored", {
        number: this.number,
        action,
      });
      return false;
    }
    this.#settled = true;
    this.#host.settled(this);
    return true;
  }

  #send(operation: "ack" | "nak", body: Uint8Array, reason: SettleReason, answeredOn?: ConnectionSession): void {
    const { settlements } = this.#host;
    settlements.send({
      operation,
      body,
      reason,
      ackSubject: this.#ackSubject,
      incarnation: this.#incarnation,
      answeredOn,
    });
  }
}
