/**
 * Heals a pull loop that has gone wrong without an error: asks again, looks the consumer up and makes it anew, or makes a new
 * connection, mildest first. Beyond the reference, which waits for its reconciler.
 */
import { getLogger } from "@logtape/logtape";
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { BrokerConnection } from "./broker_connection.ts";
import { BrokerError } from "./errors.ts";
import type { LaneState } from "./lane_state.ts";
import { nextStep } from "./lane_watchdog.ts";
import type { LaneFacts } from "./provisioning.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

const TICK_MS = 250;
/** Pause between attempts to rebuild; doubled up to the longest. */
const REBUILD_RETRY_MS = 500;
const LONGEST_REBUILD_RETRY_MS = 1_000;
/** A lane breaks the connection at most this often. */
const RECONNECT_INTERVAL_MS = 60_000;
/** With credit and without a message for this long, the consumer is looked up: does it hold something back? */
const IDLE_LOOK_MS = 10_000;

/** The loop as the healer sees it. */
export interface HealedLoop {
  readonly running: boolean;
  /** Messages asked for and not sent. */
  readonly credit: number;
  /** Clock times in milliseconds of the last sign of life, the last request and the last message. */
  readonly heardAt: number;
  readonly askedAt: number;
  readonly messageAt: number;
  readonly heartbeatMs: number;
  /** Forgets credit that may have run out and asks for more where there is room. */
  maintain(now: number): void;
  /** Forgets all requests. */
  forgetRequests(): void;
  /** Takes over what the consumer looks like now. */
  observe(facts: LaneFacts): void;
  /** The stream may be another one from now on. */
  doubt(): void;
  /** A pull ended without the loop's doing. */
  pullEnded(): void;
}

/** What healing needs beside the loop. */
export interface LaneHealerParts {
  readonly clock: Clock;
  readonly connection: BrokerConnection;
  readonly state: LaneState;
  /** Makes or corrects stream and consumer. */
  readonly ensure: () => Promise<LaneFacts>;
  /** Looks the consumer up; undefined when it is gone or foreign. */
  readonly lookUp: () => Promise<LaneFacts | undefined>;
}

/** See the file's comment. */
export class LaneHealer {
  readonly #parts: LaneHealerParts;
  readonly #loop: HealedLoop;
  #cancelTimer: CancelTimer | undefined;
  #wakeUp: (() => void) | undefined;
  #rebuilding = false;
  #looking = false;
  #lookedAt = 0;
  #reconnectedAt: number | undefined;
  /** Steps tried since something was heard, and looks since a message came that found some waiting. */
  #stepsTried = 0;
  #withheld = 0;

  constructor(parts: LaneHealerParts, loop: HealedLoop) {
    this.#parts = parts;
    this.#loop = loop;
  }

  /** Nothing can be pulled just now. */
  get rebuilding(): boolean {
    return this.#rebuilding;
  }

  start(): void {
    this.#lookedAt = this.#parts.clock.now();
    this.#tickLater();
  }

  stop(): void {
    this.#cancelTimer?.();
    this.#wakeUp?.();
  }

  /** The broker serves the pull, with a message or a sign of life: what was wrong is over, unless it keeps messages back. */
  served(message: boolean): void {
    this.#stepsTried = 0;
    if (message) this.#withheld = 0;
    if (this.#withheld === 0 && this.#parts.state.unwell) this.#parts.state.set("pulling");
  }

  /** There is a new connection. */
  reconnected(): void {
    this.#stepsTried = 0;
    this.#wakeUp?.();
    if (this.#parts.state.state === "stalled") this.#parts.state.set("pulling");
  }

  /**
   * Makes sure that stream and consumer are there, trying until they are, then pulls anew.
   *
   * @param whole look at everything, also when the consumer seems to be right
   */
  async rebuild(why: string, whole = false): Promise<void> {
    if (this.#rebuilding || !this.#loop.running) return;
    const { state, clock } = this.#parts;
    this.#rebuilding = true;
    this.#loop.forgetRequests();
    this.#loop.pullEnded();
    this.#loop.doubt();
    state.set("rebuilding", why);
    for (let pauseMs = REBUILD_RETRY_MS; this.#loop.running;) {
      const failure = await this.#tryToRebuild(whole);
      if (failure === undefined) break;
      const refused = failure instanceof BrokerError && failure.fault === "permission";
      state.set(refused ? "refused" : "rebuilding", errorText(failure));
      await this.#pause(pauseMs);
      pauseMs = Math.min(2 * pauseMs, LONGEST_REBUILD_RETRY_MS);
    }
    this.#rebuilding = false;
    if (!this.#loop.running) return;
    state.set("pulling");
    this.#loop.maintain(clock.now());
  }

  async #tryToRebuild(whole: boolean): Promise<unknown> {
    const { ensure, lookUp } = this.#parts;
    try {
      // After the loss of a server the consumer can be led again, and pulled from, seconds before its stream is.
      const found = whole ? undefined : await lookUp();
      this.#loop.observe(found ?? await ensure());
      this.#parts.state.rebuilds++;
      return undefined;
    } catch (thrown) {
      return thrown;
    }
  }

  #tickLater(): void {
    this.#cancelTimer = this.#parts.clock.after(TICK_MS, () => {
      this.#tick();
      if (this.#loop.running) this.#tickLater();
    });
  }

  #tick(): void {
    if (this.#rebuilding || !this.#parts.connection.connected || !this.#loop.running) return;
    const now = this.#parts.clock.now();
    this.#loop.maintain(now);
    const { credit, heardAt, askedAt, messageAt, heartbeatMs } = this.#loop;
    const step = nextStep({ now, heardAt, askedAt, credit, heartbeatMs, stepsTried: this.#stepsTried });
    if (step !== "none") return this.#heal(step);
    if (credit > 0 && now - Math.max(messageAt, this.#lookedAt) > IDLE_LOOK_MS) void this.#lookForWithheldWork(now);
  }

  #heal(step: "repull" | "rebuild" | "reconnect"): void {
    this.#stepsTried++;
    if (step === "repull") {
      this.#parts.state.set("stalled", "the broker does not answer the pull request");
      return this.#repull();
    }
    const { connection, clock } = this.#parts;
    // Others may be served well by this connection: it is not broken again and again for one lane.
    const spared = this.#reconnectedAt !== undefined && clock.now() - this.#reconnectedAt < RECONNECT_INTERVAL_MS;
    if (step === "rebuild" || spared) return void this.rebuild("the broker does not answer pull requests", true);
    logger.warn("nothing is heard from this server; a new connection is made");
    this.#reconnectedAt = clock.now();
    this.#loop.forgetRequests();
    connection.reconnect();
  }

  #repull(): void {
    this.#parts.state.repulls++;
    this.#loop.pullEnded();
    this.#loop.forgetRequests();
    this.#loop.maintain(this.#parts.clock.now());
  }

  /** The broker answers and sends nothing: look whether it has something for us. */
  async #lookForWithheldWork(now: number): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    this.#lookedAt = now;
    try {
      const facts = await this.#parts.lookUp();
      if (!this.#loop.running || this.#rebuilding) return;
      if (facts === undefined) return await this.rebuild("the consumer is gone or has a foreign filter");
      this.#loop.observe(facts);
      await this.#judge(facts, now);
    } catch (thrown) {
      logger.warn("the consumer cannot be looked up: {error}", { error: errorText(thrown) });
    } finally {
      this.#looking = false;
    }
  }

  async #judge(facts: LaneFacts, lookedAt: number): Promise<void> {
    const { state } = this.#parts;
    const allOut = facts.maxAckPending > 0 && facts.ackPending >= facts.maxAckPending;
    if (facts.paused) return state.set("pulling", "the consumer is paused on the broker");
    if (facts.pending === 0 || allOut || this.#loop.messageAt > lookedAt) {
      this.#withheld = 0;
      return state.set("pulling", allOut ? `all ${facts.maxAckPending} of max_ack_pending are unsettled` : "");
    }
    this.#withheld++;
    state.set("stalled", `${facts.pending} messages wait and none arrives`);
    if (this.#withheld === 1) return this.#repull();
    await this.rebuild(state.detail, true);
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.after(ms, () => this.#wakeUp?.());
      this.#wakeUp = () => {
        this.#wakeUp = undefined;
        cancel();
        resolve();
      };
    });
  }
}
