/** Everything between a real broker and a scripted backend in one process: consumer, dispatch, scheduler, backend client, results. */
import assert from "node:assert/strict";
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/nats-core";
import type { BrokerConnection } from "../../src/consumer/broker_connection.ts";
import { Cancellations } from "../../src/consumer/cancellations.ts";
import { connectToBroker } from "../../src/consumer/connect.ts";
import type { ConsumerHandle } from "../../src/consumer/consumer_parts.ts";
import { startConsumer } from "../../src/consumer/start_consumer.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { ADMIT_ALL, assembleCore, type Core } from "../../src/serve/core.ts";
import { FakeGateway } from "../fake_gateway/gateway.ts";
import { connectNats } from "../harness/nats_client.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { errorAnswer, okAnswer, pingAnswer } from "../ipc/frames.ts";
import { type ReceivedRequest, ScriptedBackend, type ServerConnection } from "../ipc/scripted_backend.ts";
import { AckWatcher } from "./ack_watcher.ts";
import { CountingMetrics, LANE, settingsFor } from "./support.ts";

/** A work item as the backend sees it in a batch. */
export interface BatchItem {
  readonly op: string;
  readonly work_item_id: string;
  readonly request_id: string;
  readonly item_index: number;
}

/** What the backend does; each answer is a body, or the text of an error. */
export interface Behaviour {
  /** EnsureModelReady, by the number of the question, counted from 1. */
  readonly ready?: (question: number) => unknown;
  /** RunBatch: the outcome of an item, undefined for none; or the text of an error for the whole batch. */
  readonly run?: string | ((item: BatchItem) => unknown);
  /** ProcessGenerate: the events of the stream; a text closes the connection in its place. */
  readonly stream?: readonly (string | Readonly<Record<string, unknown>>)[];
}

/** Answer of a model that is there. */
export const READY = { state: "ready", batch_budget: null, descriptor: { supports_run_batch: true } };

/** Outcome of an item that went well, or with these fields otherwise. */
export function outcomeOf(item: BatchItem, more: Readonly<Record<string, unknown>> = {}): unknown {
  const { work_item_id, request_id, item_index } = item;
  return {
    work_item_id,
    request_id,
    item_index,
    disposition: "publish_and_ack",
    result_msgpack: { $bin: "81a16101" },
    ...more,
  };
}

/** How to set a test up. */
export interface WholeOptions {
  readonly behaviour?: Behaviour;
  readonly environment?: Record<string, string>;
  readonly config?: string;
}

/** See the file's comment. Use it with `await using`. */
export class Whole implements AsyncDisposable {
  readonly folder = new TestFolder();
  readonly shutdown = new AbortController();
  readonly metrics = new CountingMetrics();
  readonly backend: ScriptedBackend;
  server!: NatsServer;
  gateway!: FakeGateway;
  connection!: BrokerConnection;
  consumer!: ConsumerHandle;
  core!: Core;
  cancellations!: Cancellations;
  admin!: NatsConnection;
  manager!: JetStreamManager;
  acks!: AckWatcher;
  readonly #behaviour: Behaviour;
  #questions = 0;

  private constructor(options: WholeOptions) {
    this.#behaviour = options.behaviour ?? {};
    this.backend = new ScriptedBackend((connection) => this.#serve(connection));
  }

  static async start(options: WholeOptions = {}): Promise<Whole> {
    const whole = new Whole(options);
    const { folder, backend } = whole;
    whole.server = await NatsServer.start({
      folder: folder.path,
      ...(options.config === undefined ? {} : { config: options.config }),
    });
    const { url } = whole.server;
    const settings = settingsFor({ SIE_IPC_SOCKET_PATH: backend.path, SIE_NAK_DELAY_S: "0.3", ...options.environment });
    const clock = systemClock;
    whole.cancellations = new Cancellations({ clock, deadlines: settings.deadlines });
    whole.core = assembleCore({
      settings,
      clock,
      trace: undefined,
      drops: whole.cancellations,
      admission: ADMIT_ALL,
      shutdown: whole.shutdown.signal,
    });
    whole.connection = await connectToBroker({ url, security: settings.nats.security, clock, name: "test" });
    whole.consumer = await startConsumer({
      settings,
      connection: whole.connection,
      intake: whole.core.dispatcher,
      clock,
      ledger: whole.core.ledger,
      budget: whole.core.budget,
      cancellations: whole.cancellations,
      admission: undefined,
      metrics: whole.metrics,
      quantumMs: () => 2,
    });
    whole.gateway = await FakeGateway.connect({ url, lane: LANE });
    whole.admin = await connectNats({ servers: url });
    whole.manager = await jetstreamManager(whole.admin);
    whole.acks = await AckWatcher.start(whole.admin);
    whole.consumer.startPulling();
    return whole;
  }

  /** Calls of a method so far. */
  calls(method: string): number {
    return this.backend.requests.filter((request) => request.method === method).length;
  }

  /** Settlement messages so far, without progress, in order. */
  settlements(): string[] {
    return this.acks.seen.map(({ body }) => body).filter((body) => body !== "+WPI");
  }

  /** Waits for so many settlement messages, progress not counted. */
  async settled(count: number): Promise<string[]> {
    await eventually(
      `${count} settlements`,
      () => this.settlements().length >= count,
      undefined,
      () => JSON.stringify({ seen: this.settlements(), counts: this.core.ledger.counts }),
    );
    return this.settlements();
  }

  /** Ends as the program does, and requires that nothing was settled twice and no rule of the gateway was broken. */
  async stop(): Promise<void> {
    this.consumer.stopPulling();
    this.shutdown.abort();
    await this.consumer.joinTasks(10_000);
    await this.core.dispatcher.parkedGroupsSettled();
    await this.core.generation.idle();
    await eventually("nothing is held", () => this.core.ledger.outstanding === 0);
    assert.equal(this.core.ledger.counts.refused, 0);
    assert.deepEqual(this.gateway.violations(), []);
    assert.equal(this.core.budget.used, 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.shutdown.abort();
    await this.consumer?.close();
    await this.connection?.close();
    await this.gateway?.[Symbol.asyncDispose]();
    await this.admin?.close();
    await this.server?.[Symbol.asyncDispose]();
    await this.core?.backend.close();
    await this.backend[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }

  async #serve(connection: ServerConnection): Promise<void> {
    for (;;) {
      const request = await connection.request();
      if (request === undefined) return;
      if (request.method === "ProcessGenerate") return await this.#stream(connection, request);
      await connection.send(this.#answer(request));
    }
  }

  #answer({ method, requestId, body }: ReceivedRequest): Uint8Array {
    const answer = (value: unknown) =>
      typeof value === "string" ? errorAnswer(requestId, value) : okAnswer(requestId, value);
    switch (method) {
      case "Ping":
        return pingAnswer(requestId);
      case "EnsureModelReady":
        return answer(this.#behaviour.ready?.(++this.#questions) ?? READY);
      case "RunBatch": {
        const run = this.#behaviour.run ?? outcomeOf;
        if (typeof run === "string") return errorAnswer(requestId, run);
        const { items } = body as { items: BatchItem[] };
        return okAnswer(requestId, {
          outcomes: items.map((item) => run(item)).filter((outcome) => outcome !== undefined),
        });
      }
      case "Drain":
        return okAnswer(requestId, { acknowledged: true });
      case "SignalGenerateCancel":
        return okAnswer(requestId, { matched: true });
      default:
        throw new Error(`the backend of this test does not know ${method}`);
    }
  }

  async #stream(connection: ServerConnection, { requestId }: ReceivedRequest): Promise<void> {
    for (const event of this.#behaviour.stream ?? []) {
      if (typeof event === "string") return connection.close();
      const whole = { reply_subject: "", payload: { $bin: "" }, delay_ms: null, error: null, ...event };
      await connection.send(okAnswer(requestId, whole));
    }
    await connection.request();
  }
}
