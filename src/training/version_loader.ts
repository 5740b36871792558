/** Verification of a version before it is used: digest, form, width (online-training.md, section 6.2). */
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { readFileBounded } from "./atomic_file.ts";
import type { CheckpointStore, VersionRecord } from "./checkpoint_store.ts";
import { TrainingError } from "./errors.ts";
import type { TrainingLog } from "./log.ts";
import type { RejectionReason, TrainingMetrics } from "./metrics.ts";
import { MAX_MODEL_BYTES } from "./onnx_format.ts";
import { readOnnx } from "./onnx_reader.ts";
import type { Params } from "./params.ts";
import { sha256Hex } from "./sha256.ts";

/** Result of loading a version. */
export type LoadResult =
  | { readonly kind: "loaded"; readonly params: Params }
  /** There is no digest yet, or the file cannot be read now: nothing is said about the version. */
  | { readonly kind: "waiting" }
  /** Verification failed; the version is marked as quarantined. */
  | { readonly kind: "rejected"; readonly reason: RejectionReason; readonly detail: string };

/** The model and its digest become visible one after the other, so a mismatch may be a moment in between. */
const ATTEMPTS = 3, ATTEMPT_PAUSE_MS = 100;
/** Longest part of a reason that quotes the file: its names may be of any length, metadata may not. */
const MAX_DETAIL = 500;

/** Loads versions of a store and quarantines those that fail. */
export class VersionLoader {
  readonly #store: CheckpointStore;
  readonly #nFeatures: number;
  readonly #clock: Clock;
  readonly #log: TrainingLog;
  readonly #metrics: TrainingMetrics;
  /** Called when a version failed verification. */
  onQuarantined: ((version: number) => void) | undefined;

  constructor(
    store: CheckpointStore,
    parts: { nFeatures: number; clock: Clock; log: TrainingLog; metrics: TrainingMetrics },
  ) {
    this.#store = store;
    this.#nFeatures = parts.nFeatures;
    this.#clock = parts.clock;
    this.#log = parts.log;
    this.#metrics = parts.metrics;
  }

  /**
   * Loads a version. One in quarantine is looked at again only when its file has changed since.
   */
  async load(record: VersionRecord): Promise<LoadResult> {
    const quarantined = record.metadata.state === "quarantined";
    if (quarantined && sameFile(record)) {
      return { kind: "rejected", reason: reasonOf(record.metadata.reason), detail: "still in quarantine" };
    }
    const result = await this.#verify(record);
    if (result.kind === "rejected") await this.#quarantine(record, result);
    else if (quarantined && result.kind === "loaded") await this.#release(record);
    return result;
  }

  async #verify(first: VersionRecord): Promise<LoadResult> {
    let record: VersionRecord | undefined = first;
    for (let attempt = 1;; attempt++) {
      if (record?.sha256 === undefined) return { kind: "waiting" };
      const bytes = await this.#read(record);
      if (!(bytes instanceof Uint8Array)) return bytes;
      const actual = await sha256Hex(bytes, this.#clock);
      if (actual === record.sha256) return this.#parse(bytes);
      if (attempt === ATTEMPTS) {
        const detail = `the file's digest is ${actual}, the digest file says ${record.sha256}`;
        return { kind: "rejected", reason: "digest_mismatch", detail };
      }
      await sleep(this.#clock, ATTEMPT_PAUSE_MS);
      record = await this.#store.record(first.version);
    }
  }

  /** The bytes. A file of the wrong kind or size is rejected; an error of the system says nothing about the version. */
  async #read(record: VersionRecord): Promise<Uint8Array | LoadResult> {
    try {
      return await readFileBounded(record.path, MAX_MODEL_BYTES) ?? { kind: "waiting" };
    } catch (thrown) {
      if (thrown instanceof TrainingError) return invalid(thrown);
      this.#log.warn(`${record.metadata.name} cannot be read now: ${errorText(thrown)}`);
      return { kind: "waiting" };
    }
  }

  #parse(bytes: Uint8Array): LoadResult {
    try {
      return { kind: "loaded", params: readOnnx(bytes, this.#nFeatures) };
    } catch (thrown) {
      return invalid(thrown);
    }
  }

  async #quarantine(record: VersionRecord, result: LoadResult & { kind: "rejected" }): Promise<void> {
    this.#metrics.versionsRejected[result.reason]++;
    this.onQuarantined?.(record.version);
    this.#log.error(`${record.metadata.name} is quarantined (${result.reason}): ${result.detail}`);
    try {
      await this.#store.mark(record.version, (metadata) => ({
        ...metadata,
        state: "quarantined",
        reason: `${result.reason}: ${result.detail}`,
        quarantined_file: record.identity,
      }));
    } catch (thrown) {
      // It is refused all the same; the next look finds out again.
      this.#log.error(`${record.metadata.name} cannot be marked as quarantined: ${errorText(thrown)}`);
    }
  }

  async #release(record: VersionRecord): Promise<void> {
    this.#log.info(`${record.metadata.name} leaves quarantine: its file has changed and passes now`);
    await this.#store.mark(record.version, (metadata) => {
      const { quarantined_file: _, ...rest } = metadata;
      return {
        ...rest,
        state: "candidate",
        reason: "left quarantine",
        sha256: record.sha256 ?? rest.sha256,
        gate: null,
      };
    });
  }
}

function invalid(thrown: unknown): LoadResult {
  return { kind: "rejected", reason: "invalid_model", detail: errorText(thrown).slice(0, MAX_DETAIL).toWellFormed() };
}

function sameFile(record: VersionRecord): boolean {
  const then = record.metadata.quarantined_file, now = record.identity;
  return then !== undefined && then.size === now.size && then.mtime_ms === now.mtime_ms && then.ino === now.ino;
}

function reasonOf(text: string): RejectionReason {
  return text.startsWith("digest_mismatch") ? "digest_mismatch" : "invalid_model";
}
