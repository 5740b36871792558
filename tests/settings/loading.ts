/** Settings for tests, loaded the way the program loads them. */
import assert from "node:assert/strict";
import { type Loaded, loadSettings } from "../../src/settings/load.ts";
import type { Settings } from "../../src/settings/settings.ts";

/** The least environment that starts. */
export const LEAST: Readonly<Record<string, string>> = {
  SIE_POOL: "pool",
  SIE_BUNDLE: "bundle",
  SIE_MACHINE_PROFILE: "profile",
  SIE_NATS_URL: "nats://broker:4222",
};

/** Loads `environment` as it is. */
export function load(environment: Readonly<Record<string, string>>, args: readonly string[] = []): Loaded {
  return loadSettings({ program: "worker-sidecar", args, environment, newWorkerId: () => "worker-generated" });
}

/** Settings of the least environment and `more`; fails when these do not start. */
export function settingsOf(more: Readonly<Record<string, string>> = {}, args: readonly string[] = []): Settings {
  const loaded = load({ ...LEAST, ...more }, args);
  assert.ok(loaded.kind === "settings", loaded.kind === "text" ? loaded.stderr : "");
  return loaded.settings;
}

/** First line of the error of the least environment and `more`, and its exit code; fails when these start. */
export function refusalOf(more: Readonly<Record<string, string>>, args: readonly string[] = []): [number, string] {
  const loaded = load({ ...LEAST, ...more }, args);
  assert.ok(loaded.kind === "text", "it starts");
  return [loaded.exitCode, loaded.stderr.split("\n")[0] ?? ""];
}
