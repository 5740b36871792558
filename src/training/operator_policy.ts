/** The policy that an operator set with `worker-sidecar train pin`; it lies in the folder of versions. */
import type { CheckpointStore } from "./checkpoint_store.ts";
import { errorText } from "../runtime/errors.ts";
import type { TrainingLog } from "./log.ts";
import { parsePolicy, policyText, type VersionPolicy } from "./version_policy.ts";

const FILE = "policy.json";

/** Pins the version for every scorer on this folder. */
export async function writePin(store: CheckpointStore, version: number): Promise<void> {
  await store.writeText(FILE, `${JSON.stringify({ policy: policyText({ kind: "pinned", version }) })}\n`);
}

/** Lets the configured policy hold again. */
export async function removePin(store: CheckpointStore): Promise<void> {
  await store.removeText(FILE);
}

/** The policy that holds now: the operator's, otherwise the configured one. A damaged file is logged and ignored. */
export async function effectivePolicy(
  store: CheckpointStore,
  configured: VersionPolicy,
  log: TrainingLog,
): Promise<VersionPolicy> {
  try {
    const text = await store.readText(FILE);
    if (text === undefined) return configured;
    const { policy } = JSON.parse(text) as { policy?: unknown };
    return parsePolicy(typeof policy === "string" ? policy : "", store.options.baseName);
  } catch (thrown) {
    log.warn(`${FILE} is ignored: ${errorText(thrown)}`);
    return configured;
  }
}
