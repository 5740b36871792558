/**
 * `deno task conformance [FILE…] [OPTION…]`: installs the real Python backend and runs the tests against it. Nothing is
 * skipped: without Python 3.12 it fails.
 */
import { ensurePeers, peerPrograms } from "./lib/peers.ts";
import { cacheFolder } from "./lib/places.ts";
import { printError } from "./lib/print.ts";
import { runTests } from "./lib/test_run.ts";

const options = Deno.args.filter((argument) => argument.startsWith("-"));
const named = Deno.args.filter((argument) => !argument.startsWith("-"));
try {
  const peers = await ensurePeers(cacheFolder(Deno.env.toObject()), Deno.env.get("WORKER_SIDECAR_PEERS"));
  Deno.exitCode = await runTests(named.length > 0 ? named : ["tests/conformance/"], options, {
    env: { WORKER_SIDECAR_PEERS: peers },
    programs: peerPrograms(peers),
    read: [peers],
  });
} catch (thrown) {
  printError(`conformance: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
