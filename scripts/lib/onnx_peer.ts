/** Installs onnx and onnxruntime for the conformance tests of exported models. */
import { join } from "node:path";
import { sourceRoot } from "./places.ts";
import { mustRun } from "./run.ts";

/**
 * The Python that has both packages, installed or as it was left: `given` when that is set, else one in the cache.
 *
 * @throws Error when there is no suitable Python, or the packages cannot be had.
 */
export async function ensureOnnxPython(cache: string, given: string | undefined): Promise<string> {
  if (given) return given;
  const folder = join(cache, "onnx");
  const requirements = join(sourceRoot, "tests/training/onnx_peer/requirements.txt");
  await mustRun({ command: ["bash", join(sourceRoot, "scripts/python_venv.sh"), requirements, folder, "onnx"] });
  return join(folder, "venv/bin/python");
}
