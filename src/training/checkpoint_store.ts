/**
 * The folder of versions: a model, its digest and its metadata each, numbered, never overwritten, never half visible
 * (online-training.md, sections 3.1, 3.2 and 6.1). One process writes versions; others may read them and mark them.
 */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import {
  AtomicFolder,
  exists,
  readFileBounded,
  removeIfPresent,
  temporaryFileTarget,
  type WriteHook,
} from "./atomic_file.ts";
import { digestFileText, MAX_DIGEST_FILE_BYTES, parseDigestFile } from "./digest_file.ts";
import { TrainingError } from "./errors.ts";
import { lockWithin } from "./file_lock.ts";
import type { TrainingLog } from "./log.ts";
import { writeOnnx } from "./onnx_writer.ts";
import type { Params } from "./params.ts";
import type { Random } from "./random.ts";
import { sha256Hex } from "./sha256.ts";
import { rfc3339Seconds } from "./status_mapper.ts";
import {
  type FileIdentity,
  MAX_METADATA_BYTES,
  metadataText,
  parseMetadata,
  rebuiltMetadata,
  type VersionMetadata,
} from "./version_metadata.ts";
import { digestFileName, metadataFileName, modelFileName, parseVersionFile, versionName } from "./version_name.ts";

/** How a store is opened. */
export interface StoreOptions {
  /** The folder, as configured; paths in answers begin with it. */
  readonly folder: string;
  /** First part of `<base>.<n>`. */
  readonly baseName: string;
  /** Input width, for metadata that must be rebuilt. */
  readonly nFeatures: number;
  /** Version of this program, written into the models. */
  readonly producerVersion: string;
  /** Marks are kept in memory and nothing is written. */
  readonly readOnly: boolean;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: TrainingLog;
  /** Stops the process at a step of a write; for tests. */
  readonly hook?: WriteHook;
}

/** One version as found on disk. */
export interface VersionRecord {
  readonly version: number;
  /** Path of the model. */
  readonly path: string;
  /** Undefined while there is no well-formed digest: the version is not published yet. */
  readonly sha256: string | undefined;
  readonly identity: FileIdentity;
  readonly metadata: VersionMetadata;
}

/** What a trainer tells about a new version. */
export interface NewVersion {
  readonly params: Params;
  readonly step: number;
  readonly samplesTotal: number;
  readonly parent: number | null;
}

/** Name of the file whose lock serialises changes of metadata. */
const LOCK_FILE = ".store.lock";
/** Longest wait for that lock, in milliseconds; a change takes a few. */
const LOCK_WAIT_MS = 5000;

/** See the file's comment. */
export class CheckpointStore {
  readonly options: StoreOptions;
  readonly #folder: AtomicFolder;
  /** Marks of a read-only store. */
  readonly #overlay = new Map<number, VersionMetadata>();
  readonly #damaged = new Set<number>();
  #highest = 0;
  #changes: Promise<void> = Promise.resolve();

  private constructor(options: StoreOptions) {
    this.options = options;
    this.#folder = new AtomicFolder(options.folder, options.random, options.hook);
  }

  /**
   * Opens a folder. A writer creates it with its parents, removes temporary files that a crash left, and goes on after
   * the highest number on disk.
   *
   * @throws the system's error when the folder cannot be created or written.
   */
  static async open(options: StoreOptions): Promise<CheckpointStore> {
    const store = new CheckpointStore(options);
    if (!options.readOnly) {
      await Deno.mkdir(options.folder, { recursive: true });
      await store.#removeTemporaryFiles();
      await store.checkWritable();
    }
    store.#highest = await store.#highestNumber();
    return store;
  }

  /** Opens a folder that a trainer may be using: creates, probes and removes nothing. */
  static async attach(options: StoreOptions): Promise<CheckpointStore> {
    const store = new CheckpointStore(options);
    store.#highest = await store.#highestNumber();
    return store;
  }

  /** Highest number in use, 0 for none. */
  get highest(): number {
    return this.#highest;
  }

  /** Writes and removes an empty file; throws the system's error when that fails. */
  async checkWritable(): Promise<void> {
    const probe = `${this.options.folder}/.probe.00000000.tmp`;
    await Deno.writeFile(probe, new Uint8Array(0));
    await removeIfPresent(probe);
  }

  /**
   * Writes a new version: model, digest, metadata, each synced, then the folder. The number is used up by the first file
   * that becomes visible.
   *
   * @returns the metadata and the path of the model.
   * @throws when the model or its digest cannot be written; a model that became visible without its digest is taken back.
   */
  async publish(version: NewVersion): Promise<{ metadata: VersionMetadata; path: string }> {
    const bytes = writeOnnx(version.params, this.options.producerVersion);
    const sha256 = await sha256Hex(bytes, this.options.clock);
    const number = await this.#publishModel(bytes);
    const metadata = this.#newMetadata(number, sha256, version);
    try {
      await this.#folder.write(digestFileName(number), new TextEncoder().encode(digestFileText(sha256)), "new");
    } catch (thrown) {
      await this.#takeBack(number);
      throw thrown;
    }
    // From here on the pair is complete and others may have read it: it stays, whatever happens to the metadata.
    try {
      await this.#folder.write(metadataFileName(number), new TextEncoder().encode(metadataText(metadata)), "replace");
      await this.#folder.sync();
    } catch (thrown) {
      this.options.log.warn(`${versionName(number)} has no durable metadata: ${errorText(thrown)}`);
    }
    return { metadata, path: `${this.options.folder}/${modelFileName(number)}` };
  }

  /** Numbers of all versions with a model file, ascending: one look at the folder, no file is read. */
  async numbers(): Promise<number[]> {
    const numbers: number[] = [];
    for await (const entry of Deno.readDir(this.options.folder)) {
      const parsed = parseVersionFile(entry.name);
      if (parsed?.part === "model" && !entry.isDirectory) numbers.push(parsed.version);
    }
    return numbers.sort((a, b) => a - b);
  }

  /** All versions, or the newest `count` of them, by ascending number. */
  async list(count = Number.POSITIVE_INFINITY): Promise<VersionRecord[]> {
    const records: VersionRecord[] = [];
    for (const number of (await this.numbers()).slice(count === Infinity ? 0 : -count)) {
      const record = await this.record(number);
      if (record !== undefined) records.push(record);
    }
    return records;
  }

  /** Versions below `limit` from the newest to the oldest, each read when it is asked for: a folder may hold very many. */
  async *newestFirst(limit = Number.POSITIVE_INFINITY): AsyncGenerator<VersionRecord> {
    for (const number of (await this.numbers()).reverse()) {
      if (number >= limit) continue;
      const record = await this.record(number);
      if (record !== undefined) yield record;
    }
  }

  /** One version as it is on disk now; undefined when there is no model of that number. */
  async record(version: number): Promise<VersionRecord | undefined> {
    const path = `${this.options.folder}/${modelFileName(version)}`;
    const info = await statIfPresent(path);
    if (info === undefined || !info.isFile) return undefined;
    const sha256 = await this.#readDigest(version);
    const metadata = await this.#readMetadata(version, sha256, info);
    return { version, path, sha256, metadata, identity: identityOf(info) };
  }

  /**
   * Changes a version's metadata, against changes by other processes too.
   *
   * @param change gets the metadata as it is on disk now; undefined: leave it.
   * @returns the metadata afterwards; undefined when there is no such version.
   */
  mark(
    version: number,
    change: (metadata: VersionMetadata) => VersionMetadata | undefined,
  ): Promise<VersionMetadata | undefined> {
    const result = this.#changes.then(() => this.#locked(() => this.#mark(version, change)));
    this.#changes = result.then(() => {}, () => {});
    return result;
  }

  /** Writes a small file of the folder whole, e.g. the operator's policy. */
  async writeText(name: string, text: string): Promise<void> {
    await this.#folder.write(name, new TextEncoder().encode(text), "replace");
    await this.#folder.sync();
  }

  /** Removes a small file of the folder. */
  async removeText(name: string): Promise<void> {
    await removeIfPresent(`${this.options.folder}/${name}`);
    await this.#folder.sync();
  }

  /** Reads a small file of the folder; undefined when there is none. */
  async readText(name: string): Promise<string | undefined> {
    const bytes = await readFileBounded(`${this.options.folder}/${name}`, MAX_METADATA_BYTES);
    return bytes === undefined ? undefined : new TextDecoder().decode(bytes);
  }

  async #publishModel(bytes: Uint8Array): Promise<number> {
    for (;;) {
      const number = this.#highest + 1;
      try {
        // A digest or metadata file of that number, left by something else, must not speak for our model.
        if (await this.#hasLeftovers(number)) throw new Deno.errors.AlreadyExists();
        await this.#folder.write(modelFileName(number), bytes, "new");
        this.#highest = number;
        return number;
      } catch (thrown) {
        if (!(thrown instanceof Deno.errors.AlreadyExists)) throw thrown;
        this.options.log.warn(`${versionName(number)} appeared in ${this.options.folder}; going on after it`);
        this.#highest = Math.max(number, await this.#highestNumber());
      }
    }
  }

  async #hasLeftovers(number: number): Promise<boolean> {
    const { folder } = this.options;
    return await exists(`${folder}/${digestFileName(number)}`) || await exists(`${folder}/${metadataFileName(number)}`);
  }

  /** A model without its digest says "not published yet"; it must not say so for ever when the write failed. */
  async #takeBack(number: number): Promise<void> {
    try {
      await removeIfPresent(`${this.options.folder}/${modelFileName(number)}`);
      if (this.#highest === number) this.#highest = await this.#highestNumber();
    } catch (thrown) {
      this.options.log.warn(`${versionName(number)} stays unfinished: ${errorText(thrown)}`);
    }
  }

  #newMetadata(number: number, sha256: string, version: NewVersion): VersionMetadata {
    return {
      version: number,
      name: versionName(number),
      model_version: `${this.options.baseName}.${number}`,
      sha256,
      n_features: version.params.nFeatures,
      step: version.step,
      samples_total: version.samplesTotal,
      created_at: rfc3339Seconds(this.options.clock.unixMs()),
      parent: version.parent,
      state: "candidate",
      reason: "",
      gate: null,
    };
  }

  async #mark(
    version: number,
    change: (metadata: VersionMetadata) => VersionMetadata | undefined,
  ): Promise<VersionMetadata | undefined> {
    const record = await this.record(version);
    if (record === undefined) return undefined;
    const changed = change(record.metadata);
    if (changed === undefined) return record.metadata;
    if (this.options.readOnly) this.#overlay.set(version, changed);
    else {
      await this.#folder.write(
        metadataFileName(version),
        new TextEncoder().encode(metadataText(changed)),
        "replace",
      );
      await this.#folder.sync();
    }
    return changed;
  }

  async #locked<T>(action: () => Promise<T>): Promise<T> {
    if (this.options.readOnly) return await action();
    using file = await Deno.open(`${this.options.folder}/${LOCK_FILE}`, { read: true, write: true, create: true });
    if (!await lockWithin(file, LOCK_WAIT_MS, this.options.clock)) {
      throw new TrainingError(
        "store_failed",
        `${LOCK_FILE} is held by another process for more than ${LOCK_WAIT_MS} ms`,
      );
    }
    return await action();
  }

  async #readDigest(version: number): Promise<string | undefined> {
    const path = `${this.options.folder}/${digestFileName(version)}`;
    const bytes = await readFileBounded(path, MAX_DIGEST_FILE_BYTES).catch(() => undefined);
    return bytes === undefined ? undefined : parseDigestFile(new TextDecoder().decode(bytes));
  }

  async #readMetadata(
    version: number,
    sha256: string | undefined,
    info: Deno.FileInfo,
  ): Promise<VersionMetadata> {
    const overlay = this.#overlay.get(version);
    if (overlay !== undefined) return overlay;
    const text = await this.readText(metadataFileName(version)).catch(() => "");
    const parsed = text === undefined ? undefined : parseMetadata(text, version);
    if (parsed !== undefined) {
      this.#damaged.delete(version);
      return parsed;
    }
    if (text !== undefined && !this.#damaged.has(version)) {
      this.#damaged.add(version);
      this.options.log.warn(`${metadataFileName(version)} is damaged; ${versionName(version)} counts as a candidate`);
    }
    const { baseName, nFeatures } = this.options;
    return rebuiltMetadata(version, {
      sha256: sha256 ?? "0".repeat(64),
      baseName,
      nFeatures,
      modifiedMs: info.mtime?.getTime() ?? 0,
    });
  }

  async #highestNumber(): Promise<number> {
    let highest = 0;
    for await (const entry of Deno.readDir(this.options.folder)) {
      highest = Math.max(highest, parseVersionFile(entry.name)?.version ?? 0);
    }
    return highest;
  }

  async #removeTemporaryFiles(): Promise<void> {
    for await (const entry of Deno.readDir(this.options.folder)) {
      if (!entry.isFile || temporaryFileTarget(entry.name) === undefined) continue;
      this.options.log.info(`removing ${entry.name}, which an earlier process left unfinished`);
      await removeIfPresent(`${this.options.folder}/${entry.name}`);
    }
  }
}

function identityOf(info: Deno.FileInfo): FileIdentity {
  return { size: info.size, mtime_ms: info.mtime?.getTime() ?? 0, ino: info.ino ?? 0 };
}

async function statIfPresent(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.stat(path);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return undefined;
    throw thrown;
  }
}
