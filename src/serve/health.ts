/** Readiness, heartbeat, probes and the facts of the health message (spec/health-telemetry.md 1 to 5), wired to the core. */
import { DebugEndpoints, startDebugServer } from "../health/debug_server.ts";
import type { HealthFacts } from "../health/health_message.ts";
import type { HttpListener } from "../health/http_listener.ts";
import { startProbeServer } from "../health/probe_server.ts";
import { Readiness, staleWindowMs } from "../health/readiness.ts";
import { Residency } from "../health/residency.ts";
import { isSaturated } from "../health/saturation.ts";
import { totalSlots } from "../health/health_message.ts";
import { Heartbeat, type PingRound } from "../ipc/heartbeat.ts";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";
import { isReported } from "../runtime/repeated.ts";
import type { Settings } from "../settings/settings.ts";
import { batchReport, type Core } from "./core.ts";

const logger = logFor("health");

/** Everything that looks after the worker's health. */
export class WorkerHealth {
  readonly readiness: Readiness;
  readonly debug = new DebugEndpoints();
  readonly #settings: Settings;
  readonly #core: Core;
  readonly #clock: Clock;
  readonly #residency = new Residency();
  readonly #heartbeat: Heartbeat;
  readonly #onLoadingModels: (() => void)[] = [];
  #listeners: HttpListener[] = [];
  #readyChildren = 0;
  #established = false;
  #failures = 0;
  #saturated = false;

  constructor(settings: Settings, core: Core, clock: Clock) {
    const { pingIntervalMs, staleMultiplier } = settings.probes;
    this.#settings = settings;
    this.#core = core;
    this.#clock = clock;
    this.readiness = new Readiness(clock, staleWindowMs(pingIntervalMs, staleMultiplier));
    this.#heartbeat = new Heartbeat({
      clock,
      intervalMs: pingIntervalMs,
      round: () => core.backend.pingAll(),
      onRound: (round) => this.#takeRound(round),
      onFault: (thrown) => logger.error("a heartbeat round failed unexpectedly: {error}", { error: errorText(thrown) }),
    });
  }

  /** Starts the probe server, and the debug server when one is configured. */
  startServers(): void {
    const { probes, debug } = this.#settings;
    const probe = startProbeServer({ port: probes.port, readiness: () => this.readiness.state(), log: logger });
    if (probe !== undefined) this.#listeners.push(probe);
    this.debug.provide("/debug/batches", () => batchReport(this.#core));
    this.debug.provide("/debug/limits", () => this.#limits());
    const { batchTimes } = this.#core;
    if (batchTimes !== undefined) this.debug.provide("/debug/batch-fixtures", () => batchTimes.service.fixtures());
    if (debug.address === undefined) return;
    const listener = startDebugServer(this.debug, debug.address, logger);
    if (listener !== undefined) this.#listeners.push(listener);
  }

  /** Starts the heartbeat; the first round runs at once. */
  startHeartbeat(): void {
    this.#heartbeat.start();
  }

  /** Ends the heartbeat after the round that is running. */
  stopHeartbeat(): Promise<void> {
    return this.#heartbeat.stop();
  }

  /** Ends the servers: the last thing of a shutdown, so that probes see the drain. */
  async stopServers(): Promise<void> {
    const listeners = this.#listeners;
    this.#listeners = [];
    await Promise.all(listeners.map((listener) => listener.stop()));
  }

  /** Calls `action` whenever the list of loading models changes. */
  onLoadingModels(action: () => void): void {
    this.#onLoadingModels.push(action);
  }

  /** Whether deliveries may be kept alive: not while draining, nor once a heartbeat that was there has gone (queue.md 2.4). */
  mayProgress(): boolean {
    const state = this.readiness.state();
    return state.ready || (state.reason !== "draining" && !this.#established);
  }

  /** What a health message says at this moment. */
  facts(): HealthFacts {
    const { lane, dispatch } = this.#settings;
    const { pendingItems, pendingCost, inflightBatches } = this.#core.schedulers.totals();
    const ready = this.readiness.state().ready;
    const children = this.#core.backend.childCount;
    const readySlots = ready ? Math.min(this.#readyChildren, totalSlots(children, lane.gpuCount)) : 0;
    this.#saturated = isSaturated(this.#saturated, {
      queueDepth: pendingItems,
      inflightBatches,
      readySlots,
      maxConcurrentBatches: dispatch.maxConcurrentBatches,
    });
    return {
      workerId: lane.workerId,
      machineProfile: lane.machineProfile,
      pool: lane.pool,
      bundle: lane.bundle,
      gpuCount: lane.gpuCount,
      children,
      ready,
      readyChildren: this.#readyChildren,
      bundleConfigHash: this.#core.config.currentHash,
      loadedModels: this.#residency.loadedModels,
      loadingModels: this.#residency.loadingModels,
      queueDepth: pendingItems,
      pendingCost,
      inflightBatches,
      saturated: this.#saturated,
      unsupportedModels: this.#core.config.unsupportedModels,
    };
  }

  #takeRound(round: PingRound): void {
    this.#readyChildren = round.readyChildren;
    const changed = this.#residency.update(
      this.#clock.now(),
      round.children.flatMap(({ answer }, child) =>
        answer === undefined ? [] : [{
          child,
          ready: answer.ready && round.successful,
          loadedModels: answer.loadedModels,
          loadingModels: answer.loadingModels,
        }]
      ),
    );
    if (round.successful) {
      if (this.#failures > 0) {
        logger.info("the backend answers again after {count} failed rounds", { count: this.#failures });
      }
      this.#failures = 0;
      this.#established = true;
      this.#core.config.adoptBackendHash(round.bundleConfigHash);
      this.readiness.pingSucceeded();
    } else this.#failedRound(round);
    if (changed) { for (const action of this.#onLoadingModels) action(); }
  }

  #failedRound(round: PingRound): void {
    this.#failures++;
    if (!isReported(this.#failures)) return;
    const reasons = round.children.map(({ error }) => error?.message ?? "answers, but is not ready");
    logger.warn("no backend is ready ({count} rounds in a row): {reasons}", { count: this.#failures, reasons });
  }

  #limits(): unknown {
    const { batcher, pull, dispatch, scheduler } = this.#settings;
    return {
      batcher,
      scheduler,
      pull,
      max_concurrent_batches: dispatch.maxConcurrentBatches,
      byte_budget: { limit: this.#core.budget.limit, used: this.#core.budget.used },
    };
  }
}
