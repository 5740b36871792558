/**
 * What the operator makes of a `/status` body (online-training.md, section 6.6; vectors: status_mapper.json). The
 * trainer's own status is passed through it in tests, and `worker-sidecar train status` shows a running trainer as the
 * operator will.
 */

/** `status` of the custom resource, as far as the mapper fills it; an absent key was never set. */
export interface ResourceStatus {
  phase?: "Initializing" | "Running" | "Paused" | "Failed";
  currentSamples?: number;
  /** RFC 3339, whole seconds, UTC. */
  lastCheckpoint?: string;
  modelVersion?: string;
}

/** Result of one poll. */
export type MappedStatus =
  | { readonly kind: "mapped"; readonly status: ResourceStatus }
  /** The whole answer is dropped; the resource stays as it was. */
  | { readonly kind: "undecodable"; readonly reason: string };

/** Largest body that the operator reads, in bytes. */
export const MAX_STATUS_BODY_BYTES = 4096;

const PHASES: ReadonlyMap<string, NonNullable<ResourceStatus["phase"]>> = new Map([
  ["initializing", "Initializing"],
  ["running", "Running"],
  ["paused", "Paused"],
  ["failed", "Failed"],
]);

const RFC_3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$/;

/**
 * Applies one decoded body to the status the resource has now. An empty or absent value never clears a field; the number
 * of samples wraps to 32 bits as the operator's conversion does.
 */
export function mapStatus(body: unknown, before: ResourceStatus = {}): MappedStatus {
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    return { kind: "undecodable", reason: "the body is not a JSON object" };
  }
  const fields = body as Record<string, unknown>;
  const text = (key: string): string | null => {
    const value = fields[key] ?? "";
    return typeof value === "string" ? value : null;
  };
  const phase = text("phase"), checkpoint = text("last_checkpoint_time"), version = text("model_version");
  if (phase === null || checkpoint === null || version === null) {
    return { kind: "undecodable", reason: "phase, last_checkpoint_time and model_version must be strings" };
  }
  const samples = fields["current_samples"] ?? 0;
  if (typeof samples !== "number" || !Number.isInteger(samples)) {
    return { kind: "undecodable", reason: `current_samples must be an integer, got ${JSON.stringify(samples)}` };
  }
  const status: ResourceStatus = { ...before };
  status.phase = PHASES.get(phase) ?? "Initializing";
  status.currentSamples = samples | 0;
  const time = wholeSeconds(checkpoint);
  if (time !== undefined) status.lastCheckpoint = time;
  if (version) status.modelVersion = version;
  return { kind: "mapped", status };
}

/** An RFC 3339 time cut to whole seconds in UTC, which is all that the cluster stores. */
function wholeSeconds(text: string): string | undefined {
  if (!RFC_3339.test(text)) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : rfc3339Seconds(ms);
}

/** RFC 3339 in UTC with whole seconds, of milliseconds since the Unix epoch. */
export function rfc3339Seconds(unixMs: number): string {
  return new Date(Math.floor(unixMs / 1000) * 1000).toISOString().replace(".000Z", "Z");
}
