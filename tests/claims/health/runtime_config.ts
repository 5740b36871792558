/** `runtime_config.json`: what a command line and an environment come to, through the real parser. */
import assert from "node:assert/strict";
import { type Loaded, loadSettings } from "../../../src/settings/load.ts";
import type { Settings } from "../../../src/settings/settings.ts";
import type { VectorClaim } from "../../harness/vectors.ts";

interface Case {
  readonly case: string;
  readonly env: Record<string, string>;
  readonly args: string[];
  readonly expect: {
    readonly starts: boolean;
    readonly exit_code?: number;
    readonly stdout_contains?: string;
    readonly stdout_lacks?: string;
    readonly stderr_contains?: string;
    readonly effective?: Record<string, unknown>;
  };
}

/** The name in the file, and where the settings hold it; the file writes `null` for what is off or not set. */
const effective: Record<string, (settings: Settings) => unknown> = {
  bundle_config_hash: (s) => s.config.bundleConfigHash,
  config_authorization: (s) => s.config.authorization ?? null,
  config_full_export_interval_ms: (s) => s.config.fullExportIntervalMs ?? null,
  config_poll_interval_ms: (s) => s.config.pollIntervalMs,
  config_service_url: (s) => s.config.serviceUrl ?? null,
  consumer_reconcile_interval_ms: (s) => s.nats.reconcileIntervalMs ?? null,
  fetch_budget: (s) => s.pull.fetchBudget,
  gateway_url: (s) => s.admission.gatewayUrl ?? null,
  gpu_count: (s) => s.lane.gpuCount,
  health_publish_enabled: (s) => s.health.publishEnabled,
  health_publish_interval_ms: (s) => s.health.publishIntervalMs,
  ingest: (s) => s.ingest.mode,
  ipc_pool_size: (s) => s.ipc.poolSize,
  ipc_request_timeout_s: (s) => s.ipc.requestTimeoutMs / 1000,
  ipc_socket_path: (s) => s.ipc.socketPaths[0],
  ipc_socket_paths: (s) => s.ipc.socketPaths,
  max_concurrent_batches: (s) => s.dispatch.maxConcurrentBatches,
  model_ready_timeout_s: (s) => s.ipc.modelReadyTimeoutMs / 1000,
  nak_delay_s: (s) => s.dispatch.nakDelayMs / 1000,
  ping_interval_ms: (s) => s.probes.pingIntervalMs,
  pipeline_depth: (s) => s.scheduler.pipelineDepth,
  pool_admission_check_interval_s: (s) => s.admission.checkIntervalMs / 1000,
  pool_admission_enabled: (s) => s.admission.enabled,
  pool_admission_pause_s: (s) => s.admission.pauseMs / 1000,
  pool_admission_stale_after_s: (s) => s.admission.staleAfterMs / 1000,
  probe_port: (s) => s.probes.port,
  pull_expires_s: (s) => s.pull.expiresMs / 1000,
  pull_loop_inflight: (s) => s.pull.inflight,
  ready_stale_multiplier: (s) => s.probes.staleMultiplier,
  work_deadline_skew_tolerance_ms: (s) => s.deadlines.skewToleranceMs,
  worker_id: (s) => s.lane.workerId,
};

/** See the module's comment. */
export const runtimeConfigClaim: VectorClaim = {
  files: ["health/runtime_config.json"],
  *cases(data) {
    for (const row of (data as { cases: Case[] }).cases) {
      yield { name: row.case, check: () => checkCase(row) };
    }
  },
};

function checkCase({ env, args, expect }: Case): void {
  const loaded = loadSettings({
    program: "sie-server-sidecar",
    args,
    environment: env,
    newWorkerId: () => "worker-00000000-0000-4000-8000-000000000000",
  });
  assert.equal(loaded.kind === "settings", expect.starts, textOf(loaded));
  if (loaded.kind === "settings") {
    for (const [name, value] of Object.entries(expect.effective ?? {})) {
      const read = effective[name];
      assert.ok(read !== undefined, `no setting is known as ${name}`);
      assert.deepEqual(read(loaded.settings), value, name);
    }
    assert.ok(Object.isFrozen(loaded.settings));
    return;
  }
  assert.equal(loaded.exitCode, expect.exit_code);
  if (expect.stdout_contains !== undefined) assert.ok(loaded.stdout.includes(expect.stdout_contains), loaded.stdout);
  if (expect.stdout_lacks !== undefined) assert.ok(!loaded.stdout.includes(expect.stdout_lacks), loaded.stdout);
  if (expect.stderr_contains !== undefined) assert.ok(loaded.stderr.includes(expect.stderr_contains), loaded.stderr);
}

function textOf(loaded: Loaded): string {
  return loaded.kind === "text" ? loaded.stdout + loaded.stderr : "it starts";
}
