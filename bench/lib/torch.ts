/** Installs PyTorch for the training benchmark, only when it is asked for: it is several gigabytes. */
import { join } from "node:path";
import { sourceRoot } from "../../scripts/lib/places.ts";
import { mustRun } from "../../scripts/lib/run.ts";

/** The Python that has PyTorch: `given` when that is set, else one in the cache. */
export async function ensureTorchPython(cache: string, given: string | undefined): Promise<string> {
  if (given) return given;
  const folder = join(cache, "torch");
  const requirements = join(sourceRoot, "bench/training/requirements.txt");
  const what = "torch (several gigabytes)";
  await mustRun({ command: ["bash", join(sourceRoot, "scripts/python_venv.sh"), requirements, folder, what] });
  return join(folder, "venv/bin/python");
}
