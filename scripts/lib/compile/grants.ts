/**
 * The permissions that a deployment needs, as a list in which each one names the setting that asks for it. The same list is
 * baked into the binary, printed, and embedded as its manifest, so that the binary can name the setting whose value lies
 * outside of what was baked (src/settings/manifest.ts).
 */
import { dirname } from "node:path";

/** Kinds of permission that the sidecar uses. There is no `run`. */
export type GrantKind = "net" | "read" | "write" | "env" | "sys" | "ffi";

/** One permission. */
export interface Grant {
  readonly kind: GrantKind;
  /**
   * The host (`HOST:PORT`, `*.DOMAIN`, CIDR block), the socket as `unix:PATH`, the path or the name; true for everything of
   * the kind.
   */
  readonly value: string | true;
  /** The setting that asks for it, or what it is for. */
  readonly for: string;
}

/** What kind of binary is made. */
export type Profile = "nats" | "local" | "train";

/** All profiles, for messages. */
export const PROFILES: readonly Profile[] = ["nats", "local", "train"];

/** The form of the manifest in the binary. */
export interface Manifest {
  /** Version of the program. */
  readonly version: string;
  readonly profile: Profile;
  /** Target triple. */
  readonly target: string;
  /** True when wildcards were baked instead of one deployment's endpoints. */
  readonly generic: boolean;
  readonly grants: readonly Grant[];
}

/** One deployment: the variables that it sets, and what it needs beyond them. */
export interface Deployment {
  readonly variables: Readonly<Record<string, string>>;
  /** More hosts, as in {@link Grant.value}. */
  readonly net?: readonly string[];
  /** More files or folders to read. */
  readonly read?: readonly string[];
  /** More files or folders to write. */
  readonly write?: readonly string[];
}

/** A deployment that cannot be turned into permissions; the message names the setting. */
export class GrantError extends Error {}

const DEFAULT_IPC_SOCKET = "/tmp/sie-ipc.sock";
const DEFAULT_PROBE_PORT = "9095";
const DEFAULT_DEBUG_ADDR = "127.0.0.1:9096";

/** Where the chart puts sockets (runtime.md 8); a generic binary has these and the defaults. */
const CHART_SOCKET_FOLDER = "/var/run/sie";
/** Children of one backend that a generic binary can reach. */
const GENERIC_CHILDREN = 16;
/** Addresses inside a cluster. IPv6 blocks cannot be baked: Deno takes CIDR notation for IPv4 only. */
const CLUSTER_HOSTS = ["*.svc.cluster.local", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];

/** The permissions of a strict binary: this deployment's endpoints and folders and nothing else. */
export function strictGrants(profile: Profile, deployment: Deployment): Grant[] {
  const grants = new GrantList();
  common(grants);
  const at = (name: string) => deployment.variables[name]?.trim() || undefined;
  if (profile === "train") {
    extras(grants, deployment);
    return grants.list();
  }
  const port = at("SIE_WORKER_PROBE_PORT") ?? DEFAULT_PROBE_PORT;
  grants.add("net", `0.0.0.0:${port}`, "SIE_WORKER_PROBE_PORT");
  const debug = at("SIE_DEBUG_ADDR") ?? DEFAULT_DEBUG_ADDR;
  if (debug !== "off") grants.add("net", debug, "SIE_DEBUG_ADDR");

  const several = (at("SIE_IPC_SOCKET_PATHS") ?? "").split(",").map((path) => path.trim()).filter((path) =>
    path !== ""
  );
  const single = at("SIE_IPC_SOCKET_PATH");
  const name = several.length > 0 ? "SIE_IPC_SOCKET_PATHS" : "SIE_IPC_SOCKET_PATH";
  for (const path of several.length > 0 ? several : [single ?? DEFAULT_IPC_SOCKET]) grants.connectSocket(path, name);

  if (profile === "nats") {
    const url = at("SIE_NATS_URL");
    if (url === undefined) throw new GrantError("SIE_NATS_URL is required for the profile nats");
    for (const server of url.split(",")) grants.add("net", hostOf(server, "SIE_NATS_URL", "4222"), "SIE_NATS_URL");
    for (
      const file of [
        "SIE_NATS_CREDS_FILE",
        "SIE_NATS_NKEY_FILE",
        "SIE_NATS_TLS_CA",
        "SIE_NATS_TLS_CERT",
        "SIE_NATS_TLS_KEY",
      ]
    ) {
      const path = at(file);
      if (path !== undefined) grants.add("read", absolute(path, file), file);
    }
    const gateway = at("SIE_GATEWAY_URL");
    if (gateway !== undefined) grants.add("net", hostOf(gateway, "SIE_GATEWAY_URL"), "SIE_GATEWAY_URL");
  } else {
    if (at("SIE_NATS_URL") !== undefined) {
      throw new GrantError("SIE_NATS_URL is set, but the profile local has no broker");
    }
    const socket = at("SIE_SIDECAR_LOCAL_SOCKET");
    if (socket === undefined) throw new GrantError("SIE_SIDECAR_LOCAL_SOCKET is required for the profile local");
    grants.listenSocket(socket, "SIE_SIDECAR_LOCAL_SOCKET");
  }

  for (
    const variable of [
      "SIE_CONFIG_SERVICE_URL",
      "OTEL_EXPORTER_OTLP_ENDPOINT",
      "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
      "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    ]
  ) {
    const url = at(variable);
    if (url !== undefined) grants.add("net", hostOf(url, variable), variable);
  }
  payloadStore(grants, at("SIE_PAYLOAD_STORE_URL"), deployment.net ?? []);
  const tokenizers = at("SIE_TOKENIZER_STAGING_DIR");
  if (tokenizers !== undefined) {
    grants.add("read", absolute(tokenizers, "SIE_TOKENIZER_STAGING_DIR"), "SIE_TOKENIZER_STAGING_DIR");
  }
  const trace = at("SIE_TRACE_FILE");
  if (trace !== undefined) grants.add("write", absolute(trace, "SIE_TRACE_FILE"), "SIE_TRACE_FILE");
  extras(grants, deployment);
  return grants.list();
}

/**
 * The permissions of a generic binary, which needs no rebuild per cluster: hosts by wildcard, the folders of the chart, the
 * default sockets. `local` has no wildcard: nothing but loopback, sockets and what the deployment adds.
 */
export function genericGrants(profile: Profile, deployment: Deployment): Grant[] {
  const grants = new GrantList();
  common(grants);
  if (profile !== "train") {
    grants.add("net", "0.0.0.0", "SIE_WORKER_PROBE_PORT");
    grants.add("net", "127.0.0.1", "SIE_DEBUG_ADDR");
    grants.connectSocket(DEFAULT_IPC_SOCKET, "SIE_IPC_SOCKET_PATH");
    grants.add("read", CHART_SOCKET_FOLDER, "sockets");
    grants.add("write", CHART_SOCKET_FOLDER, "sockets");
    grants.add("net", `unix:${CHART_SOCKET_FOLDER}/ipc.sock`, "SIE_IPC_SOCKET_PATH");
    // A permission for a Unix socket names one path; there are no wildcards.
    for (let child = 0; child < GENERIC_CHILDREN; child++) {
      grants.add("net", `unix:${CHART_SOCKET_FOLDER}/ipc-${child}.sock`, "SIE_IPC_SOCKET_PATHS");
    }
  }
  if (profile === "nats") {
    for (const host of CLUSTER_HOSTS) grants.add("net", host, "hosts inside a cluster");
    grants.add("net", "localhost", "SIE_NATS_URL");
  }
  if (profile === "local") {
    grants.listenSocket(`${CHART_SOCKET_FOLDER}/ingest.sock`, "SIE_SIDECAR_LOCAL_SOCKET");
    const socket = deployment.variables["SIE_SIDECAR_LOCAL_SOCKET"];
    if (socket) grants.listenSocket(socket, "SIE_SIDECAR_LOCAL_SOCKET");
  }
  extras(grants, deployment);
  return grants.list();
}

/** Names that the sidecar binds a Unix socket at before it links it to its place, beside the place itself. */
export function bindingName(path: string): string {
  return `${path}.binding`;
}

function common(grants: GrantList): void {
  grants.add("env", true, "settings");
  // The umask closes the gap between bind and chmod. Deno up to 2.6 knows no such permission.
  grants.add("sys", "umask", "mode of Unix sockets");
}

function extras(grants: GrantList, deployment: Deployment): void {
  for (const host of deployment.net ?? []) grants.add("net", host, "--net");
  for (const path of deployment.read ?? []) grants.add("read", absolute(path, "--read"), "--read");
  for (const path of deployment.write ?? []) grants.add("write", absolute(path, "--write"), "--write");
}

/** A local folder is read; a cloud store's hosts depend on account, region and bucket, so they are given. */
function payloadStore(grants: GrantList, url: string | undefined, hosts: readonly string[]): void {
  if (url === undefined) return;
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(url)?.[1]?.toLowerCase();
  if (scheme === undefined || scheme === "file") {
    const path = scheme === undefined ? url : decodeURIComponent(new URL(url).pathname);
    grants.add("read", absolute(path, "SIE_PAYLOAD_STORE_URL"), "SIE_PAYLOAD_STORE_URL");
  } else if (hosts.length === 0) {
    throw new GrantError(`SIE_PAYLOAD_STORE_URL names a ${scheme} store: give its hosts with --net HOST:PORT`);
  }
}

/** `HOST:PORT` of a URL, in the form of `--allow-net`. The text of a URL can hold a password, so messages do not show it. */
function hostOf(text: string, name: string, defaultPort?: string): string {
  const withScheme = text.includes("://") ? text.trim() : `nats://${text.trim()}`;
  let url: URL;
  try {
    url = new URL(withScheme);
  } catch {
    throw new GrantError(`${name} is not a URL`);
  }
  const port = url.port || defaultPort || { "http:": "80", "https:": "443" }[url.protocol];
  if (url.hostname === "" || port === undefined) throw new GrantError(`${name} needs a host and a port`);
  return `${url.hostname}:${port}`;
}

function absolute(path: string, name: string): string {
  if (!path.startsWith("/")) {
    throw new GrantError(`${name} must be an absolute path to be baked, got ${JSON.stringify(path)}`);
  }
  return path;
}

/** Collects grants; the first of several equal ones stays. */
class GrantList {
  readonly #grants: Grant[] = [];

  add(kind: GrantKind, value: string | true, purpose: string): void {
    if (this.#grants.some((grant) => grant.kind === kind && grant.value === value)) return;
    this.#grants.push({ kind, value, for: purpose });
  }

  /** A socket of somebody else. */
  connectSocket(path: string, name: string): void {
    absolute(path, name);
    this.add("read", path, name);
    this.add("write", path, name);
    this.add("net", `unix:${path}`, name);
  }

  /** A socket of our own: made, linked, protected and removed in its folder. */
  listenSocket(path: string, name: string): void {
    absolute(path, name);
    this.add("read", dirname(path), name);
    this.add("write", dirname(path), name);
    this.add("net", `unix:${path}`, name);
    this.add("net", `unix:${bindingName(path)}`, name);
  }

  list(): Grant[] {
    return this.#grants;
  }
}
