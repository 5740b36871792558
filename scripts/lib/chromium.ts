/** Unpacks a headless Chromium for the page tests. */
import { join } from "node:path";
import { sourceRoot } from "./places.ts";
import { mustRun } from "./run.ts";

/**
 * The browser, unpacked or as it was left: `given` when that is set, else one in the cache.
 *
 * @throws Error when it cannot be had.
 */
export async function ensureChromium(cache: string, given: string | undefined): Promise<string> {
  if (given) return given;
  const folder = join(cache, "chromium");
  const script = join(sourceRoot, "tests/training/browser/setup.sh");
  await mustRun({ command: ["bash", script, Deno.execPath(), folder] });
  return join(folder, "headless");
}
