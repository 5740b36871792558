/**
 * The variables of `worker-sidecar train`, as one table (online-training.md, section 4). Parsing, messages and the
 * settings reference follow from it. Unlike most variables of `serve`, a bad value always stops the start.
 */
import { splitBatch } from "./batch_split.ts";
import { TrainingError } from "./errors.ts";
import { HIDDEN } from "./params.ts";
import { baseModelName } from "./seed_model.ts";
import { parsePolicy, type VersionPolicy } from "./version_policy.ts";

/** One variable. */
export interface TrainingSetting {
  readonly name: string;
  readonly type: "text" | "path" | "integer" | "number";
  /** The default as it would be written in the environment. */
  readonly default: string;
  readonly unit?: string;
  /** Accepted values in words. */
  readonly range: string;
  readonly secret: boolean;
  readonly doc: string;
  /** Limits of a number, both included; `open` excludes the upper one. */
  readonly min?: number;
  readonly max?: number;
  readonly open?: true;
}

const any = "any text";

/** Every variable, in the order of the reference. */
export const TRAINING_SETTINGS = {
  basePath: {
    name: "VMAFX_BASE_MODEL_PATH",
    type: "path",
    default: "",
    range: any,
    secret: false,
    doc: "Seed model: an ONNX file of this network or a PyTorch state dict; what does not fit gives a new model",
  },
  socket: {
    name: "VMAFX_SIDECAR_SOCKET",
    type: "path",
    default: "/tmp/vmafx-sidecar.sock",
    range: "at most 107 bytes",
    secret: false,
    doc: "Unix socket for feedback; its folder must exist and belong to the user alone",
  },
  checkpointDir: {
    name: "VMAFX_SIDECAR_CHECKPOINT_DIR",
    type: "path",
    default: "/mnt/vmafx-models/online",
    range: "creatable and writable",
    secret: false,
    doc: "Folder of the versions",
  },
  replayCapacity: integer(
    "VMAFX_SIDECAR_REPLAY_CAPACITY",
    10_000,
    1,
    undefined,
    "Samples in the replay buffer",
    "samples",
  ),
  pendingCapacity: integer(
    "VMAFX_SIDECAR_PENDING_CAPACITY",
    10_000,
    1,
    undefined,
    "Admitted samples that may wait for a successful step; must hold the new rows of one batch",
    "samples",
  ),
  batchSize: integer("VMAFX_SIDECAR_BATCH_SIZE", 32, 1, undefined, "Rows of one optimiser step", "rows"),
  replayMix: {
    ...number("VMAFX_SIDECAR_REPLAY_MIX", 0.5, 0, 1, "Share of a batch that is drawn from the replay buffer"),
    range: "at least 0 and below 1",
    open: true,
  },
  learningRate: number("VMAFX_SIDECAR_LR", 0.0001, 0, undefined, "Learning rate after the warm-up of 100 steps"),
  emaDecay: number("VMAFX_SIDECAR_EMA_DECAY", 0.999, 0, 1, "β of the moving average that checkpoints are made of"),
  checkpointIntervalS: number(
    "VMAFX_SIDECAR_CKPT_INTERVAL_S",
    600,
    0,
    undefined,
    "Least time between two checkpoints; there is none before the first",
    "s",
  ),
  minSamples: integer(
    "VMAFX_SIDECAR_MIN_SAMPLES_CKPT",
    1000,
    0,
    undefined,
    "Least new samples trained between two checkpoints; replayed rows do not count",
    "samples",
  ),
  nFeatures: integer("VMAFX_SIDECAR_N_FEATURES", 80, 1, 65_536, "Width of a feature vector"),
  httpAddr: {
    name: "VMAFX_SIDECAR_HTTP_ADDR",
    type: "text",
    default: ":9091",
    range: "`HOST:PORT`, `:PORT` for all addresses, or `off`",
    secret: false,
    doc: "Address of status, metrics, probes, predictions and the plot",
  },
  versionPolicy: {
    name: "VMAFX_SIDECAR_VERSION_POLICY",
    type: "text",
    default: "latest-stable",
    range: "`latest`, `latest-stable` or `pinned:<version>`",
    secret: false,
    doc: "Which version serves; `worker-sidecar train pin` overrides it while it is pinned",
  },
  gateDelta: number(
    "VMAFX_SIDECAR_STABILITY_PLCC_DELTA",
    0.005,
    0,
    2,
    "Largest fall of the correlation with the fixtures that passes the gate",
  ),
  gateFixtures: {
    name: "VMAFX_SIDECAR_GATE_FIXTURES",
    type: "path",
    default: "",
    range: any,
    secret: false,
    doc: "Fixtures with known scores; without them no version becomes stable by itself",
  },
  rollbackThreshold: number(
    "VMAFX_SIDECAR_ROLLBACK_THRESHOLD",
    0.05,
    0,
    1,
    "Share of failed scoring calls above which the serving version is taken back",
  ),
  rollbackWindowS: {
    ...number("VMAFX_SIDECAR_ROLLBACK_WINDOW_S", 300, 1, 86_400, "Time that the share is taken over", "s"),
  },
  rollbackMinCount: integer(
    "VMAFX_SIDECAR_ROLLBACK_MIN_COUNT",
    20,
    1,
    undefined,
    "Scoring calls below which nothing is taken back",
    "calls",
  ),
  modelPollS: number(
    "VMAFX_SIDECAR_MODEL_POLL_S",
    60,
    0.1,
    86_400,
    "Time between two looks at the folder of versions",
    "s",
  ),
  swapDrainS: number(
    "VMAFX_SIDECAR_SWAP_DRAIN_S",
    30,
    0,
    86_400,
    "Longest wait for calls of the old model after a swap",
    "s",
  ),
  baseName: {
    name: "VMAFX_SIDECAR_BASE_MODEL_NAME",
    type: "text",
    default: "",
    range:
      "letters, digits, `.`, `_` and `-`, at most 100; empty: the base model's file name without extension, else `online`",
    secret: false,
    doc: "First part of the model version `<base>.<n>`",
  },
  maxLineBytes: integer(
    "VMAFX_SIDECAR_MAX_LINE_BYTES",
    1_048_576,
    1024,
    67_108_864,
    "Longest request line; a longer one is refused and the connection closed",
    "bytes",
  ),
  poisonRetries: integer(
    "VMAFX_SIDECAR_POISON_RETRIES",
    0,
    0,
    undefined,
    "Failures in a row after which a window is dropped; 0: never",
    "steps",
  ),
  seed: {
    ...integer("VMAFX_SIDECAR_SEED", 0, 0, 4_294_967_295, "Seed of the initial weights and the replay draws"),
    default: "",
    range: "0 to 4294967295; empty: another one at each start",
  },
} as const satisfies Readonly<Record<string, TrainingSetting>>;

/** The settings of one trainer. */
export interface TrainSettings {
  readonly basePath: string;
  readonly baseName: string;
  readonly socket: string;
  readonly checkpointDir: string;
  readonly replayCapacity: number;
  readonly pendingCapacity: number;
  readonly batchSize: number;
  readonly replayMix: number;
  readonly learningRate: number;
  readonly emaDecay: number;
  readonly checkpointIntervalMs: number;
  readonly minSamples: number;
  readonly nFeatures: number;
  /** Undefined: no HTTP. */
  readonly http: HttpAddress | undefined;
  readonly policy: VersionPolicy;
  readonly gateDelta: number;
  readonly gateFixtures: string;
  readonly rollback: { readonly windowMs: number; readonly threshold: number; readonly minCount: number };
  readonly modelPollMs: number;
  readonly swapDrainMs: number;
  readonly maxLineBytes: number;
  readonly poisonRetries: number;
  /** Undefined: not set. */
  readonly seed: number | undefined;
}

/** Where HTTP listens. */
export interface HttpAddress {
  readonly hostname: string;
  readonly port: number;
}

/** Variables by name. */
export type TrainingEnvironment = Readonly<Record<string, string | undefined>>;

/** Longest path of a Unix socket, in bytes. */
const MAX_SOCKET_PATH_BYTES = 107;
/** Numbers in one batch; 1 GiB of float32. */
const MAX_BATCH_NUMBERS = 268_435_456;

/**
 * Reads the settings.
 *
 * @throws TrainingError `invalid_settings`, one line that names the variable, the rule and the value.
 */
export function loadTrainSettings(env: TrainingEnvironment): TrainSettings {
  const { read, numeric } = reader(env);
  const table = TRAINING_SETTINGS;
  const basePath = read(table.basePath);
  const baseName = baseModelName(read(table.baseName), basePath);
  if (!/^[A-Za-z0-9._-]{1,100}$/.test(baseName)) throw bad(table.baseName, baseName);
  const socket = read(table.socket);
  if (new TextEncoder().encode(socket).length > MAX_SOCKET_PATH_BYTES) throw bad(table.socket, socket);
  const batchSize = numeric(table.batchSize), replayMix = numeric(table.replayMix);
  const pendingCapacity = numeric(table.pendingCapacity), nFeatures = numeric(table.nFeatures);
  checkBatch(batchSize, replayMix, pendingCapacity, nFeatures);
  return {
    basePath,
    baseName,
    socket,
    checkpointDir: read(table.checkpointDir),
    replayCapacity: numeric(table.replayCapacity),
    pendingCapacity,
    batchSize,
    replayMix,
    learningRate: numeric(table.learningRate),
    emaDecay: numeric(table.emaDecay),
    checkpointIntervalMs: 1000 * numeric(table.checkpointIntervalS),
    minSamples: numeric(table.minSamples),
    nFeatures,
    http: httpAddress(read(table.httpAddr)),
    policy: named(table.versionPolicy, () => parsePolicy(read(table.versionPolicy), baseName)),
    gateDelta: numeric(table.gateDelta),
    gateFixtures: read(table.gateFixtures),
    rollback: {
      windowMs: 1000 * numeric(table.rollbackWindowS),
      threshold: numeric(table.rollbackThreshold),
      minCount: numeric(table.rollbackMinCount),
    },
    modelPollMs: 1000 * numeric(table.modelPollS),
    swapDrainMs: 1000 * numeric(table.swapDrainS),
    maxLineBytes: numeric(table.maxLineBytes),
    poisonRetries: numeric(table.poisonRetries),
    seed: read(table.seed) === "" ? undefined : numeric(table.seed),
  };
}

/** The socket path alone, for the feedback client. */
export function feedbackSocketPath(env: TrainingEnvironment): string {
  return reader(env).read(TRAINING_SETTINGS.socket);
}

function reader(env: TrainingEnvironment) {
  /** Empty counts as unset. */
  const read = (setting: TrainingSetting): string => env[setting.name] || setting.default;
  const numeric = (setting: TrainingSetting): number => {
    const text = read(setting).trim();
    const form = setting.type === "integer" ? /^[+-]?\d+$/ : /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
    const value = form.test(text) ? Number(text) : NaN;
    const within = Number.isFinite(value) && value >= (setting.min ?? -Infinity) &&
      (setting.open === true ? value < (setting.max ?? Infinity) : value <= (setting.max ?? Infinity));
    if (!within || (setting.type === "integer" && !Number.isSafeInteger(value))) throw bad(setting, text);
    return value;
  };
  return { read, numeric };
}

function checkBatch(batchSize: number, replayMix: number, pendingCapacity: number, nFeatures: number): void {
  named(TRAINING_SETTINGS.pendingCapacity, () => splitBatch(batchSize, replayMix, pendingCapacity));
  // Beside its features each row has its activations, its prediction and its target.
  const numbers = batchSize * (nFeatures + HIDDEN + 2);
  if (numbers > MAX_BATCH_NUMBERS) {
    throw new TrainingError(
      "invalid_settings",
      `${TRAINING_SETTINGS.batchSize.name}: a batch may hold at most ${MAX_BATCH_NUMBERS} numbers, ` +
        `${batchSize} rows of ${nFeatures} features take ${numbers}`,
    );
  }
}

function httpAddress(text: string): HttpAddress | undefined {
  if (text === "off") return undefined;
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]*)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) throw bad(TRAINING_SETTINGS.httpAddr, text);
  return { hostname: match[1] ?? (match[2] || "0.0.0.0"), port };
}

/** Runs a check of another file and puts the variable's name before its message. */
function named<T>(setting: TrainingSetting, check: () => T): T {
  try {
    return check();
  } catch (thrown) {
    if (!(thrown instanceof TrainingError)) throw thrown;
    throw new TrainingError("invalid_settings", `${setting.name}: ${thrown.message}`);
  }
}

function bad(setting: TrainingSetting, value: string): TrainingError {
  const shown = JSON.stringify(value.slice(0, 100));
  return new TrainingError("invalid_settings", `${setting.name}: must be ${setting.range}, got ${shown}`);
}

function integer(
  name: string,
  fallback: number,
  min: number,
  max: number | undefined,
  doc: string,
  unit?: string,
): TrainingSetting {
  return { ...number(name, fallback, min, max, doc, unit), type: "integer", range: `an integer, ${limits(min, max)}` };
}

function number(
  name: string,
  fallback: number,
  min: number,
  max: number | undefined,
  doc: string,
  unit?: string,
): TrainingSetting {
  return {
    name,
    type: "number",
    default: `${fallback}`,
    range: limits(min, max),
    secret: false,
    doc,
    min,
    ...(max === undefined ? {} : { max }),
    ...(unit === undefined ? {} : { unit }),
  };
}

function limits(min: number, max: number | undefined): string {
  return max === undefined ? `at least ${min}` : `${min} to ${max}`;
}
