/**
 * Variables that are handed on as they are to the part that knows them: those of OpenTelemetry and of the cloud stores. And
 * the `SIE_…` variables of other processes of the pod, which may share our environment and are none of our business.
 */
import type { Area } from "./variable.ts";

/** Variables that are handed on; a name that ends in `*` stands for all that begin so. */
export interface PassThrough {
  readonly name: string;
  readonly area: Extract<Area, "telemetry" | "payload">;
  readonly doc: string;
}

/** See {@link PassThrough}. */
export const passThrough: readonly PassThrough[] = [
  { name: "OTEL_*", area: "telemetry", doc: "Endpoints, protocol, headers, service name and sampler of OpenTelemetry" },
  { name: "SIE_OTEL_*", area: "telemetry", doc: "Lane, environment, region and proxy origin in telemetry" },
  { name: "SIE_MODAL_*", area: "telemetry", doc: "Proxy authentication of the telemetry endpoint" },
  { name: "SIE_TELEMETRY_INSTANCE_ID", area: "telemetry", doc: "Prefix of `service.instance.id`" },
  { name: "MODAL_TASK_ID", area: "telemetry", doc: "Prefix of `service.instance.id` when that is not set" },
  { name: "SIE_CLOUD_REGION", area: "telemetry", doc: "`cloud.region` when `SIE_OTEL_CLOUD_REGION` is not set" },
  { name: "AWS_*", area: "payload", doc: "Region, endpoint and credentials of `s3://`" },
  { name: "GOOGLE_*", area: "payload", doc: "Endpoint and credentials of `gs://`" },
  { name: "AZURE_*", area: "payload", doc: "Endpoint and credentials of `abfs://` and `abfss://`" },
  { name: "SIE_OSS_*", area: "payload", doc: "Region and internal endpoint of `oss://`" },
  { name: "ALIBABA_CLOUD_*", area: "payload", doc: "Credentials of `oss://`" },
  { name: "OSS_*", area: "payload", doc: "Credentials of `oss://`, second choice" },
];

/** Names that other processes of the pod read. */
export const foreignVariables: ReadonlySet<string> = new Set([
  "SIE_AUTH_TOKEN",
  "SIE_CONFIG_READ_TOKEN",
  "SIE_DEPLOYMENT_ENV",
  "SIE_ENV",
  "SIE_GENERATION_CAPABILITY_RECONCILE_INTERVAL_MS",
  "SIE_GENERATION_INPROGRESS_INTERVAL_S",
  "SIE_IPC_REQUIRE_HEARTBEAT",
  "SIE_IPC_STALE_AFTER_MS",
  "SIE_MAX_ITEM_TEXT_BYTES",
  "SIE_OOM_NAK_DELAY_S",
  "SIE_ROUTING_PREFIX_MODE",
]);

/** The variables of one area that `environment` sets. */
export function collect(
  environment: Readonly<Record<string, string>>,
  area: PassThrough["area"],
): Record<string, string> {
  const collected: Record<string, string> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (passThrough.some((row) => row.area === area && matches(row, name))) collected[name] = value;
  }
  return collected;
}

/** Whether `name` is handed on. */
export function isPassThrough(name: string): boolean {
  return passThrough.some((row) => matches(row, name));
}

function matches(row: PassThrough, name: string): boolean {
  return row.name.endsWith("*") ? name.startsWith(row.name.slice(0, -1)) : name === row.name;
}
