/**
 * The sidecar's end of the trainer's loop: sends measured batches, follows the folder of versions, predicts with the one that the
 * policy allows. Loaded only where the settings ask for it; whatever happens to the trainer, work goes on.
 */
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { version } from "../settings/version.ts";
import { BATCH_FEATURES, BATCH_SCALE, LearnedBatchTime } from "./batch_features.ts";
import { FixtureSample, type FixturesFile } from "./batch_fixtures.ts";
import { CheckpointStore } from "./checkpoint_store.ts";
import { FeedbackClient } from "./feedback_client.ts";
import type { FeedbackMessage } from "./feedback_message.ts";
import type { TrainingLog } from "./log.ts";
import { TrainingMetrics } from "./metrics.ts";
import { OncePerChange } from "./once_per_change.ts";
import { effectivePolicy } from "./operator_policy.ts";
import { seededRandom } from "./random.ts";
import { Scorer } from "./scorer.ts";
import { VersionLoader } from "./version_loader.ts";
import { parsePolicy, type VersionPolicy } from "./version_policy.ts";

/** What a service is made of. */
export interface BatchTimeOptions {
  /** Undefined: nothing is sent. */
  readonly feedbackSocket: string | undefined;
  /** Undefined: nothing is predicted. */
  readonly versionsDir: string | undefined;
  /** Text of the policy. */
  readonly policy: string;
  readonly clock: Clock;
  readonly log: TrainingLog;
}

/** What `/debug/batches` shows of it. */
export interface BatchTimeReport {
  /** Version that predicts now; null for none. */
  readonly version: string | null;
  /** Why it is not the one that the policy asks for; empty when it is. */
  readonly note: string;
  /** Predictions that were measured. */
  readonly predictions: number;
  /** Means over the newest of them; null before the first. */
  readonly mean_relative_error: number | null;
  readonly mean_absolute_error_ms: number | null;
  /** Null when nothing is sent. */
  readonly feedback: {
    readonly delivered: number;
    readonly dropped: number;
    readonly rejected: number;
    readonly outstanding: number;
  } | null;
}

/** Time between two looks at the folder of versions, in milliseconds. */
const POLL_MS = 5000;
/** Versions are called `<base>.<n>` here as by default in the trainer; the name is shown and has no other effect. */
const BASE_NAME = "online";
/** Limits of the scorer, the trainer's defaults. Nothing waits for calls of an old model here: they are over at once. */
const ROLLBACK = { windowMs: 300_000, threshold: 0.05, minCount: 20 } as const;

/** See the file's comment. */
export class BatchTimeService {
  readonly predictor: LearnedBatchTime;
  readonly #options: BatchTimeOptions;
  readonly #policy: VersionPolicy;
  readonly #client: FeedbackClient | undefined;
  readonly #clientLog: OncePerChange;
  readonly #scorerLog: OncePerChange;
  readonly #fixtures = new FixtureSample(seededRandom(1));
  readonly #stop = new AbortController();
  /** Why the folder cannot be read; empty while it can. */
  #trouble = "";
  #store: CheckpointStore | undefined;
  #scorer: Scorer | undefined;
  #deliveredBefore = 0;
  #polled: Promise<void> = Promise.resolve();
  #loop: Promise<void> = Promise.resolve();

  /** @throws TrainingError for an unusable policy. */
  constructor(options: BatchTimeOptions) {
    const { feedbackSocket, clock, log } = options;
    this.#options = options;
    this.#policy = parsePolicy(options.policy, BASE_NAME);
    // Messages about single batches differ in their numbers alone.
    this.#clientLog = new OncePerChange(log, (message) => message.replaceAll(/[0-9]+/g, "#"));
    this.#scorerLog = new OncePerChange(log);
    this.#client = feedbackSocket === undefined
      ? undefined
      : new FeedbackClient({ socketPath: feedbackSocket, clock, log: withoutCheckpoints(this.#clientLog) });
    this.predictor = new LearnedBatchTime(
      { scoreOne: (features, into) => this.#scorer?.scoreOne(features, into) },
      { send: (message) => this.#send(message) },
      BATCH_SCALE,
    );
  }

  /** Begins to send and to follow the versions. Waits for nothing. */
  start(): void {
    this.#client?.start();
    this.#loop = this.#pollForEver();
  }

  /** Looks at the versions and at how sending goes. Never rejects. */
  poll(): Promise<void> {
    this.#lookAtClient();
    this.#polled = this.#polled.then(() => this.#lookAtVersions());
    return this.#polled;
  }

  /** What is to be known from outside. */
  report(): BatchTimeReport {
    const { count, relative, absoluteMs } = this.predictor.error;
    const client = this.#client;
    return {
      version: this.#scorer?.active?.modelVersion ?? null,
      note: this.#scorer?.note ?? "",
      predictions: count,
      mean_relative_error: count === 0 ? null : relative,
      mean_absolute_error_ms: count === 0 ? null : absoluteMs,
      feedback: client === undefined ? null : {
        delivered: client.delivered,
        dropped: client.dropped,
        rejected: client.rejected,
        outstanding: client.outstanding,
      },
    };
  }

  /** Measured batches as fixtures for the trainer's gate. */
  fixtures(): FixturesFile {
    return this.#fixtures.file();
  }

  /** Ends both; what was not sent is thrown away. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#client?.close();
    await this.#loop;
    await this.#polled;
    await this.#scorer?.settled();
  }

  #send(message: FeedbackMessage): boolean {
    this.#fixtures.add(message.jobId, message.features, message.trueScore);
    return this.#client?.send(message) ?? false;
  }

  async #pollForEver(): Promise<void> {
    do await this.poll(); while (await sleep(this.#options.clock, POLL_MS, this.#stop.signal));
  }

  #lookAtClient(): void {
    if (this.#client === undefined) return;
    const { delivered } = this.#client;
    if (delivered > this.#deliveredBefore) this.#clientLog.goesWell("batch times: the trainer takes measurements");
    this.#deliveredBefore = delivered;
  }

  async #lookAtVersions(): Promise<void> {
    const { versionsDir } = this.#options;
    if (versionsDir === undefined) return;
    try {
      this.#store ??= await this.#openStore(versionsDir);
      this.#scorer ??= this.#newScorer(this.#store);
      // Fails when the folder cannot be read; the scorer would say so at every look.
      await this.#store.numbers();
      this.#tellTrouble("");
      await this.#scorer.reload();
      this.#scorerLog.goesWell();
    } catch (thrown) {
      this.#tellTrouble(errorText(thrown));
    }
  }

  #tellTrouble(trouble: string): void {
    if (trouble === this.#trouble) return;
    this.#trouble = trouble;
    const { log } = this.#options;
    if (trouble === "") log.info("batch times: the versions can be read");
    else log.warn(`batch times: no versions can be read, what predicts now goes on: ${trouble}`);
  }

  /** The folder belongs to the trainer: nothing is made, removed or marked in it. It may come into being later. */
  async #openStore(folder: string): Promise<CheckpointStore> {
    const { clock } = this.#options;
    return await CheckpointStore.attach({
      folder,
      baseName: BASE_NAME,
      nFeatures: BATCH_FEATURES,
      producerVersion: version,
      readOnly: true,
      clock,
      // For names of files, and none is written.
      random: seededRandom(0),
      log: this.#scorerLog,
    });
  }

  #newScorer(store: CheckpointStore): Scorer {
    const { clock } = this.#options, log = this.#scorerLog, metrics = new TrainingMetrics();
    return new Scorer({
      store,
      loader: new VersionLoader(store, { nFeatures: BATCH_FEATURES, clock, log, metrics }),
      seed: undefined,
      baseName: BASE_NAME,
      policy: () => effectivePolicy(store, this.#policy, log),
      rollback: ROLLBACK,
      drainMs: 0,
      clock,
      log,
      metrics,
    });
  }
}

/** Checkpoints are the trainer's news, and it tells them itself. */
function withoutCheckpoints(log: TrainingLog): TrainingLog {
  return {
    info: (message) => message.startsWith("feedback: checkpoint ") ? undefined : log.info(message),
    warn: (message) => log.warn(message),
    error: (message) => log.error(message),
  };
}
