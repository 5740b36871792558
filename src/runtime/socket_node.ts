/**
 * A Unix socket at a path for its owner alone. Whatever listens there keeps it, a socket that nobody listens on any more is replaced,
 * and what is no socket is left alone. The node has mode 0600 before it has its name, and is removed at the end only if it is still
 * the one that was made.
 */
import { basename, dirname, join } from "node:path";
import { errorText, SidecarError } from "./errors.ts";

/** Why a socket cannot be made at a path. */
export type SocketPathFault = "in_use" | "no_socket" | "changed" | "denied" | "failed";

/** A path at which no socket can be made. Code `socket_path_` and the fault. */
export class SocketPathError extends SidecarError {
  constructor(fault: SocketPathFault, message: string, options?: ErrorOptions) {
    super(`socket_path_${fault}`, message, options);
  }
}

/** A listening socket. */
export interface OwnedSocket {
  readonly listener: Deno.UnixListener;
  /** Stops listening and removes the node, unless another one has taken its name. A second call does nothing. */
  close(): Promise<void>;
}

const NODE_MODE = 0o600;
const FOLDER_MODE = 0o700;
/** Umask that leaves a new node no rights but the owner's to read and write. */
const NODE_UMASK = 0o177;
/** Sockets that go away while they are looked at are looked at again, so often. */
const ATTEMPTS = 5;

/**
 * The name that a socket is bound at, in the same folder and of the same length (a socket's path has a limit), before it gets its
 * own. Whoever bakes permissions needs both.
 */
export function bindingPath(path: string): string {
  const name = basename(path);
  return join(dirname(path), (name.startsWith("~") ? "_" : "~") + name.slice(1));
}

/**
 * Binds a socket at `path`. Missing folders are made, for the owner alone.
 *
 * @throws SocketPathError when that is not possible
 */
export async function bindOwnerOnly(path: string): Promise<OwnedSocket> {
  try {
    await Deno.mkdir(dirname(path), { recursive: true, mode: FOLDER_MODE });
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await removeStale(path);
      const socket = await bindOnce(path);
      if (socket !== undefined) return socket;
    }
  } catch (thrown) {
    throw socketPathError(path, thrown);
  }
  throw new SocketPathError("changed", `another socket keeps appearing at ${path}`);
}

/** Binds under the other name and moves the node; undefined when something has appeared at `path` meanwhile. */
async function bindOnce(path: string): Promise<OwnedSocket | undefined> {
  const binding = bindingPath(path);
  await removeStale(binding);
  const listener = listenPrivately(binding);
  try {
    await Deno.chmod(binding, NODE_MODE);
    const node = await Deno.lstat(binding);
    if (!await giveName(binding, path)) return listener.close(), undefined;
    return owned(listener, path, node);
  } catch (thrown) {
    listener.close();
    throw thrown;
  }
}

/** Gives the bound node its name; false when that is taken. A link never replaces anything, unlike a rename. */
async function giveName(binding: string, path: string): Promise<boolean> {
  try {
    await Deno.link(binding, path);
    await Deno.remove(binding);
    return true;
  } catch (thrown) {
    if (thrown instanceof Deno.errors.AlreadyExists) return false;
    if (thrown instanceof Deno.errors.NotCapable) throw thrown;
  }
  // Not every file system links sockets.
  if (await nodeAt(path) !== undefined) return false;
  await Deno.rename(binding, path);
  return true;
}

/** Binding and both changes of the umask are one step of this isolate. */
function listenPrivately(path: string): Deno.UnixListener {
  const before = Deno.umask(NODE_UMASK);
  try {
    return Deno.listen({ transport: "unix", path });
  } finally {
    Deno.umask(before);
  }
}

function owned(listener: Deno.UnixListener, path: string, node: Deno.FileInfo): OwnedSocket {
  let closed = false;
  return {
    listener,
    async close() {
      if (closed) return;
      closed = true;
      // This removes what is at the name that was bound, where nothing is any more.
      listener.close();
      const present = await nodeAt(path);
      if (present !== undefined && isSameNode(present, node)) await Deno.remove(path);
    },
  };
}

/** Removes a socket that nobody listens on. */
async function removeStale(path: string): Promise<void> {
  const found = await nodeAt(path);
  if (found === undefined) return;
  if (!found.isSocket) {
    const what = found.isDirectory ? "a directory" : found.isSymlink ? "a symbolic link" : "no socket";
    throw new SocketPathError("no_socket", `${path} is ${what} and is not replaced`);
  }
  if (await isListening(path)) throw new SocketPathError("in_use", `another process listens at ${path}`);
  // Somebody else may have replaced it while we asked.
  const present = await nodeAt(path);
  if (present !== undefined && isSameNode(present, found)) await Deno.remove(path);
}

async function isListening(path: string): Promise<boolean> {
  try {
    (await Deno.connect({ transport: "unix", path })).close();
    return true;
  } catch (thrown) {
    if (thrown instanceof Deno.errors.ConnectionRefused || thrown instanceof Deno.errors.NotFound) return false;
    // Its backlog is full: it is alive enough.
    if (thrown instanceof Deno.errors.WouldBlock) return true;
    throw thrown;
  }
}

async function nodeAt(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.lstat(path);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return undefined;
    throw thrown;
  }
}

function isSameNode(a: Deno.FileInfo, b: Deno.FileInfo): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

function socketPathError(path: string, thrown: unknown): SocketPathError {
  if (thrown instanceof SocketPathError) return thrown;
  const cause = { cause: thrown };
  if (thrown instanceof Deno.errors.NotCapable) {
    return new SocketPathError("denied", `no permission to make a socket at ${path}: ${errorText(thrown)}`, cause);
  }
  return new SocketPathError("failed", `cannot make a socket at ${path}: ${errorText(thrown)}`, cause);
}
