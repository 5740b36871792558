/** Advisory locks between processes (flock), on every version of the runtime that is supported. */
import type { Clock } from "../runtime/clock.ts";

/** How long an attempt may take where the runtime has no attempt of its own, in milliseconds. */
const ATTEMPT_MS = 200;

/** `FsFile.tryLock`, which older supported runtimes do not have. */
interface TryLock {
  tryLock(exclusive: boolean): Promise<boolean>;
}

function hasTryLock(file: Deno.FsFile): file is Deno.FsFile & TryLock {
  return typeof (file as Partial<TryLock>).tryLock === "function";
}

/**
 * Tries to lock `file` exclusively without waiting. The lock lives until the file is closed.
 *
 * @returns whether the lock was taken. After a false the file is good for nothing but being closed: without `tryLock` a
 * thread of the runtime still waits for the lock.
 */
export async function tryLockExclusive(file: Deno.FsFile, clock: Clock): Promise<boolean> {
  if (hasTryLock(file)) return await file.tryLock(true);
  return await lockWithin(file, ATTEMPT_MS, clock);
}

/** Waits up to `limitMs` milliseconds for an exclusive lock. Returns whether it was taken; see {@link tryLockExclusive}. */
export async function lockWithin(file: Deno.FsFile, limitMs: number, clock: Clock): Promise<boolean> {
  let cancel = () => {};
  const expired = new Promise<false>((resolve) => {
    cancel = clock.after(limitMs, () => resolve(false));
  });
  const locked = file.lock(true).then(() => true);
  // A late failure, after the file was closed, concerns nobody.
  locked.catch(() => {});
  try {
    return await Promise.race([locked, expired]);
  } finally {
    cancel();
  }
}
