/** Runs the sidecar until it is told to stop: start, wait, drain (spec/runtime.md 3 to 7). */
import { drainInOrder, type DrainStep } from "./runtime/drain_order.ts";
import { ABORTED, unlessAborted } from "./runtime/abort.ts";
import { type Clock, systemClock } from "./runtime/clock.ts";
import { errorText } from "./runtime/errors.ts";
import { configureLogging, logFor, processLogging } from "./runtime/log.ts";
import { INTERRUPTED_EXIT_CODE, listenForSignals, ShutdownLatch } from "./runtime/signals.ts";
import { installLastResort } from "./runtime/supervise.ts";
import { openTraceFile, TraceWriter } from "./runtime/trace.ts";
import { SettingsError } from "./settings/errors.ts";
import type { Settings } from "./settings/settings.ts";
import { version } from "./settings/version.ts";
import { openBatchTimes } from "./serve/batch_time.ts";
import { startLocalMode } from "./serve/local_mode.ts";
import type { ModeParts, RunningMode } from "./serve/mode.ts";
import { startNatsMode } from "./serve/nats_mode.ts";

const logger = logFor("serve");

/** A start that is told to stop may take so long to come to its end, which is then an ordinary shutdown. */
const START_GRACE_MS = 1_000;
/** Limits of the shutdown's steps in milliseconds (spec/runtime.md 7). */
const PARKED_LIMIT_MS = 15_000;
const DRAIN_LIMIT_MS = 15_000;
const LAST_STEPS_LIMIT_MS = 5_000;

/**
 * Starts everything that `settings` ask for and runs until shutdown.
 *
 * @returns the exit code of the process: 0 after a clean shutdown, 1 after a fatal error
 */
export async function runServe(settings: Settings, clock: Clock = systemClock): Promise<number> {
  const { options, flush } = processLogging(settings.log.filter, settings.log.format);
  configureLogging(options);
  for (const warning of settings.warnings) logger.warn("{warning}", { warning });
  const latch = new ShutdownLatch();
  const exitNow = (code: number) => void flush().finally(() => Deno.exit(code));
  const forgetSignals = listenForSignals(latch, {
    ...(settings.compat.reference ? {} : { onSecondInterrupt: () => interruptedAgain(exitNow) }),
    onIgnored: (signal) => logger.info("{signal} again: the shutdown goes on", { signal }),
  });
  const forgetLastResort = installLastResort({ log: logger, exit: exitNow });
  const { lane, ingest, program } = settings;
  logger.info("{program} {version} serves {pool}/{machine_profile}/{bundle} as {worker_id} from {ingest}", {
    program,
    version,
    pool: lane.pool,
    machine_profile: lane.machineProfile,
    bundle: lane.bundle,
    worker_id: lane.workerId,
    ingest: ingest.mode,
  });
  let trace: TraceWriter | undefined;
  try {
    trace = await openTrace(settings, clock);
    const batchTimes = await openBatchTimes(settings.batchTime, clock);
    const mode = await startMode({ settings, clock, trace, latch, batchTimes });
    if (mode === undefined) {
      logger.info("stopped while it was starting");
      return 0;
    }
    await (mode.failure === undefined ? latch.whenSet : Promise.race([latch.whenSet, mode.failure]));
    await shutDown(mode, settings, clock);
    return 0;
  } catch (thrown) {
    logger.error("exited with error: {error}", { error: errorText(thrown) });
    return 1;
  } finally {
    forgetSignals();
    forgetLastResort();
    await trace?.close();
    await flush();
  }
}

/**
 * Starts the ingest that is configured.
 *
 * @returns undefined when the process was told to stop before the start had come to its end: nothing has been pulled then
 */
async function startMode(parts: ModeParts): Promise<RunningMode | undefined> {
  const { settings, clock, latch } = parts;
  const start = settings.ingest.mode === "local" ? startLocalMode : startNatsMode;
  try {
    const mode = await unlessAborted(start(parts), latch.signal, { grace: { clock, ms: START_GRACE_MS } });
    return mode === ABORTED ? undefined : mode;
  } catch (thrown) {
    // Being told to stop is no failure, whatever it broke off.
    if (!latch.signal.aborted) throw thrown;
    logger.info("the start was broken off: {error}", { error: errorText(thrown) });
    return undefined;
  }
}

function interruptedAgain(exitNow: (code: number) => void): void {
  logger.warn("interrupted again: exiting at once, unsettled work is redelivered");
  exitNow(INTERRUPTED_EXIT_CODE);
}

async function openTrace(settings: Settings, clock: Clock): Promise<TraceWriter | undefined> {
  const path = settings.debug.traceFile;
  if (path === undefined) return undefined;
  const output = await openTraceFile(path).catch((cause) => {
    throw new SettingsError(`SIE_TRACE_FILE: ${path} cannot be opened: ${errorText(cause)}`);
  });
  return new TraceWriter({
    clock,
    output,
    onFailure: (error) => logger.error("the event trace ends here: {path}: {error}", { path, error }),
  });
}

/** The order of the shutdown: no more work, finish what runs, drain the backend, flush, go. */
async function shutDown(mode: RunningMode, settings: Settings, clock: Clock): Promise<void> {
  const { core, health } = mode;
  logger.info("shutting down: {count} deliveries are unsettled", { count: core.ledger.outstanding });
  const queueLimitMs = settings.scheduler.drainDeadlineMs;
  const steps: DrainStep[] = [
    { name: "say that we drain", limitMs: LAST_STEPS_LIMIT_MS, run: () => health.readiness.drain() },
    ...mode.stopSteps,
    { name: "stop the heartbeat", limitMs: LAST_STEPS_LIMIT_MS, run: () => health.stopHeartbeat() },
    {
      name: "hand over work of loading models",
      limitMs: PARKED_LIMIT_MS,
      run: () => core.dispatcher.parkedGroupsSettled(),
    },
    {
      name: "finish queued batches",
      limitMs: queueLimitMs + LAST_STEPS_LIMIT_MS,
      run: async () => core.settler.settleAll(await core.schedulers.drainAll(queueLimitMs), "shutdown_queued"),
    },
    { name: "finish generations", limitMs: DRAIN_LIMIT_MS, run: () => core.generation.idle() },
    { name: "abandon the rest of them", limitMs: LAST_STEPS_LIMIT_MS, run: () => core.generation.abandon() },
    {
      name: "drain the backend",
      limitMs: DRAIN_LIMIT_MS,
      run: async () => void await core.backend.drain(DRAIN_LIMIT_MS),
    },
    // Whatever is still at the backend fails now and is NAKed while the broker can still be told.
    { name: "close the backend's connections", limitMs: LAST_STEPS_LIMIT_MS, run: () => core.backend.close() },
    ...mode.lastSteps,
    {
      name: "stop learning batch times",
      limitMs: LAST_STEPS_LIMIT_MS,
      run: () => core.batchTimes?.service.close(),
    },
    { name: "stop the probes", limitMs: LAST_STEPS_LIMIT_MS, run: () => health.stopServers() },
  ];
  const report = await drainInOrder(clock, steps, (step) => {
    if (step.outcome.kind === "done") return;
    logger.warn("shutdown: '{step}' {outcome} after {ms} ms", {
      step: step.name,
      outcome: step.outcome.kind === "failed" ? `failed (${step.outcome.why})` : "took too long",
      ms: Math.round(step.tookMs),
    });
  });
  const { counts, outstanding } = core.ledger;
  logger.info("shut down in {ms} ms: {acked} ACKed, {naked} NAKed, {left} left to redelivery", {
    ms: Math.round(report.totalMs),
    acked: counts.acked,
    naked: counts.naked,
    left: counts.left + outstanding,
  });
}
