/**
 * `deno task conformance [FILE…] [OPTION…]`: installs the real Python backend, onnxruntime and a headless Chromium, and
 * runs the tests against them and a client in Go. Nothing is skipped: without Python 3.12 or Go it fails.
 */
import { ensureChromium } from "./lib/chromium.ts";
import { ensureOnnxPython } from "./lib/onnx_peer.ts";
import { ensurePeers, peerPrograms } from "./lib/peers.ts";
import { cacheFolder } from "./lib/places.ts";
import { printError } from "./lib/print.ts";
import { runTests } from "./lib/test_run.ts";

const options = Deno.args.filter((argument) => argument.startsWith("-"));
const named = Deno.args.filter((argument) => !argument.startsWith("-"));
try {
  const cache = cacheFolder(Deno.env.toObject());
  const peers = await ensurePeers(cache, Deno.env.get("WORKER_SIDECAR_PEERS"));
  const chromium = await ensureChromium(cache, Deno.env.get("CHROMIUM"));
  const onnxPython = await ensureOnnxPython(cache, Deno.env.get("ONNX_PYTHON"));
  Deno.exitCode = await runTests(named.length > 0 ? named : ["tests/conformance/"], options, {
    env: { WORKER_SIDECAR_PEERS: peers, ONNX_PYTHON: onnxPython, CHROMIUM: chromium },
    programs: [...peerPrograms(peers), onnxPython, chromium, "go"],
    read: [peers],
  });
} catch (thrown) {
  printError(`conformance: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  Deno.exitCode = 1;
}
