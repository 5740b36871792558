/** NATS mode: work comes from JetStream (spec/runtime.md 3 and 7). */
import { AdmissionPoller } from "../consumer/admission_poller.ts";
import type { BrokerConnection } from "../consumer/broker_connection.ts";
import { Cancellations } from "../consumer/cancellations.ts";
import { connectToBroker } from "../consumer/connect.ts";
import type { ConsumerHandle } from "../consumer/consumer_parts.ts";
import { BrokerError } from "../consumer/errors.ts";
import { startConsumer } from "../consumer/start_consumer.ts";
import { HealthPublisher } from "../health/health_publisher.ts";
import type { DrainStep } from "../runtime/drain_order.ts";
import { errorText } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";
import { Supervisor } from "../runtime/supervise.ts";
import { pullQuantumMs } from "../scheduler/pull_quantum.ts";
import type { Settings } from "../settings/settings.ts";
import { ADMIT_ALL, assembleCore, type Core } from "./core.ts";
import { WorkerHealth } from "./health.ts";
import type { ModeParts, RunningMode } from "./mode.ts";
import { PinnedModels } from "./pinned_models.ts";

const logger = logFor("serve");

/** Limits of the steps in milliseconds (spec/runtime.md 7). */
const JOIN_LIMIT_MS = 10_000;
const RETRACTION_LIMIT_MS = 2_000;
const CLOSE_LIMIT_MS = 5_000;

/**
 * Connects, makes streams and consumers, and starts to pull.
 *
 * @throws BrokerError when the broker cannot be reached or refuses what the worker needs: the start fails
 */
export async function startNatsMode({ settings, clock, trace, latch, batchTimes }: ModeParts): Promise<RunningMode> {
  if (settings.ingest.mode !== "nats") throw new TypeError("not in NATS mode");
  const cancellations = new Cancellations({
    clock,
    deadlines: settings.deadlines,
    onCancelled: () => core.dispatcher.somethingCancelled(),
  });
  const admission = AdmissionPoller.of(settings.admission, {
    lane: settings.lane,
    clock,
    onPools: (pools) => void pinned.take(pools),
  });
  const core: Core = assembleCore({
    settings,
    clock,
    trace,
    drops: cancellations,
    admission: admission ?? ADMIT_ALL,
    shutdown: latch.signal,
    batchTimes,
  });
  const pinned = new PinnedModels(core.backend, settings.lane.pool);
  const health = new WorkerHealth(settings, core, clock);
  health.startServers();
  const connection = await connectToBroker({
    url: settings.ingest.natsUrl,
    security: settings.nats.security,
    clock,
    name: `worker-sidecar ${settings.lane.workerId}`,
    signal: latch.signal,
  });
  const consumer = await startConsumer({
    settings,
    connection,
    intake: core.dispatcher,
    clock,
    ledger: core.ledger,
    budget: core.budget,
    cancellations,
    admission,
    quantumMs: quantum(settings, core),
    mayProgress: () => health.mayProgress(),
    onGenerateCancel: (requestId) => forwardCancel(core, requestId),
  });
  health.debug.provide("/debug/ready", () => ({ readiness: health.readiness.state(), ...consumer.report() }));
  admission?.start();
  health.startHeartbeat();
  const tasks = new Supervisor(clock, logger);
  const publisher = startHealthPublisher(settings, connection, health, tasks, clock);
  // A start that takes too long to stop is not waited for; what it pulled would be lost until its ack wait.
  if (!latch.signal.aborted) consumer.startPulling();
  return {
    core,
    health,
    failure: endOf(connection),
    stopSteps: stopSteps(consumer, publisher, tasks, admission),
    lastSteps: lastSteps(consumer, connection),
  };
}

/** Rejects when the connection is closed for good, as the client does when it knows no way on: nobody would ever pull again. */
export function endOf(connection: BrokerConnection): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  connection.listen({
    closed: () => reject(new BrokerError("closed", "the connection to the broker is closed for good")),
  });
  // In a shutdown nobody waits for it.
  promise.catch(() => {});
  return promise;
}

function quantum(settings: Settings, core: Core): () => number {
  const { quantumMinMs, quantumMaxMs, quantumTargetP50Ms } = settings.pull;
  const config = { minMs: quantumMinMs, maxMs: quantumMaxMs, targetP50Ms: quantumTargetP50Ms };
  return () => pullQuantumMs(config, core.latencies.percentile(50));
}

/** Every sidecar hears every cancellation and hands it on unfiltered: only the backend knows its generations (generation.md 10). */
function forwardCancel(core: Core, requestId: string): void {
  core.backend.signalGenerateCancel(requestId).catch((thrown) =>
    logger.warn("the cancellation of {request} did not reach the backend: {error}", {
      request: requestId,
      error: errorText(thrown),
    })
  );
}

function startHealthPublisher(
  settings: Settings,
  connection: BrokerConnection,
  health: WorkerHealth,
  tasks: Supervisor,
  clock: ModeParts["clock"],
): HealthPublisher | undefined {
  if (!settings.health.publishEnabled) return undefined;
  const publisher = new HealthPublisher({
    clock,
    intervalMs: settings.health.publishIntervalMs,
    facts: () => health.facts(),
    channel: {
      publish: (subject, payload) => connection.publish(subject, payload),
      flush: () => connection.flush(),
    },
    log: logger,
  });
  health.onLoadingModels(() => publisher.requestNow());
  tasks.start("health publisher", (signal) => publisher.run(signal), { restart: true });
  return publisher;
}

/** No more work; the gateway is told at once, so that it routes elsewhere. */
function stopSteps(
  consumer: ConsumerHandle,
  publisher: HealthPublisher | undefined,
  tasks: Supervisor,
  admission: AdmissionPoller | undefined,
): DrainStep[] {
  return [
    { name: "stop pulling", limitMs: CLOSE_LIMIT_MS, run: () => consumer.stopPulling() },
    {
      name: "retract the health message",
      limitMs: RETRACTION_LIMIT_MS,
      async run() {
        await tasks.stop();
        await publisher?.retract();
      },
    },
    {
      name: "join running groups",
      limitMs: JOIN_LIMIT_MS,
      run: async () => void await consumer.joinTasks(JOIN_LIMIT_MS),
    },
    { name: "stop pool admission", limitMs: CLOSE_LIMIT_MS, run: () => admission?.stop() },
  ];
}

function lastSteps(consumer: ConsumerHandle, connection: BrokerConnection): DrainStep[] {
  return [
    { name: "end cancel subscriptions", limitMs: CLOSE_LIMIT_MS, run: () => consumer.close() },
    { name: "flush and close the broker connection", limitMs: CLOSE_LIMIT_MS, run: () => connection.close() },
  ];
}
