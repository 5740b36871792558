/**
 * The claim file beside the socket: one process per endpoint, for the whole life of the process (online-training.md,
 * section 1.6). The lock is what counts; the file stays when the process ends, and nothing is ever written into it.
 */
import { closeSync, constants, fchmodSync, fstatSync, openSync } from "node:fs";
import type { Clock } from "../runtime/clock.ts";
import { TrainingError } from "./errors.ts";
import { tryLockExclusive } from "./file_lock.ts";

/** A held claim; closing it gives it up. */
export interface SocketClaim {
  close(): void;
}

/** Path of the claim file of a socket. */
export function claimPath(socketPath: string): string {
  return `${socketPath}.lock`;
}

/**
 * Claims the endpoint.
 *
 * @throws TrainingError `path_exists` when the claim file is a symlink or no regular file, `address_in_use` when another
 * process holds it; the system's error when the folder is missing.
 */
export async function claimSocket(socketPath: string, clock: Clock): Promise<SocketClaim> {
  const path = claimPath(socketPath);
  refuseOddFile(path);
  const identity = prepareClaimFile(path);
  // Deno can lock, node:fs can change the mode of what it opened; both must hold the same file.
  const file = await Deno.open(path, { read: true, write: true });
  try {
    if (!sameFile(await file.stat(), identity) || !sameFile(await Deno.lstat(path), identity)) throw nonRegular(path);
    if (!await tryLockExclusive(file, clock)) {
      throw new TrainingError("address_in_use", `socket endpoint is already claimed: ${socketPath}`);
    }
    return file;
  } catch (thrown) {
    file.close();
    throw thrown;
  }
}

/** Looks before anything is opened: with permissions for single folders the runtime resolves links by itself. */
function refuseOddFile(path: string): void {
  let found: Deno.FileInfo;
  try {
    found = Deno.lstatSync(path);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return;
    throw thrown;
  }
  if (found.isSymlink) throw symlink(path);
  if (!found.isFile) throw nonRegular(path);
}

interface Identity {
  readonly dev: number;
  readonly ino: number;
}

/** Creates the file when it is missing and forces its mode; never follows a link. */
function prepareClaimFile(path: string): Identity {
  let fd: number;
  try {
    fd = openSync(path, constants.O_CREAT | constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK, 0o600);
  } catch (thrown) {
    if ((thrown as { code?: unknown }).code === "ELOOP") throw symlink(path);
    throw thrown;
  }
  try {
    const { dev, ino } = fstatSync(fd);
    // A link that came in between may have led elsewhere; its target must keep its mode.
    if (!sameFile(Deno.lstatSync(path), { dev, ino })) throw nonRegular(path);
    fchmodSync(fd, 0o600);
    return { dev, ino };
  } finally {
    closeSync(fd);
  }
}

function sameFile(info: Deno.FileInfo, { dev, ino }: Identity): boolean {
  return info.isFile && info.dev === dev && info.ino === ino;
}

function symlink(path: string): TrainingError {
  return new TrainingError("path_exists", `refusing symlink socket claim path: ${path}`);
}

function nonRegular(path: string): TrainingError {
  return new TrainingError("path_exists", `refusing non-regular socket claim path: ${path}`);
}
