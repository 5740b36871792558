/** The rules of runtime.md 2.2 and 2.3, and the settings that come out when they hold. */
import { SettingsError } from "./errors.ts";
import { collect } from "./pass_through.ts";
import type {
  AdmissionSettings,
  BatcherSettings,
  BatchTimeSettings,
  ConfigSettings,
  DeadlineSettings,
  IngestSettings,
  IpcSettings,
  LaneSettings,
  NatsSecurity,
  NatsSettings,
  Origin,
  PullSettings,
  Settings,
} from "./settings.ts";
import type { Values, VariableName } from "./table.ts";
import { asciiLower, nonBlank, printable, trimWhite } from "./text.ts";
import { quoted, type ReadValues } from "./values.ts";

/** The longest life of a cancellation, in seconds (queue.md 7). */
const LONGEST_TOMBSTONE_S = 30 * 86_400;

/** What {@link buildSettings} needs besides the values. */
export interface BuildInput {
  readonly program: string;
  readonly read: ReadValues;
  readonly environment: Readonly<Record<string, string>>;
  /** Worker id when neither `SIE_WORKER_ID` nor `HOSTNAME` gives one. */
  readonly newWorkerId: () => string;
  readonly warnings: readonly string[];
}

/**
 * Checks the values against each other and derives the settings.
 *
 * @throws SettingsError with the text of the first rule that does not hold, in the order of runtime.md 2.2.
 */
export function buildSettings(input: BuildInput): Settings {
  const { values, origins } = input.read;
  const reference = values.SIE_COMPAT === "reference";
  const warnings = [...input.read.warnings, ...input.warnings];
  const ingest = buildIngest(values);
  const lane = buildLane(values, reference, input.newWorkerId);
  checkLiveness(values);
  const ipc = buildIpc(values);
  const security = buildSecurity(values);
  requirePositive("SIE_WORKER_PING_INTERVAL_MS", values.SIE_WORKER_PING_INTERVAL_MS);
  requirePositive("SIE_HEALTH_PUBLISH_INTERVAL_MS", values.SIE_HEALTH_PUBLISH_INTERVAL_MS);
  const batcher = buildBatcher(values, origins, reference);
  const batchTime = buildBatchTime(values);
  const nats = buildNats(values, security);
  if (values.SIE_WORKER_READYZ_STALE_MULT === 0) warnings.push("SIE_WORKER_READYZ_STALE_MULT: 0 means 3");
  const config = buildConfig(values, origins, warnings);
  return deepFreeze({
    program: input.program,
    compat: { reference },
    lane,
    ingest,
    nats,
    ipc,
    scheduler: {
      pipelineDepth: values.SIE_RUST_PIPELINE_DEPTH,
      waveCadence: values.SIE_RUST_WAVE_CADENCE,
      idleBypass: values.SIE_BATCHER_IDLE_BYPASS_ENABLED,
      drainDeadlineMs: values.SIE_SCHEDULER_DRAIN_DEADLINE_MS,
      adaptive: {
        targetP50Ms: values.SIE_ADAPTIVE_BATCH_TARGET_P50_MS,
        calibrationMultiplier: values.SIE_ADAPTIVE_BATCH_CALIBRATION_MULT,
        minTargetP50Ms: values.SIE_ADAPTIVE_BATCH_MIN_TARGET_P50_MS,
        maxTargetP50Ms: values.SIE_ADAPTIVE_BATCH_MAX_TARGET_P50_MS,
        minWaitMs: values.SIE_ADAPTIVE_BATCH_MIN_WAIT_MS,
        maxWaitMs: values.SIE_ADAPTIVE_BATCH_MAX_WAIT_MS,
        initialWaitMs: values.SIE_ADAPTIVE_BATCH_INITIAL_WAIT_MS,
        minCost: values.SIE_ADAPTIVE_BATCH_MIN_COST,
        maxCost: values.SIE_ADAPTIVE_BATCH_MAX_COST,
        initialCost: values.SIE_ADAPTIVE_BATCH_INITIAL_COST,
      },
    },
    batcher,
    batchTime,
    pull: buildPull(values),
    dispatch: {
      maxConcurrentBatches: values.SIE_MAX_CONCURRENT_BATCHES,
      nakDelayMs: inMs(values.SIE_NAK_DELAY_S),
      audioPrepPermits: values.SIE_AUDIO_PREP_PERMITS,
      tokenizerStagingDir: nonBlank(values.SIE_TOKENIZER_STAGING_DIR),
      byteBudget: values.SIE_BYTE_BUDGET,
    },
    admission: buildAdmission(values),
    payload: {
      storeUrl: nonBlank(values.SIE_PAYLOAD_STORE_URL),
      variables: collect(input.environment, "payload"),
    },
    probes: {
      port: values.SIE_WORKER_PROBE_PORT,
      pingIntervalMs: values.SIE_WORKER_PING_INTERVAL_MS,
      staleMultiplier: values.SIE_WORKER_READYZ_STALE_MULT === 0 ? 3 : values.SIE_WORKER_READYZ_STALE_MULT,
    },
    deadlines: buildDeadlines(values, nats),
    config,
    health: {
      publishEnabled: values.SIE_HEALTH_PUBLISH_ENABLED,
      publishIntervalMs: values.SIE_HEALTH_PUBLISH_INTERVAL_MS,
    },
    telemetry: {
      metricsEnabled: values.SIE_METRICS_ENABLED,
      tracingEnabled: values.SIE_TRACING_ENABLED,
      modelAllowlist: values.SIE_METRIC_MODEL_ALLOWLIST,
      variables: collect(input.environment, "telemetry"),
    },
    log: { filter: nonBlank(values.RUST_LOG), format: values.SIE_LOG_FORMAT },
    debug: { address: values.SIE_DEBUG_ADDR, traceFile: nonBlank(values.SIE_TRACE_FILE) },
    origins,
    warnings,
  });
}

function buildIngest(values: Values): IngestSettings {
  const mode = asciiLower(trimWhite(values.SIE_SIDECAR_INGEST));
  if (mode === "" || mode === "nats") {
    const natsUrl = nonBlank(values.SIE_NATS_URL);
    if (natsUrl === undefined) {
      throw new SettingsError("SIE_NATS_URL is required when SIE_SIDECAR_INGEST=nats (the default)");
    }
    return { mode: "nats", natsUrl };
  }
  if (mode !== "local") {
    throw new SettingsError(`SIE_SIDECAR_INGEST must be 'nats' or 'local', got ${quoted(values.SIE_SIDECAR_INGEST)}`);
  }
  const socketPath = nonBlank(values.SIE_SIDECAR_LOCAL_SOCKET);
  if (socketPath === undefined) {
    throw new SettingsError("SIE_SIDECAR_LOCAL_SOCKET is required when SIE_SIDECAR_INGEST=local");
  }
  return { mode: "local", socketPath };
}

function buildLane(values: Values, reference: boolean, newWorkerId: () => string): LaneSettings {
  return {
    pool: laneSegment("SIE_POOL", values.SIE_POOL),
    bundle: laneSegment("SIE_BUNDLE", values.SIE_BUNDLE),
    machineProfile: laneSegment("SIE_MACHINE_PROFILE", values.SIE_MACHINE_PROFILE),
    workerId: workerId(values, reference, newWorkerId),
    gpuCount: values.SIE_GPU_COUNT,
  };
}

function laneSegment(name: VariableName, text: string | undefined): string {
  const segment = trimWhite(text ?? "");
  if (segment === "") throw new SettingsError(`${name} must not be empty`);
  if (/[.*>\p{White_Space}]/u.test(segment)) {
    throw new SettingsError(`${name} must not contain '.', '*', '>', or whitespace`);
  }
  return segment;
}

function workerId(values: Values, reference: boolean, newWorkerId: () => string): string {
  if (reference && values.SIE_WORKER_ID === "") return "";
  const configured = values.SIE_WORKER_ID === "" ? undefined : values.SIE_WORKER_ID;
  const [name, id] = configured !== undefined
    ? ["SIE_WORKER_ID", configured] as const
    : ["HOSTNAME", values.HOSTNAME === undefined || values.HOSTNAME === "" ? newWorkerId() : values.HOSTNAME] as const;
  // The id becomes the end of a subject as it is: it must not break the subject, let alone the protocol line.
  if (!/^[^.*>\p{White_Space}\p{Cc}]+(\.[^.*>\p{White_Space}\p{Cc}]+)*$/u.test(id)) {
    throw new SettingsError(
      `${name} must be a subject token: no '*', '>', white space or control characters, no empty part between dots`,
    );
  }
  return id;
}

function checkLiveness(values: Values): void {
  const budget = values.SIE_WORKER_LIVENESS_BUDGET_S;
  if (budget === undefined) return;
  if (budget === 0) throw new SettingsError("SIE_WORKER_LIVENESS_BUDGET_S must be positive when set");
  const timeout = Math.max(values.SIE_MODEL_READY_TIMEOUT_S, 1);
  if (timeout < budget) return;
  throw new SettingsError(
    `SIE_MODEL_READY_TIMEOUT_S (${timeout}s) must be lower than SIE_WORKER_LIVENESS_BUDGET_S (${budget}s) ` +
      "so kubelet liveness does not kill the worker mid-load",
  );
}

function buildIpc(values: Values): IpcSettings {
  const several = values.SIE_IPC_SOCKET_PATHS;
  const seen = new Set<string>();
  for (const path of several) {
    if (seen.has(path)) {
      throw new SettingsError(`SIE_IPC_SOCKET_PATHS must not contain duplicate path '${printable(path)}'`);
    }
    seen.add(path);
  }
  const [first, ...others] = several;
  const single = nonBlank(values.SIE_IPC_SOCKET_PATH);
  const head = first ?? single;
  if (head === undefined) throw new SettingsError("SIE_IPC_SOCKET_PATH must not be empty");
  const budget = values.SIE_WORKER_LIVENESS_BUDGET_S;
  return {
    socketPaths: [head, ...others],
    poolSize: values.SIE_IPC_POOL_SIZE > 0 ? values.SIE_IPC_POOL_SIZE : values.SIE_MAX_CONCURRENT_BATCHES,
    requestTimeoutMs: inMs(Math.max(values.SIE_IPC_REQUEST_TIMEOUT_S, 1)),
    modelReadyTimeoutMs: inMs(Math.max(values.SIE_MODEL_READY_TIMEOUT_S, 1)),
    livenessBudgetMs: budget === undefined ? undefined : inMs(budget),
    mux: values.SIE_IPC_MUX,
    generateFrameTimeoutMs: inMs(values.SIE_GENERATE_IPC_FRAME_TIMEOUT_S),
  };
}

function buildSecurity(values: Values): NatsSecurity {
  const user = values.SIE_NATS_USER ?? "";
  const password = values.SIE_NATS_PASSWORD ?? "";
  if ((user === "") !== (password === "")) {
    throw new SettingsError("SIE_NATS_USER and SIE_NATS_PASSWORD must be set together");
  }
  const userPassword = user === "" ? undefined : { user, password };
  const credsFile = nonBlank(values.SIE_NATS_CREDS_FILE);
  const nkeyFile = nonBlank(values.SIE_NATS_NKEY_FILE);
  const ways = [
    userPassword === undefined ? undefined : "SIE_NATS_USER",
    credsFile === undefined ? undefined : "SIE_NATS_CREDS_FILE",
    nkeyFile === undefined ? undefined : "SIE_NATS_NKEY_FILE",
  ].filter((way) => way !== undefined);
  if (ways.length > 1) throw new SettingsError(`${ways.join(" and ")} must not be set together`);
  const certFile = nonBlank(values.SIE_NATS_TLS_CERT);
  const keyFile = nonBlank(values.SIE_NATS_TLS_KEY);
  if ((certFile === undefined) !== (keyFile === undefined)) {
    throw new SettingsError("SIE_NATS_TLS_CERT and SIE_NATS_TLS_KEY must be set together");
  }
  return {
    userPassword,
    credsFile,
    nkeyFile,
    tlsCaFile: nonBlank(values.SIE_NATS_TLS_CA),
    tlsClient: certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile },
  };
}

function buildNats(values: Values, security: NatsSecurity): NatsSettings {
  const reconcile = values.SIE_NATS_CONSUMER_RECONCILE_INTERVAL_MS;
  return {
    security,
    streamMaxAgeMs: inMs(values.SIE_STREAM_MAX_AGE_S),
    streamStorage: values.SIE_STREAM_STORAGE,
    streamReplicas: values.SIE_STREAM_REPLICAS,
    maxDeliver: values.SIE_MAX_DELIVER,
    maxAckPending: values.SIE_MAX_ACK_PENDING,
    conservativeCleanup: values.SIE_NATS_CONSERVATIVE_CLEANUP,
    reconcileIntervalMs: reconcile === 0 ? undefined : Math.max(reconcile, 10_000),
  };
}

function requirePositive(name: VariableName, value: number): void {
  if (value === 0) throw new SettingsError(`${name} must be positive`);
}

/** The reference takes limits as they are; a batch that could never hold an item is refused here (scheduler.md 4). */
function buildBatcher(values: Values, origins: ReadonlyMap<string, Origin>, reference: boolean): BatcherSettings {
  const atLeast = (name: VariableName, value: number, least: number) => {
    if (!reference && value < least) throw new SettingsError(`${name} must be at least ${least}, got ${value}`);
    return value;
  };
  return {
    maxBatchCost: atLeast("SIE_BATCHER_MAX_BATCH_COST", values.SIE_BATCHER_MAX_BATCH_COST, 1),
    costPinned: origins.has("SIE_BATCHER_MAX_BATCH_COST"),
    maxBatchRequests: atLeast("SIE_BATCHER_MAX_BATCH_REQUESTS", values.SIE_BATCHER_MAX_BATCH_REQUESTS, 1),
    maxBatchWaitMs: atLeast("SIE_BATCHER_MAX_BATCH_WAIT_MS", values.SIE_BATCHER_MAX_BATCH_WAIT_MS, 0),
    coalesceMs: atLeast("SIE_BATCHER_COALESCE_MS", values.SIE_BATCHER_COALESCE_MS, 0),
    coalesceRatio: atLeast("SIE_BATCHER_COALESCE_RATIO", values.SIE_BATCHER_COALESCE_RATIO, 0),
  };
}

function buildBatchTime(values: Values): BatchTimeSettings {
  const feedbackSocket = nonBlank(values.SIE_BATCH_TIME_FEEDBACK_SOCKET);
  const versionsDir = nonBlank(values.SIE_BATCH_TIME_VERSIONS_DIR);
  const maxMs = values.SIE_BATCH_TIME_MAX_MS;
  if (maxMs !== undefined && versionsDir === undefined) {
    throw new SettingsError(
      "SIE_BATCH_TIME_MAX_MS needs SIE_BATCH_TIME_VERSIONS_DIR: without predictions it limits nothing",
    );
  }
  return { feedbackSocket, versionsDir, policy: values.SIE_BATCH_TIME_POLICY, maxMs };
}

function buildPull(values: Values): PullSettings {
  const fetchBudget = values.SIE_NATS_FETCH_BUDGET;
  const inflight = values.SIE_PULL_LOOP_INFLIGHT ?? values.SIE_MAX_CONCURRENT_BATCHES;
  return {
    fetchBudget,
    expiresMs: inMs(values.SIE_NATS_PULL_EXPIRES_S),
    inflight,
    maxOutstanding: values.SIE_PULL_LOOP_MAX_OUTSTANDING ?? Math.max(fetchBudget, inflight),
    quantumMinMs: values.SIE_ADAPTIVE_MIN_QUANTUM_MS,
    quantumMaxMs: Math.max(values.SIE_ADAPTIVE_MAX_QUANTUM_MS, values.SIE_ADAPTIVE_MIN_QUANTUM_MS),
    quantumTargetP50Ms: values.SIE_ADAPTIVE_TARGET_P50_MS,
    quantumIncludesQueue: values.SIE_PULL_QUANTUM_INCLUDE_QUEUE_MS,
  };
}

function buildAdmission(values: Values): AdmissionSettings {
  const floor = (seconds: number, least: number) => inMs(Number.isFinite(seconds) ? Math.max(seconds, least) : least);
  return {
    gatewayUrl: nonBlank(values.SIE_GATEWAY_URL),
    gatewayApiKey: nonBlank(values.SIE_GATEWAY_API_KEY),
    enabled: values.SIE_POOL_ADMISSION_ENABLED,
    checkIntervalMs: floor(values.SIE_POOL_ADMISSION_CHECK_INTERVAL_S, 1),
    pauseMs: floor(values.SIE_POOL_ADMISSION_PAUSE_S, 0.1),
    staleAfterMs: floor(values.SIE_POOL_ADMISSION_STALE_AFTER_S, 0),
  };
}

function buildDeadlines(values: Values, nats: NatsSettings): DeadlineSettings {
  const horizonS = Math.min(Math.max(nats.streamMaxAgeMs / 1000, 30 * nats.maxDeliver), LONGEST_TOMBSTONE_S);
  return {
    enforce: values.SIE_WORK_DEADLINE_ENFORCE,
    skewToleranceMs: values.SIE_WORK_DEADLINE_SKEW_TOLERANCE_MS,
    maxBudgetMs: inMs(Math.min(values.SIE_WORK_DEADLINE_MAX_BUDGET_S, horizonS)),
    tombstoneTtlMs: inMs(horizonS),
  };
}

function buildConfig(values: Values, origins: ReadonlyMap<string, Origin>, warnings: string[]): ConfigSettings {
  const serviceUrl = nonBlank(values.SIE_CONFIG_SERVICE_URL);
  const dedicated = origins.has("SIE_CONFIG_SERVICE_TOKEN");
  const token = nonBlank(dedicated ? values.SIE_CONFIG_SERVICE_TOKEN : values.SIE_ADMIN_TOKEN);
  if (serviceUrl !== undefined && !dedicated && token !== undefined) {
    warnings.push("SIE_ADMIN_TOKEN is deprecated here; use SIE_CONFIG_SERVICE_TOKEN");
  }
  if (values.SIE_NATS_CONFIG_TRUST_ANY_PRODUCER) {
    warnings.push("SIE_NATS_CONFIG_TRUST_ANY_PRODUCER is on: configuration changes of every producer are applied");
  }
  const producers = values.SIE_NATS_CONFIG_TRUSTED_PRODUCERS;
  const fullExport = values.SIE_WORKER_CONFIG_FULL_EXPORT_INTERVAL_MS;
  return {
    bundleConfigHash: values.SIE_BUNDLE_CONFIG_HASH,
    serviceUrl,
    authorization: token === undefined ? undefined : `Bearer ${token}`,
    pollIntervalMs: Math.max(values.SIE_WORKER_CONFIG_POLL_INTERVAL_MS, 1000),
    fullExportIntervalMs: fullExport === 0 ? undefined : fullExport,
    trustedProducers: producers.length === 0 ? ["sie-config"] : producers,
    trustAnyProducer: values.SIE_NATS_CONFIG_TRUST_ANY_PRODUCER,
  };
}

/** Whole milliseconds of a time in seconds. */
function inMs(seconds: number): number {
  return Math.min(Math.round(seconds * 1000), Number.MAX_SAFE_INTEGER);
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) {
    if (typeof part === "object" && part !== null && !(part instanceof Map)) deepFreeze(part);
  }
  return Object.freeze(value);
}
