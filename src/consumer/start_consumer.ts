/** Puts the consumer together: streams, durables, cancel signals, pull loops and the reconciler that looks after them. */
import { getLogger } from "@logtape/logtape";
import type { JetStreamManager } from "@nats-io/jetstream";
import { type CancelTimer, type Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { brokerApi, HEALING_CALL_MS, PATIENT_CALL_MS } from "./broker_api.ts";
import { CancelSubscriptions } from "./cancel_subscriptions.ts";
import { noConsumerMetrics } from "./consumer_metrics.ts";
import type { ConsumerHandle, ConsumerParts, ConsumerReport } from "./consumer_parts.ts";
import { directLane, type LaneIdentity, poolLane, subjectToken } from "./names.ts";
import { ensureLane, type LaneFacts, type LanePlan, lanePlan, lookUpLane, streamCreated } from "./provisioning.ts";
import { PullLoop } from "./pull_loop.ts";
import type { PullGate } from "./pull_loop_parts.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/**
 * Makes streams and consumers of both lanes and opens the cancel subscriptions. Does not pull yet.
 *
 * @throws BrokerError `provision` or `permission`: the start fails
 */
export async function startConsumer(parts: ConsumerParts): Promise<ConsumerHandle> {
  const { settings, connection } = parts;
  const lane: LaneIdentity = settings.lane;
  const apis: Apis = {
    patient: await brokerApi(connection.nats, PATIENT_CALL_MS),
    healing: await brokerApi(connection.nats, HEALING_CALL_MS),
  };
  const plans = [
    lanePlan("pool", poolLane(lane), settings.nats),
    lanePlan("direct", directLane(lane), settings.nats),
  ];
  const loops: PullLoop[] = [];
  for (const plan of plans) loops.push(makeLoop(parts, apis, plan, await ensureLane(apis.patient, plan)));
  const cancels = new CancelSubscriptions({
    connection,
    clock: parts.clock,
    cancellations: parts.cancellations,
    workerToken: subjectToken(lane.workerId),
    onGenerateCancel: parts.onGenerateCancel ?? (() => {}),
  });
  await cancels.open();
  return new Consumer(parts, loops, cancels);
}

interface Apis {
  readonly patient: JetStreamManager;
  readonly healing: JetStreamManager;
}

function makeLoop(parts: ConsumerParts, apis: Apis, plan: LanePlan, facts: LaneFacts): PullLoop {
  const { settings, cancellations, admission } = parts;
  const gate: PullGate = () =>
    admission === undefined || admission.admitsPull()
      ? undefined
      : { why: `pool admission: ${admission.state.reason}`, pauseMs: admission.pauseMs };
  return new PullLoop({
    plan,
    facts,
    connection: parts.connection,
    intake: parts.intake,
    clock: parts.clock,
    ledger: parts.ledger,
    budget: parts.budget,
    metrics: parts.metrics ?? noConsumerMetrics,
    pull: settings.pull,
    nakDelayMs: settings.dispatch.nakDelayMs,
    reference: settings.compat.reference,
    quantumMs: parts.quantumMs,
    keeping: {
      deadlines: cancellations.limits,
      enforce: settings.deadlines.enforce,
      longestMs: settings.deadlines.tombstoneTtlMs,
      mayProgress: parts.mayProgress ?? (() => true),
    },
    gate,
    ensure: () => ensureLane(apis.healing, plan),
    lookUp: () => lookUpLane(apis.healing, plan),
    streamCreated: () => streamCreated(apis.healing, plan),
    reconcile: () => ensureLane(apis.patient, plan),
  });
}

class Consumer implements ConsumerHandle {
  readonly #parts: ConsumerParts;
  readonly #loops: readonly PullLoop[];
  readonly #cancels: CancelSubscriptions;
  readonly #reconciler: Reconciler;

  constructor(parts: ConsumerParts, loops: readonly PullLoop[], cancels: CancelSubscriptions) {
    this.#parts = parts;
    this.#loops = loops;
    this.#cancels = cancels;
    this.#reconciler = new Reconciler(parts.clock, loops, parts.settings.nats.reconcileIntervalMs);
  }

  startPulling(): void {
    for (const loop of this.#loops) loop.start();
    this.#reconciler.start();
  }

  stopPulling(): void {
    this.#reconciler.stop();
    for (const loop of this.#loops) loop.stop();
  }

  reconcile(): Promise<void> {
    return this.#reconciler.reconcile();
  }

  async joinTasks(limitMs: number): Promise<boolean> {
    const joined = await Promise.all(this.#loops.map((loop) => loop.join(limitMs)));
    return joined.every(Boolean);
  }

  close(): Promise<void> {
    this.stopPulling();
    this.#cancels.close();
    for (const loop of this.#loops) loop.close();
    return Promise.resolve();
  }

  report(): ConsumerReport {
    const { connection, admission } = this.#parts;
    const state = admission?.state;
    return {
      connection: connection.state,
      lanes: this.#loops.map((loop) => loop.report()),
      admission: {
        admitted: state?.admitted ?? true,
        logical: [...state?.logical ?? []],
        reason: state?.reason ?? "off",
      },
    };
  }
}

/** Repeats the whole ensure at intervals (spec/queue.md 1.5): it notices what no error tells of, and corrects it. */
class Reconciler {
  readonly #clock: Clock;
  readonly #loops: readonly PullLoop[];
  readonly #intervalMs: number | undefined;
  #cancelTimer: CancelTimer | undefined;
  #stopped = false;

  constructor(clock: Clock, loops: readonly PullLoop[], intervalMs: number | undefined) {
    this.#clock = clock;
    this.#loops = loops;
    this.#intervalMs = intervalMs;
  }

  start(): void {
    if (this.#intervalMs === undefined || this.#stopped) return;
    this.#cancelTimer = this.#clock.after(this.#intervalMs, () => void this.#round());
  }

  stop(): void {
    this.#stopped = true;
    this.#cancelTimer?.();
  }

  async #round(): Promise<void> {
    await this.reconcile();
    this.start();
  }

  /** One round. */
  async reconcile(): Promise<void> {
    for (const loop of this.#loops) {
      try {
        await loop.reconcile();
      } catch (thrown) {
        logger.warn("the {lane} lane cannot be reconciled: {error}", { lane: loop.lane, error: errorText(thrown) });
      }
    }
  }
}
