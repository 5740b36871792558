/** A consumer on a real broker, with an intake that does what the test says. */
import assert from "node:assert/strict";
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import type { ConnectionOptions, NatsConnection } from "@nats-io/nats-core";
import type { AdmissionPoller } from "../../src/consumer/admission_poller.ts";
import type { BrokerConnection } from "../../src/consumer/broker_connection.ts";
import { Cancellations } from "../../src/consumer/cancellations.ts";
import { connectToBroker } from "../../src/consumer/connect.ts";
import type { ConsumerHandle } from "../../src/consumer/consumer_parts.ts";
import type { ConsumerMetrics } from "../../src/consumer/consumer_metrics.ts";
import { startConsumer } from "../../src/consumer/start_consumer.ts";
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import type { Arrival, WorkIntake } from "../../src/dispatch/intake.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { loadSettings } from "../../src/settings/load.ts";
import type { Settings } from "../../src/settings/settings.ts";
import { FakeGateway, type GatewayOptions } from "../fake_gateway/gateway.ts";
import { eventually, TestFolder } from "../harness/process.ts";
import { connectNats } from "../harness/nats_client.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { msgpack, type Value } from "../harness/work_items.ts";

/** The lane of all tests. */
export const LANE = { pool: "default", machineProfile: "l4", bundle: "default", workerId: "worker-1" };

const ENVIRONMENT = {
  SIE_POOL: LANE.pool,
  SIE_MACHINE_PROFILE: LANE.machineProfile,
  SIE_BUNDLE: LANE.bundle,
  SIE_WORKER_ID: LANE.workerId,
};

/** Settings as the program would have them. */
export function settingsFor(environment: Record<string, string> = {}): Settings {
  const loaded = loadSettings({
    program: "worker-sidecar",
    args: [],
    environment: { SIE_NATS_URL: "nats://127.0.0.1:4222", ...ENVIRONMENT, ...environment },
    newWorkerId: () => "worker-new",
  });
  assert.ok(loaded.kind === "settings", loaded.kind === "text" ? loaded.stderr : "");
  return loaded.settings;
}

/** What a test does with one arrival. */
export type Script = (arrival: Arrival) => void | Promise<void>;

/** Answers with a result and ACKs, as dispatch does. */
export const answer: Script = async ({ delivery, work }) => {
  const sent = delivery.publish(work.replySubject, resultOf(work.workItemId, delivery.workerDirect));
  if (sent !== undefined) await sent;
  delivery.ack("completed");
};

/** A successful WorkResult of an item. */
export function resultOf(workItemId: string, workerDirect = false, more: { [key: string]: Value } = {}): Uint8Array {
  const dot = workItemId.lastIndexOf(".");
  return msgpack({
    work_item_id: workItemId,
    request_id: workItemId.slice(0, dot),
    item_index: Number(workItemId.slice(dot + 1)),
    success: true,
    result_msgpack: msgpack({ dense: [1, 2, 3] }),
    error: null,
    error_code: null,
    inference_ms: 1.5,
    queue_ms: 0.5,
    processing_ms: null,
    worker_id: LANE.workerId,
    worker_direct: workerDirect,
    ...more,
  });
}

/** Takes arrivals and runs the script on each; keeps them all. */
export class ScriptedIntake implements WorkIntake {
  script: Script;
  /** Whether a batch counts as taken in only when its last item is settled; dispatch is done with it when it is queued. */
  waits = false;
  readonly arrivals: Arrival[] = [];
  readonly batches: number[] = [];
  /** Errors that a script let escape. */
  readonly failures: unknown[] = [];

  constructor(script: Script = answer) {
    this.script = script;
  }

  async accept(arrivals: readonly Arrival[]): Promise<void> {
    this.batches.push(arrivals.length);
    this.arrivals.push(...arrivals);
    const done = Promise.all(arrivals.map(async (arrival) => {
      try {
        await this.script(arrival);
      } catch (thrown) {
        this.failures.push(thrown);
        arrival.delivery.leave("publish_failed");
      }
    }));
    if (this.waits) await done;
  }

  /** Executions per work item id. */
  executions(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { work } of this.arrivals) counts.set(work.workItemId, (counts.get(work.workItemId) ?? 0) + 1);
    return counts;
  }
}

/** Counts what the consumer reports, one key per kind of event. */
export class CountingMetrics implements ConsumerMetrics {
  readonly counts: Record<string, number> = {};
  readonly states: string[] = [];

  received(lane: string, attempt: number): void {
    this.#count(`receive ${lane} ${attempt === 1 ? "first" : attempt === 0 ? "unknown" : "again"}`);
  }

  settled(lane: string, operation: string, outcome: string, reason: string): void {
    this.#count(`${operation} ${lane} ${outcome} ${reason}`);
  }

  pullFailed(lane: string, operation: string, reason: string): void {
    this.#count(`${operation} ${lane} ${reason}`);
  }

  pullState(lane: string, state: string): void {
    this.states.push(`${lane} ${state}`);
  }

  #count(key: string): void {
    this.counts[key] = (this.counts[key] ?? 0) + 1;
  }
}

/** How to set a test up. */
export interface RigOptions {
  readonly environment?: Record<string, string>;
  readonly script?: Script;
  /** More nats-server configuration. */
  readonly config?: string;
  readonly admission?: AdmissionPoller;
  readonly budget?: ByteBudget;
  readonly mayProgress?: () => boolean;
  readonly gateway?: Partial<GatewayOptions>;
  readonly admin?: ConnectionOptions;
  /** Another address for the consumer than the server's own: a proxy's. */
  readonly through?: (server: NatsServer) => string;
  /** Do not pull yet. */
  readonly idle?: boolean;
}

/** Broker, gateway and consumer. Use it with `await using`. */
export class Rig implements AsyncDisposable {
  readonly folder: TestFolder;
  server: NatsServer;
  readonly gateway: FakeGateway;
  readonly connection: BrokerConnection;
  readonly consumer: ConsumerHandle;
  readonly intake: ScriptedIntake;
  readonly ledger: SettlementLedger;
  readonly budget: ByteBudget;
  readonly metrics: CountingMetrics;
  readonly cancellations: Cancellations;
  readonly settings: Settings;
  readonly generateCancels: string[];
  /** A second connection with all rights. */
  readonly admin: NatsConnection;
  readonly manager: JetStreamManager;

  private constructor(parts: Omit<Rig, "handOver" | "settled" | "stop" | "consumerInfo" | typeof Symbol.asyncDispose>) {
    this.folder = parts.folder;
    this.server = parts.server;
    this.gateway = parts.gateway;
    this.connection = parts.connection;
    this.consumer = parts.consumer;
    this.intake = parts.intake;
    this.ledger = parts.ledger;
    this.budget = parts.budget;
    this.metrics = parts.metrics;
    this.cancellations = parts.cancellations;
    this.settings = parts.settings;
    this.generateCancels = parts.generateCancels;
    this.admin = parts.admin;
    this.manager = parts.manager;
  }

  static async start(options: RigOptions = {}): Promise<Rig> {
    const folder = new TestFolder();
    const server = await NatsServer.start({
      folder: folder.path,
      ...(options.config === undefined ? {} : { config: options.config }),
    });
    const settings = settingsFor({ SIE_STREAM_STORAGE: "file", ...options.environment });
    const connection = await connectToBroker({
      url: options.through?.(server) ?? server.url,
      security: settings.nats.security,
      clock: systemClock,
      name: "test",
    });
    const cancellations = new Cancellations({ clock: systemClock, deadlines: settings.deadlines });
    const intake = new ScriptedIntake(options.script);
    const ledger = new SettlementLedger();
    const budget = options.budget ?? new ByteBudget({ limit: 1 << 28 });
    const metrics = new CountingMetrics();
    const generateCancels: string[] = [];
    const consumer = await startConsumer({
      settings,
      connection,
      intake,
      clock: systemClock,
      ledger,
      budget,
      cancellations,
      admission: options.admission,
      metrics,
      quantumMs: () => 2,
      onGenerateCancel: (requestId) => generateCancels.push(requestId),
      ...(options.mayProgress === undefined ? {} : { mayProgress: options.mayProgress }),
    });
    const gateway = await FakeGateway.connect({ url: server.url, lane: LANE, ...options.gateway });
    const admin = await connectNats({ servers: server.url, ...options.admin });
    const manager = await jetstreamManager(admin);
    if (options.idle !== true) consumer.startPulling();
    return new Rig({
      folder,
      server,
      gateway,
      connection,
      consumer,
      intake,
      ledger,
      budget,
      metrics,
      cancellations,
      settings,
      generateCancels,
      admin,
      manager,
    });
  }

  /** Waits until every delivery is settled and nothing is left in either stream. */
  async settled(): Promise<void> {
    await eventually("everything is settled and both streams are empty", async () => {
      if (this.ledger.outstanding > 0) return false;
      for (const stream of ["WORK_POOL_default", `WORK_WORKER_${LANE.workerId}`]) {
        const { state } = await this.manager.streams.info(stream);
        if (state.messages > 0) return false;
      }
      return true;
    });
  }

  /** The pool consumer as the broker sees it. */
  async consumerInfo() {
    return await this.manager.consumers.info("WORK_POOL_default", "default_l4_default");
  }

  /** What every test ends with: no rule was broken, nothing settled twice, nothing thrown away. */
  async stop(): Promise<void> {
    this.consumer.stopPulling();
    assert.ok(await this.consumer.joinTasks(10_000), "batches are still being taken in");
    await this.consumer.close();
    await this.connection.close();
    assert.deepEqual(this.gateway.violations(), []);
    assert.equal(this.ledger.counts.refused, 0, "something was settled twice");
    assert.equal(this.budget.used, 0, "bytes are still counted");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.consumer.close();
    await this.connection.close();
    await this.gateway[Symbol.asyncDispose]();
    await this.admin.close();
    await this.server[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}
