/** Learning and predicting batch times, between dispatch, the scheduler and the trainer's parts, which are loaded only when asked for. */
import type { BatchTimes, TimedBatch } from "../dispatch/batch_time.ts";
import type { Clock } from "../runtime/clock.ts";
import { logFor } from "../runtime/log.ts";
import type { BatchShape, FitsShape } from "../scheduler/batch_shape.ts";
import type { BatchTimeSettings } from "../settings/settings.ts";
import type { DispatchedBatch, LearnedBatchTime } from "../training/batch_features.ts";
import type { BatchTimeService } from "../training/batch_time_service.ts";

const logger = logFor("batch_time");

/** Weight of the newest batch in the recent time of its model. */
const RECENT_WEIGHT = 0.2;

/** Predictions shorten batches only when so many were measured, and were at most this wrong on average. */
const TRUST = { measured: 20, relativeError: 0.5 } as const;

/** Makes and starts what the settings ask for; undefined when they ask for nothing. */
export async function openBatchTimes(
  settings: BatchTimeSettings,
  clock: Clock,
): Promise<SidecarBatchTimes | undefined> {
  const { feedbackSocket, versionsDir, policy, maxMs } = settings;
  if (feedbackSocket === undefined && versionsDir === undefined) return undefined;
  const { BatchTimeService } = await import("../training/batch_time_service.ts");
  const log = {
    info: (message: string) => logger.info("{message}", { message }),
    warn: (message: string) => logger.warn("{message}", { message }),
    error: (message: string) => logger.error("{message}", { message }),
  };
  const service = new BatchTimeService({ feedbackSocket, versionsDir, policy, clock, log });
  service.start();
  return new SidecarBatchTimes(service, maxMs);
}

/** Batch times of this process. */
export class SidecarBatchTimes implements BatchTimes {
  /** For the schedulers; undefined without a limit. */
  readonly fits: FitsShape | undefined;
  readonly service: BatchTimeService;
  readonly #predictor: LearnedBatchTime;
  readonly #maxMs: number | undefined;
  /** Recent time of each model in milliseconds. Only models that have run a batch are here. */
  readonly #recentMs = new Map<string, number>();

  constructor(service: BatchTimeService, maxMs: number | undefined) {
    this.service = service;
    this.#predictor = service.predictor;
    this.#maxMs = maxMs;
    this.fits = maxMs === undefined ? undefined : (shape) => this.#fitsIn(shape, maxMs);
  }

  begin(shape: BatchShape): TimedBatch {
    const batch = this.#describe(shape);
    const predictedMs = this.#predictor.predictMs(batch);
    return {
      predictedMs,
      ended: (measuredMs) => {
        this.#predictor.observe(batch, measuredMs, predictedMs);
        this.#remember(shape.modelId, measuredMs);
      },
    };
  }

  /** What is to be known from outside. */
  report(): unknown {
    return { ...this.service.report(), max_ms: this.#maxMs ?? null, limits_batches: this.#isTrusted() };
  }

  #fitsIn(shape: BatchShape, maxMs: number): boolean {
    if (!this.#isTrusted()) return true;
    const predictedMs = this.#predictor.predictMs(this.#describe(shape));
    return predictedMs === undefined || predictedMs <= maxMs;
  }

  /** A model that is wrong by half says nothing that batches should be cut by. */
  #isTrusted(): boolean {
    const { count, relative } = this.#predictor.error;
    return this.#maxMs !== undefined && count >= TRUST.measured && relative <= TRUST.relativeError;
  }

  #describe(shape: BatchShape): DispatchedBatch {
    const recentMs = this.#recentMs.get(shape.modelId) ?? 0;
    return { ...shape, paddedCost: shape.items * shape.longest, recentMs };
  }

  #remember(modelId: string, measuredMs: number): void {
    if (!(measuredMs > 0) || !Number.isFinite(measuredMs)) return;
    const before = this.#recentMs.get(modelId) ?? measuredMs;
    this.#recentMs.set(modelId, before + RECENT_WEIGHT * (measuredMs - before));
  }
}
