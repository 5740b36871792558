/**
 * What was baked into this binary. `scripts/compile.ts` replaces `baked_manifest.json` (here: `null`) in its copy of the
 * sources, because the permissions of a compiled binary cannot be listed at run time.
 */
import baked from "./baked_manifest.json" with { type: "json" };

/** One baked permission. */
export interface BakedGrant {
  /** `net`, `read`, `write`, `env`, `sys` or `ffi`. */
  readonly kind: string;
  /** Host, `unix:` socket, path or name; true for everything of the kind. */
  readonly value: string | true;
  /** The setting that asked for it, or what it is for. */
  readonly for: string;
}

/** Content of `baked_manifest.json` in a compiled binary. */
export interface BakedManifest {
  readonly version: string;
  /** Compile profile: `nats`, `local` or `train`. */
  readonly profile: string;
  readonly target: string;
  /** Wildcards instead of the hosts and folders of one deployment. */
  readonly generic: boolean;
  readonly grants: readonly BakedGrant[];
}

/**
 * The manifest of this binary; `undefined` when it runs from source.
 *
 * @throws TypeError when the file holds something else: the binary was made by a script that does not belong to it.
 */
export function bakedManifest(content: unknown = baked): BakedManifest | undefined {
  if (content === null) return undefined;
  if (!isManifest(content)) throw new TypeError("baked_manifest.json is not a manifest of permissions");
  return content;
}

function isManifest(value: unknown): value is BakedManifest {
  if (typeof value !== "object" || value === null) return false;
  const { version, profile, target, generic, grants } = value as Record<string, unknown>;
  return [version, profile, target].every((text) => typeof text === "string") && typeof generic === "boolean" &&
    Array.isArray(grants) && grants.every(isGrant);
}

function isGrant(value: unknown): value is BakedGrant {
  if (typeof value !== "object" || value === null) return false;
  const grant = value as Record<string, unknown>;
  return typeof grant.kind === "string" && typeof grant.for === "string" &&
    (grant.value === true || typeof grant.value === "string");
}
