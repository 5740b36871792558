/** Installs the real Python peers for conformance tests and the parity check. */
import { join } from "node:path";
import { sourceRoot } from "./places.ts";
import { mustRun } from "./run.ts";

/**
 * The folder with the peers, installed or brought up to date: `WORKER_SIDECAR_PEERS` when that is set, else in the cache.
 *
 * @throws Error when there is no Python 3.12, or the packages cannot be had.
 */
export async function ensurePeers(cache: string, given: string | undefined): Promise<string> {
  const folder = given || join(cache, "peers");
  await mustRun({ command: ["bash", join(sourceRoot, "tests/peers/setup.sh"), folder] });
  return folder;
}

/** Programs of the peers that tests start. */
export function peerPrograms(folder: string): string[] {
  return ["sie-server", "sie-config", "python"].map((name) => join(folder, "venv/bin", name));
}
