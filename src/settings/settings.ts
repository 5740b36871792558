/**
 * The settings of a running sidecar: what the table of variables (table.ts) makes of a command line and an environment.
 * Frozen and complete: whoever gets a `Settings` reads no environment. All times are milliseconds, all sizes bytes.
 */

/** Where a value came from. */
export type Origin =
  | { readonly kind: "default" }
  | { readonly kind: "environment"; readonly name: string }
  | { readonly kind: "flag"; readonly flag: string };

/** The lane of this worker (runtime.md 2.3); the first three are trimmed and fit into NATS subjects. */
export interface LaneSettings {
  readonly pool: string;
  readonly bundle: string;
  readonly machineProfile: string;
  /** `SIE_WORKER_ID`, else `HOSTNAME`, else `worker-<uuid>`. */
  readonly workerId: string;
  /** As given; may be 0 or negative (health-telemetry.md 5.2). */
  readonly gpuCount: number;
}

/** Where work comes from. */
export type IngestSettings =
  | { readonly mode: "nats"; readonly natsUrl: string }
  | { readonly mode: "local"; readonly socketPath: string };

/** How to prove who we are to the broker, and how to trust it. */
export interface NatsSecurity {
  readonly userPassword: { readonly user: string; readonly password: string } | undefined;
  readonly credsFile: string | undefined;
  readonly nkeyFile: string | undefined;
  readonly tlsCaFile: string | undefined;
  /** Client certificate; always with its key. */
  readonly tlsClient: { readonly certFile: string; readonly keyFile: string } | undefined;
}

/** Broker connection, streams and consumers (queue.md 1). */
export interface NatsSettings {
  readonly security: NatsSecurity;
  readonly streamMaxAgeMs: number;
  readonly streamStorage: "memory" | "file";
  readonly streamReplicas: number;
  readonly maxDeliver: number;
  readonly maxAckPending: number;
  /** Keep overlapping old consumers. */
  readonly conservativeCleanup: boolean;
  /** `undefined`: the reconciler is off. */
  readonly reconcileIntervalMs: number | undefined;
}

/** The backend's sockets (ipc.md 1 and 2). */
export interface IpcSettings {
  /** One path per backend child; at least one, no duplicates. */
  readonly socketPaths: readonly [string, ...string[]];
  /** Connections per child, at least 1. */
  readonly poolSize: number;
  readonly requestTimeoutMs: number;
  readonly modelReadyTimeoutMs: number;
  /** Longer than the model-ready timeout, when given; nothing else depends on it. */
  readonly livenessBudgetMs: number | undefined;
  readonly mux: boolean;
  /** Longest gap between two frames of a generation. */
  readonly generateFrameTimeoutMs: number;
}

/** Overrides of the adaptive controller (scheduler.md 8.2); `undefined` where the variable is not set or not usable. */
export interface AdaptiveSettings {
  readonly targetP50Ms: number | undefined;
  readonly calibrationMultiplier: number | undefined;
  readonly minTargetP50Ms: number | undefined;
  readonly maxTargetP50Ms: number | undefined;
  readonly minWaitMs: number | undefined;
  readonly maxWaitMs: number | undefined;
  readonly initialWaitMs: number | undefined;
  readonly minCost: number | undefined;
  readonly maxCost: number | undefined;
  readonly initialCost: number | undefined;
}

/** Scheduler loops (scheduler.md 6). */
export interface SchedulerSettings {
  /** Batches in flight per model, 1..8. */
  readonly pipelineDepth: number;
  readonly waveCadence: boolean;
  readonly idleBypass: boolean;
  /** Per model loop, at shutdown. */
  readonly drainDeadlineMs: number;
  readonly adaptive: AdaptiveSettings;
}

/** Batch limits (scheduler.md 4). */
export interface BatcherSettings {
  readonly maxBatchCost: number;
  /** The variable was set: a budget reported by a model never replaces the cap. */
  readonly costPinned: boolean;
  readonly maxBatchRequests: number;
  readonly maxBatchWaitMs: number;
  readonly coalesceMs: number;
  readonly coalesceRatio: number;
}

/** Learning and predicting what batches take (docs/training.md). Everything unset: nothing of it is loaded. */
export interface BatchTimeSettings {
  /** The trainer's socket; `undefined`: nothing is sent. */
  readonly feedbackSocket: string | undefined;
  /** The trainer's folder of versions; `undefined`: nothing is predicted. */
  readonly versionsDir: string | undefined;
  /** `latest`, `latest-stable` or `pinned:<version>`. */
  readonly policy: string;
  /** Predicted time that a batch of more than one item may take; `undefined`: no limit. */
  readonly maxMs: number | undefined;
}

/** Pull loops (queue.md 8). */
export interface PullSettings {
  /** Pull credit; also the fallback batch budget and the cap of parked items. */
  readonly fetchBudget: number;
  readonly expiresMs: number;
  /** Fetch batches in work at once, per loop. */
  readonly inflight: number;
  /** Unsettled deliveries, per loop. */
  readonly maxOutstanding: number;
  readonly quantumMinMs: number;
  readonly quantumMaxMs: number;
  readonly quantumTargetP50Ms: number;
  /** Queue time counts for the controller. */
  readonly quantumIncludesQueue: boolean;
}

/** Preparing and running batches. */
export interface DispatchSettings {
  /** Groups that prepare and enqueue at once, process-wide. */
  readonly maxConcurrentBatches: number;
  /** Base delay of a negative acknowledgement. */
  readonly nakDelayMs: number;
  readonly audioPrepPermits: number;
  /** Folder below which tokenizer files must lie, when set. */
  readonly tokenizerStagingDir: string | undefined;
  /** Bytes that pulled messages and requests of local ingest may hold together before no more are taken. */
  readonly byteBudget: number;
}

/** Pool admission and pinned models (queue.md 9). */
export interface AdmissionSettings {
  readonly gatewayUrl: string | undefined;
  readonly gatewayApiKey: string | undefined;
  /** The poller runs only with this and a gateway URL. */
  readonly enabled: boolean;
  readonly checkIntervalMs: number;
  readonly pauseMs: number;
  readonly staleAfterMs: number;
}

/** Payload store (payload-store.md 2). */
export interface PayloadSettings {
  /** Trimmed; `undefined` when blank: every fetch then fails. */
  readonly storeUrl: string | undefined;
  /** The variables of the cloud stores that are set, by name, as they were given. Some are secret. */
  readonly variables: Readonly<Partial<Record<string, string>>>;
}

/** Probe server and backend heartbeat (health-telemetry.md 1 to 3). */
export interface ProbeSettings {
  readonly port: number;
  readonly pingIntervalMs: number;
  /** At least 1. */
  readonly staleMultiplier: number;
}

/** Work deadlines (queue.md 2.4). */
export interface DeadlineSettings {
  readonly enforce: boolean;
  readonly skewToleranceMs: number;
  readonly maxBudgetMs: number;
  /** Life of a cancellation; no progress is sent past it. */
  readonly tombstoneTtlMs: number;
}

/** Live configuration (live-config.md 3 and 7). */
export interface ConfigSettings {
  readonly bundleConfigHash: string;
  /** `undefined`: no reconciler. */
  readonly serviceUrl: string | undefined;
  /** Value of the `Authorization` header. */
  readonly authorization: string | undefined;
  readonly pollIntervalMs: number;
  /** `undefined`: no periodic full export. */
  readonly fullExportIntervalMs: number | undefined;
  readonly trustedProducers: readonly string[];
  readonly trustAnyProducer: boolean;
}

/** NATS health messages (health-telemetry.md 5). */
export interface HealthSettings {
  readonly publishEnabled: boolean;
  readonly publishIntervalMs: number;
}

/** Metrics and traces (health-telemetry.md 6 to 8). */
export interface TelemetrySettings {
  readonly metricsEnabled: boolean;
  readonly tracingEnabled: boolean;
  readonly modelAllowlist: readonly string[];
  /** The variables of health-telemetry.md 6 that are set, by name, as they were given. Some are secret. */
  readonly variables: Readonly<Partial<Record<string, string>>>;
}

/** Logging (health-telemetry.md 9). */
export interface LogSettings {
  /** The text of `RUST_LOG`. */
  readonly filter: string | undefined;
  /** `auto`: text on a terminal, JSON lines elsewhere. */
  readonly format: "auto" | "json" | "text";
}

/** Looking inside. */
export interface DebugSettings {
  /** Where the debug endpoints listen; `undefined`: they are off. */
  readonly address: { readonly hostname: string; readonly port: number } | undefined;
  readonly traceFile: string | undefined;
}

/** Everything, by area. */
export interface Settings {
  /** Name under which the program was called. */
  readonly program: string;
  readonly compat: { readonly reference: boolean };
  readonly lane: LaneSettings;
  readonly ingest: IngestSettings;
  readonly nats: NatsSettings;
  readonly ipc: IpcSettings;
  readonly scheduler: SchedulerSettings;
  readonly batcher: BatcherSettings;
  readonly batchTime: BatchTimeSettings;
  readonly pull: PullSettings;
  readonly dispatch: DispatchSettings;
  readonly admission: AdmissionSettings;
  readonly payload: PayloadSettings;
  readonly probes: ProbeSettings;
  readonly deadlines: DeadlineSettings;
  readonly config: ConfigSettings;
  readonly health: HealthSettings;
  readonly telemetry: TelemetrySettings;
  readonly log: LogSettings;
  readonly debug: DebugSettings;
  /** Where each variable's value came from, by variable name. */
  readonly origins: ReadonlyMap<string, Origin>;
  /** What is odd but not fatal, in words; to be logged once at start. */
  readonly warnings: readonly string[];
}
