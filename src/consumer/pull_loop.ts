/**
 * The pull loop of one lane (spec/queue.md 6): one long-lived inbox, its own credit, permits for what is unsettled, and batches
 * handed to dispatch. There is no cycle that is set up and torn down: a message starts what has to be started, and a settlement
 * makes room for the next request.
 */
import { createInbox } from "@nats-io/nats-core";
import { getLogger } from "@logtape/logtape";
import type { SettlementLedger } from "../dispatch/delivery.ts";
import { settleBy } from "../dispatch/settle_by.ts";
import { attemptOf } from "./ack_subject.ts";
import type { BrokerConnection, BrokerMessage, BrokerSubscription } from "./broker_connection.ts";
import { INBOX_PREFIX } from "./connect.ts";
import type { ConsumerMetrics, LaneKind } from "./consumer_metrics.ts";
import type { LaneReport } from "./consumer_parts.ts";
import { DeliveryReader } from "./delivery_reader.ts";
import type { DeliveryHost, JetStreamDelivery } from "./jetstream_delivery.ts";
import { LaneBatches } from "./lane_batches.ts";
import { type HealedLoop, LaneHealer } from "./lane_healer.ts";
import { LaneSettlements } from "./lane_settlements.ts";
import { LaneState } from "./lane_state.ts";
import { heartbeatFor } from "./lane_watchdog.ts";
import { ProgressKeeper } from "./progress_keeper.ts";
import type { LaneFacts } from "./provisioning.ts";
import type { PullLoopParts } from "./pull_loop_parts.ts";
import { PullRequests } from "./pull_requests.ts";
import { rightFor } from "./rights.ts";
import { PullStatus, reactionTo, type StatusReaction } from "./pull_status.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);
const utf8 = new TextEncoder();

/** Pause before a request is repeated that the broker turned down for the moment. */
const RETRY_MS = 500;
/** Pause after a refusal that only people can change. */
const REFUSED_RETRY_MS = 5_000;
const SHORTEST_EXPIRY_MS = 1_000;
const NANOSECONDS_PER_MS = 1_000_000;

/** Pulls the work of one lane. */
export class PullLoop implements DeliveryHost, HealedLoop {
  readonly connection: BrokerConnection;
  readonly settlements: LaneSettlements;
  readonly ledger: SettlementLedger;
  readonly metrics: ConsumerMetrics;
  readonly lane: LaneKind;
  readonly ackPrefix: string;
  readonly #parts: PullLoopParts;
  readonly #keeper: ProgressKeeper;
  readonly #reader: DeliveryReader;
  readonly #batches: LaneBatches;
  readonly #state: LaneState;
  readonly #healer: LaneHealer;
  readonly #requests = new PullRequests();
  readonly #nextSubject: string;
  readonly #inbox = createInbox(INBOX_PREFIX);
  readonly #unlisten: (() => void)[] = [];
  #subscription: BrokerSubscription | undefined;
  #running = false;
  /** Deliveries that are not settled, and those of them that hold a permit. */
  #held = 0;
  #permits = 0;
  #batchLimit: number;
  #expiresMs: number;
  #heardAt = 0;
  #askedAt = 0;
  #messageAt = 0;
  /** No request is sent before this clock time. */
  #notBefore = 0;
  #refillScheduled = false;
  #turnAt: number | undefined;

  constructor(parts: PullLoopParts) {
    const { plan, pull, clock, connection, ensure, lookUp, metrics, streamCreated } = parts;
    const { stream, durable } = plan.names;
    this.#parts = parts;
    this.connection = connection;
    this.ledger = parts.ledger;
    this.metrics = metrics;
    this.lane = plan.kind;
    this.ackPrefix = `$JS.ACK.${stream}.${durable}.`;
    this.#nextSubject = `$JS.API.CONSUMER.MSG.NEXT.${stream}.${durable}`;
    this.#batchLimit = pull.fetchBudget;
    this.#expiresMs = pull.expiresMs;
    this.#keeper = new ProgressKeeper(clock, parts.keeping, parts.facts.ackWaitMs);
    this.#reader = new DeliveryReader(this, { nakDelayMs: parts.nakDelayMs, reference: parts.reference });
    this.#batches = new LaneBatches({
      intake: parts.intake,
      clock,
      size: pull.fetchBudget,
      inflight: pull.inflight,
      quantumMs: parts.quantumMs,
    });
    this.#state = new LaneState(plan.kind, metrics);
    this.#healer = new LaneHealer({ clock, connection, state: this.#state, ensure, lookUp }, this);
    this.settlements = new LaneSettlements({
      lane: plan.kind,
      connection,
      clock,
      metrics,
      streamCreated,
      onSure: () => this.#keeper.refreshAll(),
      onGone: () => void this.#healer.rebuild("the stream is gone"),
    }, parts.facts);
  }

  /** Begins to pull. Call once. */
  start(): void {
    this.#running = true;
    const { budget } = this.#parts;
    this.#unlisten.push(
      this.connection.listen({
        disconnected: () => this.#onDisconnected(),
        reconnected: () => this.#onReconnected(),
        refused: (operation, subject) => {
          // Without the right to answer or to acknowledge, pulling would lose work, or run it for ever.
          const vital = subject === this.#nextSubject || subject.startsWith("$JS.ACK.") ||
            subject.startsWith("_INBOX.");
          if (operation === "publish" && vital) {
            this.#onRefused(`the user lacks the right to publish to ${rightFor(subject)}`);
          }
        },
      }),
      budget.listen({ low: () => this.#refillSoon() }),
    );
    this.#refill(this.#parts.clock.now());
    this.#healer.start();
  }

  /**
   * Asks for no more work. What arrived and did not reach the intake is handed to other workers at once; so is what is still on its
   * way, until {@link close}.
   */
  stop(): void {
    if (!this.#running) return;
    this.#running = false;
    this.#healer.stop();
    this.#state.set("stopped");
    for (const delivery of this.#batches.takeBack()) {
      settleBy(delivery, "shutdown_waiting", { baseMs: this.#parts.nakDelayMs });
    }
  }

  /** Resolves when the intake has taken in all batches: true; or false after `limitMs`. */
  join(limitMs: number): Promise<boolean> {
    return this.#batches.join(limitMs);
  }

  /** Ends the subscription and keeps nothing alive any more. Deliveries can still be settled. */
  close(): void {
    this.stop();
    this.#keeper.close();
    this.settlements.close();
    for (const unlisten of this.#unlisten.splice(0)) unlisten();
    if (this.connection.state !== "closed") this.#subscription?.close();
  }

  /** Makes or corrects stream and consumer, without touching the pull. Throws BrokerError. */
  async reconcile(): Promise<void> {
    this.observe(await this.#parts.reconcile());
  }

  report(): LaneReport {
    const { stream, durable } = this.#parts.plan.names;
    const { state, detail, repulls, rebuilds } = this.#state;
    return {
      lane: this.lane,
      stream,
      durable,
      state,
      detail,
      held: this.#held,
      kept: this.#keeper.size,
      credit: this.credit,
      repulls,
      rebuilds,
    };
  }

  // What deliveries tell: DeliveryHost

  settled(delivery: JetStreamDelivery): void {
    this.#held--;
    this.#keeper.release(delivery);
    this.#parts.budget.release(delivery.bytes);
    this.permitReleased(delivery);
  }

  permitReleased(delivery: JetStreamDelivery): void {
    if (!delivery.holdsPermit) return;
    delivery.holdsPermit = false;
    this.#permits--;
    this.#refillSoon();
  }

  // What the healer sees: HealedLoop

  get running(): boolean {
    return this.#running;
  }

  get credit(): number {
    return this.#requests.credit;
  }

  get heardAt(): number {
    return this.#heardAt;
  }

  get askedAt(): number {
    return this.#askedAt;
  }

  get messageAt(): number {
    return this.#messageAt;
  }

  get heartbeatMs(): number {
    return heartbeatFor(this.#expiresMs);
  }

  maintain(now: number): void {
    this.#requests.expire(now);
    this.#refill(now);
  }

  forgetRequests(): void {
    this.#requests.clear();
  }

  observe(facts: LaneFacts): void {
    this.#keeper.setAckWait(facts.ackWaitMs);
    this.settlements.observe(facts);
  }

  doubt(): void {
    this.settlements.doubt();
    void this.settlements.resolve();
  }

  pullEnded(): void {
    this.metrics.pullFailed(this.lane, "stream", "stream_ended");
  }

  // What arrives

  #subscribe(): BrokerSubscription {
    return this.connection.subscribe(`${this.#inbox}.*`, (message) => this.#onMessage(message), (error) => {
      // The right was taken away; the next request tries whether it is back.
      this.#subscription = undefined;
      this.#onRefused(error.message);
    });
  }

  #onMessage(message: BrokerMessage): void {
    const now = this.#turnTime();
    this.#heardAt = now;
    const ackSubject = message.reply ?? "";
    if (!ackSubject.startsWith("$JS.ACK.")) return this.#onStatus(message, now);
    this.#messageAt = now;
    this.#healer.served(true);
    this.#requests.received();
    this.#held++;
    this.#permits++;
    this.#parts.budget.add(message.data.length);
    this.metrics.received(this.lane, attemptOf(ackSubject, this.ackPrefix));
    if (!this.#running) return this.#reader.turnAway(message, ackSubject, now, "shutdown_waiting");
    if (this.#parts.gate() !== undefined) return this.#reader.turnAway(message, ackSubject, now, "pool_not_assigned");
    const delivery = this.#reader.read(message, ackSubject, now);
    if (delivery === undefined) return;
    this.#keeper.hold(delivery);
    this.#batches.add(delivery);
    const { credit } = this.#requests;
    // With all permits out nothing more can come before something is settled.
    if (credit === 0 && this.#permits >= this.#parts.pull.maxOutstanding) this.#batches.complete();
    else if (credit <= this.#batchLimit / 2) this.#refillSoon();
  }

  /** The time, read once for all messages that one read of the socket has brought. */
  #turnTime(): number {
    if (this.#turnAt === undefined) {
      this.#turnAt = this.#parts.clock.now();
      queueMicrotask(() => this.#turnAt = undefined);
    }
    return this.#turnAt;
  }

  #onStatus(message: BrokerMessage, now: number): void {
    const { headers } = message;
    if (headers === undefined || headers.code === 0) {
      logger.warn("a message on the pull inbox is neither work nor a status; it is ignored");
      return;
    }
    const unserved = headers.has("Nats-Pending-Messages") ? Number(headers.get("Nats-Pending-Messages")) : undefined;
    const told = Number.isSafeInteger(unserved) ? unserved : undefined;
    const status = new PullStatus(headers.code, headers.description, told);
    const reaction = reactionTo(status);
    if (reaction === "alive" || reaction === "ask_again") this.#healer.served(false);
    if (reaction === "alive") return;
    const id = Number(message.subject.slice(this.#inbox.length + 1));
    this.#requests.ended(id, told, reaction !== "ask_again" && told === undefined);
    if (this.#running) this.#react(reaction, status, now);
  }

  #react(reaction: StatusReaction, status: PullStatus, now: number): void {
    if (reaction !== "ask_again") this.metrics.pullFailed(this.lane, "fetch", "transport");
    switch (reaction) {
      case "alive":
      case "ask_again":
        break;
      case "ask_later":
        logger.info("the {lane} lane asks again in {ms} ms: {status}", {
          lane: this.lane,
          ms: RETRY_MS,
          status: status.text,
        });
        this.#notBefore = now + RETRY_MS;
        return;
      case "ask_less":
        this.#batchLimit = Math.max(1, Math.floor(this.#batchLimit / 2));
        break;
      case "ask_shorter":
        this.#expiresMs = Math.max(SHORTEST_EXPIRY_MS, Math.floor(this.#expiresMs / 2));
        break;
      case "rebuild":
        return void this.#healer.rebuild(status.text);
      case "refused":
        return this.#onRefused(status.text);
    }
    this.#refillSoon();
  }

  // Asking for more

  #refillSoon(): void {
    if (this.#refillScheduled || !this.#running) return;
    this.#refillScheduled = true;
    // Settlements come in bursts; one request answers for all of them.
    queueMicrotask(() => {
      this.#refillScheduled = false;
      this.#refill(this.#parts.clock.now());
    });
  }

  #refill(now: number): void {
    if (!this.#running || this.#healer.rebuilding || !this.connection.connected || now < this.#notBefore) return;
    const { pull, budget, gate } = this.#parts;
    const closed = gate();
    if (closed !== undefined) {
      this.#notBefore = now + closed.pauseMs;
      return this.#state.set("paused", closed.why);
    }
    if (budget.pressed) {
      return this.#state.set("paused", `${budget.used} bytes are in work; the high mark is ${budget.high}`);
    }
    if (this.#state.state === "paused") this.#state.set("pulling");
    const { credit } = this.#requests;
    if (credit > this.#batchLimit / 2) return;
    const batch = Math.min(this.#batchLimit, pull.maxOutstanding - this.#permits - credit);
    if (batch >= 1) this.#ask(batch, now);
  }

  #ask(batch: number, now: number): void {
    this.#subscription ??= this.#subscribe();
    const id = this.#requests.ask(batch, this.#expiresMs, now);
    this.#askedAt = now;
    const expires = this.#expiresMs * NANOSECONDS_PER_MS;
    const heartbeat = this.heartbeatMs * NANOSECONDS_PER_MS;
    const body = `{"batch":${batch},"expires":${expires},"idle_heartbeat":${heartbeat}}`;
    this.connection.send(this.#nextSubject, utf8.encode(body), `${this.#inbox}.${id}`);
  }

  #onRefused(detail: string): void {
    this.metrics.pullFailed(this.lane, "fetch", "transport");
    this.#requests.clear();
    this.#notBefore = this.#parts.clock.now() + REFUSED_RETRY_MS;
    if (this.#running) this.#state.set("refused", detail);
  }

  #onDisconnected(): void {
    this.#requests.clear();
    this.settlements.doubt();
    if (this.#running) this.#state.set("stalled", "the connection to the broker is down");
  }

  #onReconnected(): void {
    this.#requests.clear();
    void this.settlements.resolve();
    if (!this.#running) return;
    this.#notBefore = 0;
    this.#healer.reconnected();
    this.#refill(this.#parts.clock.now());
  }
}
