/** Verification of a version before it is used: digest, form, width (online-training.md, section 6.2). */
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { readFileBounded } from "./atomic_file.ts";
import type { CheckpointStore, VersionRecord } from "./checkpoint_store.ts";
import type { TrainingLog } from "./log.ts";
import type { RejectionReason, TrainingMetrics } from "./metrics.ts";
import { MAX_MODEL_BYTES } from "./onnx_format.ts";
import { readOnnx } from "./onnx_reader.ts";
import type { Params } from "./params.ts";
import { sha256Hex } from "./sha256.ts";

/** Result of loading a version. */
export type LoadResult =
  | { readonly kind: "loaded"; readonly params: Params }
  /** There is no digest yet. */
  | { readonly kind: "waiting" }
  /** Verification failed; the version is marked as quarantined. */
  | { readonly kind: "rejected"; readonly reason: RejectionReason; readonly detail: string };

/** The model and its digest become visible one after the other, so a mismatch may be a moment in between. */
const ATTEMPTS = 3, ATTEMPT_PAUSE_MS = 100;

/** Loads versions of a store and quarantines those that fail. */
export class VersionLoader {
  readonly #store: CheckpointStore;
  readonly #nFeatures: number;
  readonly #clock: Clock;
  readonly #log: TrainingLog;
  readonly #metrics: TrainingMetrics;
  /** Called when a version has left quarantine and is a candidate again. */
  onReleased: ((version: number) => void) | undefined;

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
      if (typeof bytes === "string") return { kind: "rejected", reason: "invalid_model", detail: bytes };
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

  /** The bytes, or why they cannot be read. */
  async #read(record: VersionRecord): Promise<Uint8Array | string> {
    try {
      return await readFileBounded(record.path, MAX_MODEL_BYTES) ?? "the file is gone";
    } catch (thrown) {
      return errorText(thrown);
    }
  }

  #parse(bytes: Uint8Array): LoadResult {
    try {
      return { kind: "loaded", params: readOnnx(bytes, this.#nFeatures) };
    } catch (thrown) {
      return { kind: "rejected", reason: "invalid_model", detail: errorText(thrown) };
    }
  }

  async #quarantine(record: VersionRecord, result: LoadResult & { kind: "rejected" }): Promise<void> {
    this.#metrics.versionsRejected[result.reason]++;
    this.#log.error(`${record.metadata.name} is quarantined (${result.reason}): ${result.detail}`);
    await this.#store.mark(record.version, (metadata) => ({
      ...metadata,
      state: "quarantined",
      reason: `${result.reason}: ${result.detail}`,
      quarantined_file: record.identity,
    }));
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

function sameFile(record: VersionRecord): boolean {
  const then = record.metadata.quarantined_file, now = record.identity;
  return then !== undefined && then.size === now.size && then.mtime_ms === now.mtime_ms && then.ino === now.ino;
}

function reasonOf(text: string): RejectionReason {
  return text.startsWith("digest_mismatch") ? "digest_mismatch" : "invalid_model";
}
