/**
 * Makes a Unix socket appear at a path without ever replacing anything alive, with mode 0600 from the first moment, and
 * removes it again only when it is still ours (online-training.md, section 1.6). The caller holds the claim.
 */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { removeIfPresent } from "./atomic_file.ts";
import { TrainingError } from "./errors.ts";

/** A listening socket at its published path. */
export interface PublishedSocket {
  readonly listener: Deno.Listener<Deno.UnixConn>;
  /** Stops listening and removes the path if it is still this socket. */
  close(): Promise<void>;
}

const MODE = 0o600;
/** Longest wait for the probe of an existing socket, in milliseconds. */
const PROBE_MS = 1000;

/**
 * Name that the socket is bound at before it is linked to its place: `listener.close()` removes whatever is at the path
 * that was bound, and that must never be somebody else's socket.
 */
export function bindingPath(socketPath: string): string {
  return `${socketPath}.binding`;
}

/**
 * Removes a stale socket, binds and publishes.
 *
 * @throws TrainingError `path_exists` when something else than a socket is there, `address_in_use` when the endpoint is
 * alive or cannot be verified.
 */
export async function publishSocket(socketPath: string, clock: Clock): Promise<PublishedSocket> {
  await removeStale(socketPath, clock);
  const temporary = bindingPath(socketPath);
  await removeStale(temporary, clock);
  const listener = listenPrivately(temporary);
  try {
    const bound = await lstatIfPresent(temporary);
    if (!bound?.isSocket) {
      throw new TrainingError("address_in_use", `bound socket path was replaced before publication: ${socketPath}`);
    }
    await Deno.chmod(temporary, MODE);
    await giveName(temporary, socketPath);
    const published = await lstatIfPresent(socketPath);
    if (!published?.isSocket || !sameNode(published, bound) || ((published.mode ?? 0) & 0o777) !== MODE) {
      throw new TrainingError("address_in_use", `bound socket path changed during publication: ${socketPath}`);
    }
    await removeIfPresent(temporary);
    return { listener, close: () => withdraw(listener, socketPath, bound) };
  } catch (thrown) {
    listener.close();
    throw thrown;
  }
}

/** The umask closes the gap between bind and chmod. Without the permission for it the folder alone protects that moment. */
function listenPrivately(path: string): Deno.Listener<Deno.UnixConn> {
  let before: number | undefined;
  try {
    before = Deno.umask(0o177);
  } catch (thrown) {
    if (!(thrown instanceof Deno.errors.NotCapable) && !(thrown instanceof Deno.errors.NotSupported)) throw thrown;
  }
  try {
    return Deno.listen({ transport: "unix", path });
  } finally {
    if (before !== undefined) Deno.umask(before);
  }
}

/** A hard link fails when the name is taken; a file system without links gets a rename after a look. */
async function giveName(temporary: string, socketPath: string): Promise<void> {
  try {
    return await Deno.link(temporary, socketPath);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.AlreadyExists) throw changedDuringProbe(socketPath);
    if (thrown instanceof Deno.errors.NotFound || thrown instanceof Deno.errors.NotCapable) throw thrown;
  }
  if (await lstatIfPresent(socketPath) !== undefined) throw changedDuringProbe(socketPath);
  await Deno.rename(temporary, socketPath);
}

async function withdraw(
  listener: Deno.Listener<Deno.UnixConn>,
  socketPath: string,
  bound: Deno.FileInfo,
): Promise<void> {
  try {
    listener.close();
  } catch (thrown) {
    if (!(thrown instanceof Deno.errors.BadResource)) throw thrown;
  }
  const now = await lstatIfPresent(socketPath);
  if (now?.isSocket && sameNode(now, bound)) await removeIfPresent(socketPath);
}

/** Removes a socket that nobody listens on. */
async function removeStale(path: string, clock: Clock): Promise<void> {
  const found = await lstatIfPresent(path);
  if (found === undefined) return;
  if (!found.isSocket) throw new TrainingError("path_exists", `refusing to replace non-socket path: ${path}`);
  const state = await probe(path, clock);
  if (state === "absent") return;
  if (state === "active") throw new TrainingError("address_in_use", `socket endpoint is already active: ${path}`);
  if (state !== "stale") {
    throw new TrainingError(
      "address_in_use",
      `refusing to replace active or unverified socket endpoint (${state.reason}): ${path}`,
    );
  }
  const now = await lstatIfPresent(path);
  if (now === undefined) return;
  if (!now.isSocket || !sameNode(now, found)) throw changedDuringProbe(path);
  await removeIfPresent(path);
}

async function probe(path: string, clock: Clock): Promise<"absent" | "active" | "stale" | { reason: string }> {
  let cancel = () => {};
  const expired = new Promise<undefined>((resolve) => {
    cancel = clock.after(PROBE_MS, () => resolve(undefined));
  });
  const connecting = Deno.connect({ transport: "unix", path });
  try {
    const connection = await Promise.race([connecting, expired]);
    if (connection === undefined) {
      connecting.then((late) => late.close(), () => {});
      return { reason: `no answer within ${PROBE_MS} ms` };
    }
    connection.close();
    return "active";
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotCapable) throw thrown;
    if (thrown instanceof Deno.errors.NotFound) return "absent";
    if (thrown instanceof Deno.errors.ConnectionRefused) return "stale";
    return { reason: errorText(thrown) };
  } finally {
    cancel();
  }
}

function changedDuringProbe(path: string): TrainingError {
  return new TrainingError("address_in_use", `socket endpoint changed during probe: ${path}`);
}

function sameNode(a: Deno.FileInfo, b: Deno.FileInfo): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

async function lstatIfPresent(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.lstat(path);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return undefined;
    throw thrown;
  }
}
