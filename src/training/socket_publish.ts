/**
 * Makes the feedback socket appear at its path (online-training.md, section 1.6): the contract's probe of what is there, with
 * its texts, and then a socket for the owner alone. The caller holds the claim.
 */
import { dirname } from "node:path";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { bindOwnerOnly, type OwnedSocket, SocketPathError } from "../runtime/socket_node.ts";
import { lstatIfPresent, removeIfPresent } from "./atomic_file.ts";
import { TrainingError } from "./errors.ts";

/** Longest wait for the probe of an existing socket, in milliseconds. */
const PROBE_MS = 1000;

/**
 * Removes a stale socket, binds and publishes. The parent folder is neither created nor checked; the operator owns it.
 *
 * @throws TrainingError `path_exists` when something else than a socket is there, `address_in_use` when the endpoint is
 * alive or cannot be verified; the system's error when the folder is missing.
 */
export async function publishSocket(socketPath: string, clock: Clock): Promise<OwnedSocket> {
  await Deno.lstat(dirname(socketPath));
  await removeStale(socketPath, clock);
  try {
    return await bindOwnerOnly(socketPath);
  } catch (thrown) {
    // Whatever took the name after the probe got it from somebody who does not heed the claim.
    const raced = thrown instanceof SocketPathError &&
      ["socket_path_changed", "socket_path_in_use", "socket_path_no_socket"].includes(thrown.code);
    throw raced ? changedDuringProbe(socketPath) : thrown;
  }
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
  if (!now.isSocket || now.dev !== found.dev || now.ino !== found.ino) throw changedDuringProbe(path);
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
