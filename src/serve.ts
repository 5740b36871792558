/** Runs the sidecar until it is told to stop. */
import type { Settings } from "./settings/settings.ts";

/**
 * Starts everything that `settings` ask for and runs until shutdown (runtime.md 3 to 7).
 *
 * @returns the exit code of the process.
 */
export function runServe(settings: Settings): Promise<number> {
  return Promise.reject(new Error(`${settings.program} cannot serve yet`));
}
