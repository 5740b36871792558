/** Which version may serve (online-training.md, section 6.4). */
import { TrainingError } from "./errors.ts";
import { parseVersionText } from "./version_name.ts";

/** State of a version in the store. */
export const VERSION_STATES = ["candidate", "stable", "unstable", "quarantined", "rolled_back"] as const;
/** See {@link VERSION_STATES}. */
export type VersionState = typeof VERSION_STATES[number];

/** How the serving version is chosen. */
export type VersionPolicy =
  | { readonly kind: "latest" }
  | { readonly kind: "latest-stable" }
  | { readonly kind: "pinned"; readonly version: number };

/**
 * Parses `latest`, `latest-stable` or `pinned:<version>`.
 *
 * @throws TrainingError `invalid_settings` for any other text.
 */
export function parsePolicy(text: string, baseName: string): VersionPolicy {
  if (text === "latest" || text === "latest-stable") return { kind: text };
  const version = text.startsWith("pinned:") ? parseVersionText(text.slice("pinned:".length), baseName) : undefined;
  if (version !== undefined) return { kind: "pinned", version };
  throw new TrainingError(
    "invalid_settings",
    `version policy must be latest, latest-stable or pinned:<version>, got ${JSON.stringify(text.slice(0, 100))}`,
  );
}

/** The text of a policy, as {@link parsePolicy} reads it. */
export function policyText(policy: VersionPolicy): string {
  return policy.kind === "pinned" ? `pinned:${policy.version}` : policy.kind;
}

/** Whether a version in that state may serve under the policy. Whether it can be loaded is another question. */
export function mayServe(policy: VersionPolicy, version: number, state: VersionState): boolean {
  switch (policy.kind) {
    case "latest":
      return state !== "quarantined" && state !== "rolled_back";
    case "latest-stable":
      return state === "stable";
    case "pinned":
      return version === policy.version && state !== "quarantined";
  }
}
