/** When a checkpoint is due, and its export in the owner's time (online-training.md, section 3.1). */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { CheckpointStore } from "./checkpoint_store.ts";
import type { TrainingLog } from "./log.ts";
import type { TrainingMetrics } from "./metrics.ts";
import { OncePerChange } from "./once_per_change.ts";
import type { SgdEma } from "./sgd.ts";
import type { Checkpointer } from "./trainer.ts";
import type { VersionMetadata } from "./version_metadata.ts";

/** What a checkpointer is made of. */
export interface CheckpointerOptions {
  readonly store: CheckpointStore;
  readonly sgd: SgdEma;
  /** Least milliseconds between two exports; there is no gate before the first. */
  readonly intervalMs: number;
  /** Least new rows trained between two exports. */
  readonly minSamples: number;
  /** Version that the seed model came from. */
  readonly parent: number | null;
  readonly clock: Clock;
  readonly log: TrainingLog;
  readonly metrics: TrainingMetrics;
  /** Called after each committed version, before the ACK. Must not block. */
  readonly onCommitted: (metadata: VersionMetadata) => void;
}

/** Exports the EMA when both gates are open. */
export class StoreCheckpointer implements Checkpointer {
  readonly #options: CheckpointerOptions;
  #since = 0;
  #lastExport = Number.NEGATIVE_INFINITY;
  #parent: number | null;
  #failing = false;
  /** Every step tries again while the disk is full. */
  #failureLog: OncePerChange;

  constructor(options: CheckpointerOptions) {
    this.#options = options;
    this.#failureLog = newFailureLog(options.log);
    this.#parent = options.parent;
  }

  get counter(): number {
    return this.#options.store.highest;
  }
  /** Whether the last export failed. */
  get failing(): boolean {
    return this.#failing;
  }

  /** See {@link Checkpointer}. */
  afterStep(newRows: number, step: number, samplesTotal: number): null | Promise<string | null> {
    this.#since += newRows;
    const { clock, intervalMs, minSamples } = this.#options;
    if (this.#since < minSamples || clock.now() - this.#lastExport < intervalMs) return null;
    return this.#export(step, samplesTotal);
  }

  async #export(step: number, samplesTotal: number): Promise<string | null> {
    const { store, sgd, clock, log, metrics } = this.#options;
    try {
      const { metadata, path } = await store.publish({ params: sgd.ema, step, samplesTotal, parent: this.#parent });
      this.#since = 0;
      this.#lastExport = clock.now();
      this.#parent = metadata.version;
      if (this.#failing) this.#failureLog = newFailureLog(log);
      this.#failing = false;
      metrics.checkpointsCompleted++;
      log.info(`checkpoint ${path} at step ${step} (${samplesTotal} samples)`);
      this.#options.onCommitted(metadata);
      return path;
    } catch (thrown) {
      // Nothing is reset: every later step tries again.
      this.#failing = true;
      metrics.checkpointsFailed++;
      this.#failureLog.error(`checkpoint at step ${step} failed: ${errorText(thrown)}`);
      return null;
    }
  }
}

/** Failures differ in the number of their step and in the name of the temporary file. */
function newFailureLog(log: TrainingLog): OncePerChange {
  return new OncePerChange(log, (message) => message.replaceAll(/[0-9a-f]{8}\.tmp|[0-9]+/g, "#"));
}
