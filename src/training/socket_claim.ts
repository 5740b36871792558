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
  const identity = prepareClaimFile(path);
  // Deno can lock, node:fs can refuse to follow a link; both must hold the same file.
  const file = await Deno.open(path, { read: true, write: true });
  try {
    const opened = await file.stat(), now = await Deno.lstat(path);
    const same = opened.isFile && now.isFile &&
      [opened, now].every(({ dev, ino }) => dev === identity.dev && ino === identity.ino);
    if (!same) throw nonRegular(path);
    if (!await tryLockExclusive(file, clock)) {
      throw new TrainingError("address_in_use", `socket endpoint is already claimed: ${socketPath}`);
    }
    return file;
  } catch (thrown) {
    file.close();
    throw thrown;
  }
}

/** Creates the file when it is missing and forces its mode; never follows a link. */
function prepareClaimFile(path: string): { dev: number; ino: number } {
  let fd: number;
  try {
    fd = openSync(path, constants.O_CREAT | constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK, 0o600);
  } catch (thrown) {
    const code = (thrown as { code?: unknown }).code;
    if (code === "ELOOP") throw new TrainingError("path_exists", `refusing symlink socket claim path: ${path}`);
    // A directory and a socket cannot be opened for writing at all.
    if (code === "EISDIR" || code === "ENXIO") throw nonRegular(path);
    throw thrown;
  }
  try {
    const info = fstatSync(fd);
    if (!info.isFile()) throw nonRegular(path);
    fchmodSync(fd, 0o600);
    return { dev: info.dev, ino: info.ino };
  } finally {
    closeSync(fd);
  }
}

function nonRegular(path: string): TrainingError {
  return new TrainingError("path_exists", `refusing non-regular socket claim path: ${path}`);
}
