/** Brokerless mode: work comes from an owner-only Unix socket (spec/local-ingest.md 1, spec/runtime.md 4). */
import { LocalGeneration } from "../generate/local_generation.ts";
import { startLocalIngest } from "../local_ingest/server.ts";
import { logFor } from "../runtime/log.ts";
import { ADMIT_ALL, assembleCore, KEEP_ALL } from "./core.ts";
import { WorkerHealth } from "./health.ts";
import type { ModeParts, RunningMode } from "./mode.ts";

const logger = logFor("serve");

/** Longest time that closing the local socket may take: cancelled streams get 5 s to be told and 5 s to end. */
const CLOSE_LIMIT_MS = 15_000;

/** Starts the core and the local socket. */
export async function startLocalMode({ settings, clock, trace, latch, batchTimes }: ModeParts): Promise<RunningMode> {
  if (settings.ingest.mode !== "local") throw new TypeError("not in local mode");
  const core = assembleCore({
    settings,
    clock,
    trace,
    drops: KEEP_ALL,
    admission: ADMIT_ALL,
    shutdown: latch.signal,
    batchTimes,
  });
  const health = new WorkerHealth(settings, core, clock);
  health.startServers();
  const path = settings.ingest.socketPath;
  const generation = new LocalGeneration({ backend: core.backend, config: core.config, barrier: core.barrier, clock });
  const server = await startLocalIngest({
    path,
    pool: settings.lane.pool,
    intake: core.dispatcher,
    sender: core.sender,
    generation,
    ledger: core.ledger,
    clock,
    budget: core.budget,
    referenceCompatible: settings.compat.reference,
  });
  logger.info("local ingest listens at {path}", { path });
  health.debug.provide("/debug/ready", () => ({
    readiness: health.readiness.state(),
    local: { path, connections: server.connections },
  }));
  health.startHeartbeat();
  return {
    core,
    health,
    stopSteps: [{ name: "close the local socket", limitMs: CLOSE_LIMIT_MS, run: () => server.close() }],
    lastSteps: [],
  };
}
