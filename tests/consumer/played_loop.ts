/** A pull loop on virtual time, whose broker is the test. */
import assert from "node:assert/strict";
import { headers, type MsgHdrs } from "@nats-io/nats-core";
import type { BrokerConnection, BrokerMessage, ConnectionListener } from "../../src/consumer/broker_connection.ts";
import { noConsumerMetrics } from "../../src/consumer/consumer_metrics.ts";
import { poolLane } from "../../src/consumer/names.ts";
import { type LaneFacts, lanePlan } from "../../src/consumer/provisioning.ts";
import { PullLoop } from "../../src/consumer/pull_loop.ts";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";
import { LANE, ScriptedIntake, settingsFor } from "./support.ts";

interface Asked {
  readonly batch: number;
  readonly reply: string;
  readonly at: number;
}

export const FACTS: LaneFacts = {
  ackWaitMs: 30_000,
  maxAckPending: 1_000,
  pending: 0,
  ackPending: 0,
  paused: false,
  streamCreated: "2026-01-01T00:00:00Z",
};

/** A loop whose broker is the test. */
export class Played {
  readonly clock = new VirtualClock();
  readonly asked: Asked[] = [];
  readonly intake = new ScriptedIntake(({ delivery }) => void delivery.ack("completed"));
  readonly loop: PullLoop;
  connected = true;
  reconnects = 0;
  ensures = 0;
  lookUp: () => Promise<LaneFacts | undefined> = () => Promise.resolve(FACTS);
  ensure: () => Promise<LaneFacts> = () => Promise.resolve(FACTS);
  #deliver: (message: BrokerMessage) => void = () => assert.fail("not subscribed");
  #listener: ConnectionListener = {};
  #sequence = 0;

  constructor(environment: Record<string, string> = {}) {
    const settings = settingsFor(environment);
    const isConnected = () => this.connected;
    const connection = {
      get connected() {
        return isConnected();
      },
      state: "connected",
      session: {},
      maxPayload: 1 << 20,
      send: (subject: string, payload: Uint8Array, reply = "") => {
        if (subject.startsWith("$JS.API.CONSUMER.MSG.NEXT.")) {
          const { batch } = JSON.parse(new TextDecoder().decode(payload)) as { batch: number };
          this.asked.push({ batch, reply, at: this.clock.now() });
        }
        return true;
      },
      subscribe: (_: string, handler: (message: BrokerMessage) => void) => {
        this.#deliver = handler;
        return { close: () => {} };
      },
      listen: (listener: ConnectionListener) => {
        this.#listener = listener;
        return () => {};
      },
      reconnect: () => void this.reconnects++,
    };
    this.loop = new PullLoop({
      plan: lanePlan("pool", poolLane(LANE), settings.nats),
      facts: FACTS,
      connection: connection as unknown as BrokerConnection,
      intake: this.intake,
      clock: this.clock,
      ledger: new SettlementLedger(),
      budget: new ByteBudget({ limit: 1 << 28 }),
      metrics: noConsumerMetrics,
      pull: settings.pull,
      nakDelayMs: 5_000,
      reference: false,
      quantumMs: () => 2,
      keeping: {
        deadlines: { skewToleranceS: 5, maxBudgetS: 180 },
        enforce: false,
        longestMs: 1_800_000,
        mayProgress: () => true,
      },
      gate: () => undefined,
      ensure: () => {
        this.ensures++;
        return this.ensure();
      },
      lookUp: () => this.lookUp(),
      streamCreated: () => Promise.resolve(FACTS.streamCreated),
      reconcile: () => Promise.resolve(FACTS),
    });
    this.loop.start();
  }

  get last(): Asked {
    return this.asked.at(-1) ?? assert.fail("nothing was asked");
  }

  /** Sends a status to a request's inbox. */
  status(code: number, text: string, unserved?: number, request = this.last): void {
    const set = headers(code, text);
    if (unserved !== undefined) set.set("Nats-Pending-Messages", String(unserved));
    this.#deliver(message(request.reply, "", new Uint8Array(0), set));
  }

  /** Sends a work item. */
  work(): void {
    const sequence = ++this.#sequence;
    const reply = `$JS.ACK.WORK_POOL_default.default_l4_default.1.${sequence}.${sequence}.1.0`;
    this.#deliver(message("sie.work.default.l4.default.test__model", reply, workItemBytes()));
  }

  disconnect(): void {
    this.connected = false;
    this.#listener.disconnected?.();
  }

  reconnect(): void {
    this.connected = true;
    this.#listener.reconnected?.();
  }
}

function message(subject: string, reply: string, data: Uint8Array, set?: MsgHdrs): BrokerMessage {
  return { subject, reply, data, ...(set === undefined ? {} : { headers: set }) } as BrokerMessage;
}
