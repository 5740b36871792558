/** The metadata file beside a checkpoint (online-training.md, section 6.1). */
import * as v from "valibot";
import { rfc3339Seconds } from "./status_mapper.ts";
import { VERSION_STATES } from "./version_policy.ts";
import { versionName } from "./version_name.ts";

const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
/** Names go into `/status`, of which the operator reads 4096 bytes; ours have 116 characters at most. */
const shortText = v.pipe(v.string(), v.maxLength(128));
const optionalNumber = v.nullable(v.pipe(v.number(), v.finite()));

const schema = v.looseObject({
  version: count,
  name: shortText,
  /** `<base>.<n>`. */
  model_version: shortText,
  sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  n_features: count,
  step: count,
  /** Admitted samples up to this version, continued over restarts. */
  samples_total: count,
  /** RFC 3339, UTC, whole seconds. */
  created_at: v.pipe(v.string(), v.regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)),
  parent: v.nullable(count),
  state: v.picklist(VERSION_STATES),
  reason: v.string(),
  gate: v.nullable(v.object({
    result: v.picklist(["passed", "failed", "skipped"]),
    plcc: optionalNumber,
    previous_version: v.nullable(count),
    previous_plcc: optionalNumber,
    delta: optionalNumber,
    threshold: v.number(),
    /** Null when no fixtures were configured. */
    fixtures_sha256: v.nullable(v.string()),
  })),
  /** Identity of the model file when the version was quarantined: a changed file is looked at again. */
  quarantined_file: v.optional(v.object({ size: v.number(), mtime_ms: v.number(), ino: v.number() })),
});

/** Content of a metadata file. */
export type VersionMetadata = v.InferOutput<typeof schema>;
/** Verdict of the gate on one version. */
export type GateRecord = NonNullable<VersionMetadata["gate"]>;
/** What tells that a file was replaced or rewritten. */
export type FileIdentity = NonNullable<VersionMetadata["quarantined_file"]>;

/** Largest metadata file that is read, in bytes. */
export const MAX_METADATA_BYTES = 65_536;

/** Parses a metadata file; undefined when it is not the metadata of `version`. */
export function parseMetadata(text: string, version: number): VersionMetadata | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const result = v.safeParse(schema, value);
  return result.success && result.output.version === version ? result.output : undefined;
}

/** Text of a metadata file. */
export function metadataText(metadata: VersionMetadata): string {
  return `${JSON.stringify(metadata, null, 2)}\n`;
}

/** Metadata of a pair that has none, because the reference wrote it or the file was damaged. */
export function rebuiltMetadata(
  version: number,
  facts: { sha256: string; baseName: string; modifiedMs: number; nFeatures: number },
): VersionMetadata {
  return {
    version,
    name: versionName(version),
    model_version: `${facts.baseName}.${version}`,
    sha256: facts.sha256,
    n_features: facts.nFeatures,
    step: 0,
    samples_total: 0,
    created_at: rfc3339Seconds(facts.modifiedMs),
    parent: null,
    state: "candidate",
    reason: "no metadata beside the model",
    gate: null,
  };
}
