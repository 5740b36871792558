/** The whole trainer: claim, store, model, gate, scorer, HTTP, socket, wired and ended in order (online-training.md). */
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { version } from "../settings/version.ts";
import { splitBatch } from "./batch_split.ts";
import { CheckpointStore } from "./checkpoint_store.ts";
import { StoreCheckpointer } from "./checkpointer.ts";
import { FeedbackServer } from "./feedback_server.ts";
import { loadFixtures } from "./fixtures.ts";
import { Gatekeeper } from "./gatekeeper.ts";
import { TrainingHttpServer } from "./http_server.ts";
import type { TrainingLog } from "./log.ts";
import { TrainingMetrics } from "./metrics.ts";
import { effectivePolicy } from "./operator_policy.ts";
import { renderPage, SHOWN_VERSIONS } from "./plot.ts";
import { seededRandom } from "./random.ts";
import { Scorer } from "./scorer.ts";
import { loadSeedModel, type SeedModel } from "./seed_model.ts";
import type { TrainSettings } from "./settings.ts";
import { SGD_DEFAULTS, SgdEma } from "./sgd.ts";
import { claimSocket, type SocketClaim } from "./socket_claim.ts";
import { publishSocket } from "./socket_publish.ts";
import { type StatusBody, statusBody, type TrainingPhase } from "./status.ts";
import { sgdStepRunner } from "./step_runner.ts";
import { OnlineTrainer } from "./trainer.ts";
import { LossHistory } from "./training_history.ts";
import { VersionLoader } from "./version_loader.ts";
import type { VersionMetadata } from "./version_metadata.ts";
import { policyText } from "./version_policy.ts";

/** What a service needs from outside. */
export interface ServiceParts {
  readonly clock: Clock;
  readonly log: TrainingLog;
  /** Seed of the generator when the settings give none; a 32-bit number. */
  readonly randomSeed: number;
}

/** How long a look whether the folder can be written is good for, in milliseconds. */
const WRITABLE_MS = 5000;
/** Newest versions that are asked for the number of samples so far; the newest ones may have no metadata. */
const LOOK_BACK = 100;
/** Longest wait at the stop for a poll that is under way, in milliseconds. */
const POLL_END_MS = 200;

/** A running trainer. */
export class TrainService {
  readonly settings: TrainSettings;
  readonly metrics: TrainingMetrics;
  readonly scorer: Scorer;
  readonly #parts: ServiceParts;
  readonly #store: CheckpointStore;
  readonly #checkpointer: StoreCheckpointer;
  readonly #trainer: OnlineTrainer;
  readonly #gatekeeper: Gatekeeper;
  readonly #losses = new LossHistory();
  readonly #stopped = new AbortController();
  #claim: SocketClaim | undefined;
  #http: TrainingHttpServer | undefined;
  #server: FeedbackServer | undefined;
  #polling: Promise<void> = Promise.resolve();
  #newest: VersionMetadata | undefined;
  #lastGate: StatusBody["last_gate"] = "";
  #policy: string;
  #writable = { checkedAt: Number.NEGATIVE_INFINITY, good: true };

  private constructor(settings: TrainSettings, parts: ServiceParts, built: Built) {
    this.settings = settings;
    this.#parts = parts;
    this.#claim = built.claim;
    this.#store = built.store;
    this.#newest = built.newest;
    this.#lastGate = built.newest?.gate?.result ?? "";
    this.#policy = policyText(settings.policy);
    this.metrics = new TrainingMetrics();
    this.metrics.onStep = (step, loss) => this.#losses.add(step, loss);
    const { clock, log } = parts;
    const { store, seed } = built, metrics = this.metrics;
    const loader = new VersionLoader(store, { nFeatures: settings.nFeatures, clock, log, metrics });
    const servingSeed = seed.loaded ? seed.params : undefined;
    this.scorer = new Scorer({
      store,
      loader,
      seed: servingSeed,
      baseName: settings.baseName,
      policy: async () => {
        const policy = await effectivePolicy(store, settings.policy, log);
        this.#policy = policyText(policy);
        return policy;
      },
      rollback: settings.rollback,
      drainMs: settings.swapDrainMs,
      clock,
      log,
      metrics,
    });
    this.#gatekeeper = new Gatekeeper({
      store,
      loader,
      fixtures: built.fixtures,
      maxRegression: settings.gateDelta,
      seed: servingSeed,
      clock,
      log,
      metrics,
      onVerdict: (metadata) => {
        this.#lastGate = metadata.gate?.result ?? "";
        void this.scorer.reload();
      },
    });
    const { learningRate, emaDecay } = settings;
    const sgd = new SgdEma(seed.params, settings.batchSize, { ...SGD_DEFAULTS, learningRate, emaDecay });
    this.#checkpointer = this.#newCheckpointer(built, sgd);
    this.#trainer = this.#newTrainer(built, sgd);
  }

  /**
   * Starts everything; the socket comes last.
   *
   * @throws TrainingError or the system's error when something cannot be had; what was taken is given back.
   */
  static async start(settings: TrainSettings, parts: ServiceParts): Promise<TrainService> {
    const claim = await claimSocket(settings.socket, parts.clock);
    let service: TrainService | undefined;
    try {
      service = new TrainService(settings, parts, await build(settings, parts, claim));
      await service.#listen();
      return service;
    } catch (thrown) {
      if (service === undefined) claim.close();
      else await service.stop();
      throw thrown;
    }
  }

  /** Port of HTTP; undefined when it is off. */
  get httpPort(): number | undefined {
    return this.#http?.port;
  }

  /** Pauses or resumes admission. */
  setPaused(paused: boolean): void {
    this.#trainer.setPaused(paused);
  }

  /** Resolves when no verdict, reload or drain that was begun is outstanding; for tests and embedders. */
  async settled(): Promise<void> {
    await this.#gatekeeper.judgeAll();
    await this.scorer.settled();
  }

  /** Looks at the folder of versions now, as every poll does. */
  async poll(): Promise<void> {
    await this.#gatekeeper.judgeAll();
    await this.scorer.reload();
    await this.#isWritable(0);
  }

  /** Ends everything within 1.5 s. Samples that wait are lost. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await Promise.all([this.#server?.close(), this.#http?.close()]);
    // A verdict may be under way; its file is written whole or not at all, so it need not be waited for.
    const waiting = new AbortController();
    const polled = this.#polling.then(() => waiting.abort());
    await Promise.race([polled, sleep(this.#parts.clock, POLL_END_MS, waiting.signal)]);
    this.#claim?.close();
    this.#claim = undefined;
    this.#parts.log.info("vmafx-sidecar stopped");
  }

  /** The body of `/status`. */
  status(): StatusBody {
    return statusBody({
      phase: this.#phase(),
      samplesTotal: this.#trainer.samplesTotal,
      lastCheckpointTime: this.#newest?.created_at ?? "",
      modelVersion: this.#newest?.model_version ?? "",
      activeVersion: this.scorer.active?.modelVersion ?? "",
      lastGate: this.#lastGate,
      policy: this.#policy,
      note: this.scorer.note,
      trainer: this.#trainer.status(),
    });
  }

  async #listen(): Promise<void> {
    const { settings } = this, { clock, log } = this.#parts;
    if (settings.http !== undefined) {
      this.#http = new TrainingHttpServer(
        settings.http,
        {
          nFeatures: settings.nFeatures,
          status: () => this.status(),
          metrics: () => this.#metricsText(),
          page: () => this.#page(),
          started: () => this.#server !== undefined,
          ready: async () => this.#server !== undefined && await this.#isWritable(WRITABLE_MS),
          score: (features, count) => this.scorer.score(features, count),
          setPaused: (paused) => this.setPaused(paused),
        },
        clock,
        log,
      );
    }
    await this.scorer.reload();
    const socket = await publishSocket(settings.socket, clock);
    this.#server = new FeedbackServer({
      socket,
      ingest: (sample) => this.#trainer.ingest(sample),
      nFeatures: settings.nFeatures,
      maxLineBytes: settings.maxLineBytes,
      clock,
      log,
      metrics: this.metrics,
    });
    log.info(`vmafx-sidecar listening on ${settings.socket}`);
    this.#polling = this.#pollForEver();
  }

  async #pollForEver(): Promise<void> {
    do await this.poll(); while (await sleep(this.#parts.clock, this.settings.modelPollMs, this.#stopped.signal));
  }

  #newCheckpointer({ seed, store }: Built, sgd: SgdEma): StoreCheckpointer {
    const { settings, metrics } = this, { clock, log } = this.#parts;
    return new StoreCheckpointer({
      store,
      sgd,
      intervalMs: settings.checkpointIntervalMs,
      minSamples: settings.minSamples,
      parent: seed.version,
      clock,
      log,
      metrics,
      onCommitted: (metadata) => {
        this.#newest = metadata;
        void this.#gatekeeper.judgeAll();
        void this.scorer.reload();
      },
    });
  }

  #newTrainer({ random, samplesBefore }: Built, sgd: SgdEma): OnlineTrainer {
    const { settings, metrics } = this, { clock, log } = this.#parts;
    return new OnlineTrainer({
      nFeatures: settings.nFeatures,
      split: splitBatch(settings.batchSize, settings.replayMix, settings.pendingCapacity),
      pendingCapacity: settings.pendingCapacity,
      replayCapacity: settings.replayCapacity,
      poisonRetries: settings.poisonRetries,
      samplesBefore,
      runStep: sgdStepRunner(sgd, clock),
      checkpointer: this.#checkpointer,
      random,
      clock,
      log,
      metrics,
    });
  }

  #phase(): TrainingPhase {
    if (this.#server === undefined) return "initializing";
    const storing = this.#writable.good && !this.#checkpointer.failing;
    if (this.#trainer.failing || this.scorer.failing || !storing) return "failed";
    return this.#trainer.paused ? "paused" : "running";
  }

  /** Whether the folder of versions can be written; a result younger than `maxAgeMs` is good enough. */
  async #isWritable(maxAgeMs: number): Promise<boolean> {
    const now = this.#parts.clock.now();
    if (now - this.#writable.checkedAt < maxAgeMs) return this.#writable.good;
    try {
      await this.#store.checkWritable();
      this.#writable = { checkedAt: now, good: true };
    } catch (thrown) {
      if (this.#writable.good) {
        this.#parts.log.error(`${this.settings.checkpointDir} cannot be written: ${errorText(thrown)}`);
      }
      this.#writable = { checkedAt: now, good: false };
    }
    return this.#writable.good;
  }

  #metricsText(): string {
    const trainer = this.#trainer.status();
    return this.metrics.render(version, {
      pendingSamples: trainer.pending_size,
      replaySamples: trainer.buffer_size,
      replayEvictions: trainer.total_evicted,
      trainingActive: trainer.training_active,
      activeVersion: this.scorer.active?.version ?? 0,
      lastCheckpointSeconds: this.#newest === undefined
        ? 0
        : Math.floor(Date.parse(this.#newest.created_at) / 1000) || 0,
    });
  }

  async #page(): Promise<string> {
    const versions = (await this.#store.list(SHOWN_VERSIONS)).map((record) => record.metadata);
    return renderPage({ status: this.status(), losses: this.#losses.points(), versions });
  }
}

interface Built {
  readonly claim: SocketClaim;
  readonly store: CheckpointStore;
  readonly seed: SeedModel;
  readonly fixtures: Awaited<ReturnType<typeof loadFixtures>> | undefined;
  readonly random: ReturnType<typeof seededRandom>;
  readonly newest: VersionMetadata | undefined;
  readonly samplesBefore: number;
}

/** Everything that is read from disk before the parts are made. */
async function build(
  settings: TrainSettings,
  { clock, log, randomSeed }: ServiceParts,
  claim: SocketClaim,
): Promise<Built> {
  const random = seededRandom(settings.seed ?? randomSeed);
  const store = await CheckpointStore.open({
    folder: settings.checkpointDir,
    baseName: settings.baseName,
    nFeatures: settings.nFeatures,
    producerVersion: version,
    readOnly: false,
    clock,
    // Names of temporary files must differ between two trainers with the same seed.
    random: seededRandom(randomSeed),
    log,
  });
  const seed = await loadSeedModel(settings.basePath, settings.nFeatures, random, log);
  const fixtures = settings.gateFixtures === ""
    ? undefined
    : await loadFixtures(settings.gateFixtures, settings.nFeatures, clock, log);
  if (fixtures === undefined && settings.policy.kind === "latest-stable") {
    log.warn(
      "no gate fixtures are configured: no version becomes stable by itself, so latest-stable serves none of them",
    );
  }
  const published = (await store.list(LOOK_BACK)).filter((record) => record.sha256 !== undefined);
  return {
    claim,
    store,
    seed,
    fixtures,
    random,
    newest: published.at(-1)?.metadata,
    samplesBefore: Math.max(0, ...published.map((record) => record.metadata.samples_total)),
  };
}
