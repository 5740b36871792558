/**
 * Files that are there whole or not at all: written under a temporary name in the same folder, synced, and only then given
 * their name (online-training.md, section 3.2).
 */
import { TrainingError } from "./errors.ts";
import { type Random, randomBelow } from "./random.ts";

/** Points of a write at which a crash is interesting; tests stop the process there. */
export type WriteStep = "created" | "written" | "synced" | "published" | "cleaned";

/** Called when a write has reached a step. */
export type WriteHook = (file: string, step: WriteStep) => void | Promise<void>;

/** How a finished file gets its name. */
export type Publication =
  /** The name must be free: an existing file is never overwritten. */
  | "new"
  /** An existing file is replaced. */
  | "replace";

const TEMPORARY = /^\.(.+)\.[0-9a-f]{8}\.tmp$/;

/** Whether `name` is a temporary file of ours, left behind by a crash; returns the name that it was to get. */
export function temporaryFileTarget(name: string): string | undefined {
  return TEMPORARY.exec(name)?.[1];
}

/** Writes files into one folder. */
export class AtomicFolder {
  readonly path: string;
  readonly #random: Random;
  readonly #hook: WriteHook | undefined;

  constructor(path: string, random: Random, hook?: WriteHook) {
    this.path = path;
    this.#random = random;
    this.#hook = hook;
  }

  /**
   * Writes one file and syncs it. The folder itself is synced by {@link sync}.
   *
   * @throws Deno.errors.AlreadyExists for `new` when the name is taken; any other error of the system as it is. In each
   * case nothing is left behind.
   */
  async write(name: string, bytes: Uint8Array, publication: Publication): Promise<void> {
    const id = randomBelow(this.#random, 2 ** 32).toString(16).padStart(8, "0");
    const temporary = `${this.path}/.${name}.${id}.tmp`, target = `${this.path}/${name}`;
    try {
      await this.#fill(name, temporary, bytes);
      if (publication === "replace") await Deno.rename(temporary, target);
      else await this.#publishNew(temporary, target);
    } catch (thrown) {
      await removeIfPresent(temporary);
      throw thrown;
    }
    await this.#hook?.(name, "published");
    // The file is published; a second name that stays behind is removed at the next start.
    if (publication === "new") await removeIfPresent(temporary).catch(() => {});
    await this.#hook?.(name, "cleaned");
  }

  /** Makes the names that were given durable. */
  async sync(): Promise<void> {
    using folder = await Deno.open(this.path, { read: true });
    await folder.sync();
  }

  async #fill(name: string, temporary: string, bytes: Uint8Array): Promise<void> {
    using file = await Deno.open(temporary, { write: true, createNew: true });
    await this.#hook?.(name, "created");
    for (let at = 0; at < bytes.length;) at += await file.write(bytes.subarray(at));
    await this.#hook?.(name, "written");
    await file.sync();
    await this.#hook?.(name, "synced");
  }

  /** A hard link fails when the name is taken, where a rename would overwrite; some file systems have no links. */
  async #publishNew(temporary: string, target: string): Promise<void> {
    try {
      return await Deno.link(temporary, target);
    } catch (thrown) {
      if (thrown instanceof Deno.errors.AlreadyExists || !linksUnsupported(thrown)) throw thrown;
    }
    if (await exists(target)) throw new Deno.errors.AlreadyExists(`${target} exists`);
    await Deno.rename(temporary, target);
  }
}

function linksUnsupported(thrown: unknown): boolean {
  if (thrown instanceof Deno.errors.NotSupported || thrown instanceof Deno.errors.PermissionDenied) return true;
  const code = (thrown as { code?: unknown }).code;
  return code === "EPERM" || code === "ENOTSUP" || code === "EOPNOTSUPP" || code === "EMLINK" || code === "ENOSYS";
}

/** Removes a file; one that is not there is no error. */
export async function removeIfPresent(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (thrown) {
    if (!(thrown instanceof Deno.errors.NotFound)) throw thrown;
  }
}

/** What is at the path, a link as itself; undefined when nothing is. */
export async function lstatIfPresent(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.lstat(path);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return undefined;
    throw thrown;
  }
}

/** Whether something is at the path; a dangling link counts. */
export async function exists(path: string): Promise<boolean> {
  return await lstatIfPresent(path) !== undefined;
}

/**
 * Reads a file whole when it is a regular file of at most `limit` bytes.
 *
 * @returns undefined when there is no such file.
 * @throws TrainingError `store_failed` when it is too large or not a regular file.
 */
export async function readFileBounded(path: string, limit: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
  let info: Deno.FileInfo;
  try {
    info = await Deno.stat(path);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return undefined;
    throw thrown;
  }
  if (!info.isFile) throw new TrainingError("store_failed", `${path} is not a regular file`);
  if (info.size > limit) {
    throw new TrainingError("store_failed", `${path} has ${info.size} bytes, the limit is ${limit}`);
  }
  using file = await Deno.open(path, { read: true });
  // One byte more than announced, so that a file that grew meanwhile is noticed.
  const bytes = new Uint8Array(info.size + 1);
  let length = 0;
  for (;;) {
    const count = await file.read(bytes.subarray(length));
    if (count === null || count === 0) break;
    length += count;
  }
  if (length > info.size) throw new TrainingError("store_failed", `${path} grew while it was read`);
  return bytes.slice(0, length);
}
