/**
 * Which permissions the settings ask for, and which of them were not given. The binary runs with baked permissions and never
 * asks for more, so a setting that points elsewhere must be named at start, not when the first message comes.
 */
import { dirname } from "node:path";
import { bindingPath } from "../runtime/socket_node.ts";
import type { Settings } from "./settings.ts";

/** One permission that one setting needs. */
export interface Need {
  /** Variable that asks for it. */
  readonly setting: string;
  readonly permission: "net" | "read" | "write" | "sys";
  /** `host:port`, `unix:/path`, a path, or the name of a system interface. */
  readonly target: string;
}

/** Says whether a permission is given. */
export type IsGranted = (need: Need) => boolean;

/** The needs of `settings` that `isGranted` denies, in a stable order and without duplicates. */
export function missingGrants(settings: Settings, isGranted: IsGranted = isGrantedNow): Need[] {
  return needsOf(settings).filter((need) => !isGranted(need));
}

/** One line for people: setting, what it points to, and the flag that would allow it. */
export function describeNeed(need: Need): string {
  return `${need.setting} needs ${need.target}, which this program may not ` +
    `${need.permission === "net" ? "reach" : need.permission === "sys" ? "use" : need.permission}: ` +
    `--allow-${need.permission}=${need.target}`;
}

/** Everything that the settings will touch. */
export function needsOf(settings: Settings): Need[] {
  const needs: Need[] = [
    net("SIE_WORKER_PROBE_PORT", `0.0.0.0:${settings.probes.port}`),
    ...socketNeeds(settings.ipc.socketPaths.length > 1 ? "SIE_IPC_SOCKET_PATHS" : "SIE_IPC_SOCKET_PATH", settings),
    ...(settings.ingest.mode === "nats" ? natsNeeds(settings, settings.ingest.natsUrl) : []),
    ...(settings.ingest.mode === "local" ? localNeeds(settings.ingest.socketPath) : []),
    ...urlNeeds("SIE_GATEWAY_URL", settings.ingest.mode === "nats" ? settings.admission.gatewayUrl : undefined),
    ...urlNeeds("SIE_CONFIG_SERVICE_URL", settings.config.serviceUrl),
    ...payloadNeeds(settings.payload.storeUrl),
    ...fileNeeds("SIE_TOKENIZER_STAGING_DIR", settings.dispatch.tokenizerStagingDir, "read"),
    ...connectNeeds("SIE_BATCH_TIME_FEEDBACK_SOCKET", settings.batchTime.feedbackSocket),
    ...fileNeeds("SIE_BATCH_TIME_VERSIONS_DIR", settings.batchTime.versionsDir, "read"),
    ...fileNeeds("SIE_TRACE_FILE", settings.debug.traceFile, "write"),
  ];
  const debug = settings.debug.address;
  if (debug !== undefined) needs.push(net("SIE_DEBUG_ADDR", hostPort(debug.hostname, debug.port)));
  const seen = new Set<string>();
  return needs.filter((need) => {
    const key = `${need.setting} ${need.permission} ${need.target}`;
    return !seen.has(key) && seen.add(key);
  });
}

/** Asks the runtime; a permission that would only come after a question at a terminal counts as missing. */
export function isGrantedNow(need: Need): boolean {
  try {
    return Deno.permissions.querySync(descriptor(need)).state === "granted";
  } catch (thrown) {
    // Older runtimes know no permission for Unix sockets or for the umask, and need none.
    const unknownToRuntime = need.permission === "sys" || need.target.startsWith("unix:");
    if (unknownToRuntime && (thrown instanceof URIError || thrown instanceof TypeError)) return true;
    throw thrown;
  }
}

function descriptor(need: Need): Deno.PermissionDescriptor {
  switch (need.permission) {
    case "net":
      return { name: "net", host: need.target };
    case "sys":
      return { name: "sys", kind: need.target as Exclude<Deno.SysPermissionDescriptor["kind"], undefined> };
    case "read":
    case "write":
      return { name: need.permission, path: need.target };
  }
}

function natsNeeds(settings: Settings, urls: string): Need[] {
  const { security } = settings.nats;
  const servers = urls.split(",").map((url) => url.trim()).filter((url) => url !== "");
  return [
    ...servers.flatMap((server) => {
      const url = parseUrl(server.includes("://") ? server : `nats://${server}`);
      return url === undefined ? [] : [net("SIE_NATS_URL", `${url.hostname}:${url.port === "" ? "4222" : url.port}`)];
    }),
    ...fileNeeds("SIE_NATS_CREDS_FILE", security.credsFile, "read"),
    ...fileNeeds("SIE_NATS_NKEY_FILE", security.nkeyFile, "read"),
    ...fileNeeds("SIE_NATS_TLS_CA", security.tlsCaFile, "read"),
    ...fileNeeds("SIE_NATS_TLS_CERT", security.tlsClient?.certFile, "read"),
    ...fileNeeds("SIE_NATS_TLS_KEY", security.tlsClient?.keyFile, "read"),
  ];
}

function socketNeeds(setting: string, settings: Settings): Need[] {
  return settings.ipc.socketPaths.flatMap((path) => connectNeeds(setting, path));
}

/** A socket of somebody else. */
function connectNeeds(setting: string, path: string | undefined): Need[] {
  if (path === undefined) return [];
  return [net(setting, `unix:${path}`), ...fileNeeds(setting, path, "read"), ...fileNeeds(setting, path, "write")];
}

/** The socket is bound under a temporary name beside its path and then moved there, so both names and the folder count. */
function localNeeds(path: string): Need[] {
  const setting = "SIE_SIDECAR_LOCAL_SOCKET";
  return [
    net(setting, `unix:${path}`),
    net(setting, `unix:${bindingPath(path)}`),
    ...fileNeeds(setting, dirname(path), "read"),
    ...fileNeeds(setting, dirname(path), "write"),
    { setting, permission: "sys", target: "umask" },
  ];
}

function urlNeeds(setting: string, text: string | undefined): Need[] {
  const url = text === undefined ? undefined : parseUrl(text);
  if (url === undefined) return [];
  const port = url.port !== "" ? url.port : url.protocol === "https:" ? "443" : "80";
  return [net(setting, `${url.hostname}:${port}`)];
}

/** Folders only: the hosts of cloud stores depend on variables that the store itself reads. */
function payloadNeeds(storeUrl: string | undefined): Need[] {
  if (storeUrl === undefined || /^(s3|gs|abfss?|oss):\/\//.test(storeUrl)) return [];
  return fileNeeds("SIE_PAYLOAD_STORE_URL", storeUrl.replace(/^file:\/\//, ""), "read");
}

function fileNeeds(setting: string, path: string | undefined, permission: "read" | "write"): Need[] {
  return path === undefined || path === "" ? [] : [{ setting, permission, target: path }];
}

function net(setting: string, target: string): Need {
  return { setting, permission: "net", target };
}

function hostPort(hostname: string, port: number): string {
  return hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`;
}

function parseUrl(text: string): URL | undefined {
  try {
    const url = new URL(text);
    return url.hostname === "" ? undefined : url;
  } catch {
    return undefined;
  }
}
