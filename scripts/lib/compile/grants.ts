/**
 * The permissions that a deployment needs, as a list in which each one names the setting that asks for it. The same list is
 * printed, baked into the binary and embedded as its manifest.
 */
import { dirname } from "node:path";
import { bindingPath } from "../../../src/runtime/socket_node.ts";
import { type Need, needsOf } from "../../../src/settings/grants.ts";
import { loadSettings } from "../../../src/settings/load.ts";
import type { Settings } from "../../../src/settings/settings.ts";
import { trainNeeds } from "../../../src/training/needs.ts";
import { loadTrainSettings } from "../../../src/training/settings.ts";

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
/** Where telemetry goes; hosts for every profile. */
const COLLECTOR_VARIABLES = [
  "OTEL_EXPORTER_OTLP_ENDPOINT",
  "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
  "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/** Where the chart puts sockets (runtime.md 8); a generic binary has these and the defaults. */
const CHART_SOCKET_FOLDER = "/var/run/sie";
/** Children of one backend that a generic binary can reach. */
const GENERIC_CHILDREN = 16;
/** Addresses inside a cluster. IPv6 blocks cannot be baked: Deno takes CIDR notation for IPv4 only. */
const CLUSTER_HOSTS = ["*.svc.cluster.local", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];

/**
 * The permissions of a strict binary: what the settings of this deployment need and nothing else. The same code names what is
 * missing when the binary starts (src/settings/grants.ts).
 *
 * @throws GrantError when the variables are no usable settings, or belong to another profile.
 */
export function strictGrants(profile: Profile, deployment: Deployment): Grant[] {
  const grants = new GrantList();
  grants.add("env", true, "settings");
  if (profile === "train") {
    for (const need of trainNeedsOf(deployment)) grants.add(need.permission, checked(need), need.setting);
  } else {
    const settings = settingsOf(profile, deployment.variables);
    for (const need of needsOf(settings)) grants.add(need.permission, checked(need), need.setting);
    for (const variable of COLLECTOR_VARIABLES) {
      const url = deployment.variables[variable];
      if (url) grants.add("net", hostOf(url, variable), variable);
    }
    if (isCloudStore(settings.payload.storeUrl) && (deployment.net ?? []).length === 0) {
      throw new GrantError("SIE_PAYLOAD_STORE_URL names a cloud store: give its hosts with --net HOST:PORT");
    }
  }
  extras(grants, deployment);
  return grants.list();
}

/** Reads the deployment's variables as the program itself will. What no permission depends on may be missing. */
function settingsOf(profile: "nats" | "local", variables: Readonly<Record<string, string>>): Settings {
  const lane = { SIE_POOL: "any", SIE_BUNDLE: "any", SIE_MACHINE_PROFILE: "any" };
  const ingest = variables["SIE_SIDECAR_INGEST"] ?? profile;
  if (profile === "local" && variables["SIE_NATS_URL"]) {
    throw new GrantError("SIE_NATS_URL is set, but the profile local bakes no broker");
  }
  const loaded = loadSettings({
    program: "worker-sidecar",
    args: [],
    environment: { ...lane, ...variables, SIE_SIDECAR_INGEST: ingest },
    newWorkerId: () => "any",
  });
  if (loaded.kind === "text") throw new GrantError((loaded.stderr.split("\n")[0] ?? "").replace(/^error: /i, ""));
  if (loaded.settings.ingest.mode !== profile) {
    throw new GrantError(`SIE_SIDECAR_INGEST is ${loaded.settings.ingest.mode}, but the profile is ${profile}`);
  }
  return loaded.settings;
}

/** What a trainer with the deployment's variables needs. */
function trainNeedsOf(deployment: Deployment): Need[] {
  try {
    return trainNeeds(loadTrainSettings(deployment.variables));
  } catch (thrown) {
    throw new GrantError(thrown instanceof Error ? thrown.message : String(thrown));
  }
}

/** A relative path would mean another place wherever the binary is started. */
function checked(need: Need): string {
  return need.permission === "read" || need.permission === "write" ? absolute(need.target, need.setting) : need.target;
}

/**
 * The permissions of a generic binary, which needs no rebuild per cluster: hosts by wildcard, the folders of the chart, the
 * default sockets. `local` has no wildcard: nothing but loopback, sockets and what the deployment adds.
 */
export function genericGrants(profile: Profile, deployment: Deployment): Grant[] {
  const grants = new GrantList();
  grants.add("env", true, "settings");
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
  if (profile === "train") {
    for (const need of trainNeedsOf(deployment)) grants.add(need.permission, checked(need), need.setting);
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

/**
 * The grants without some of them, each named as `KIND=VALUE`.
 *
 * @throws GrantError when one is not there: leaving out nothing would prove nothing.
 */
export function withoutGrants(grants: readonly Grant[], left: readonly string[]): Grant[] {
  const nameOf = ({ kind, value }: Grant) => `${kind}=${value === true ? "all" : value}`;
  for (const name of left) {
    if (!grants.some((grant) => nameOf(grant) === name)) {
      throw new GrantError(`--without ${name}: it would not be baked`);
    }
  }
  return grants.filter((grant) => !left.includes(nameOf(grant)));
}

function extras(grants: GrantList, deployment: Deployment): void {
  for (const host of deployment.net ?? []) grants.add("net", host, "--net");
  for (const path of deployment.read ?? []) grants.add("read", absolute(path, "--read"), "--read");
  for (const path of deployment.write ?? []) grants.add("write", absolute(path, "--write"), "--write");
}

function isCloudStore(url: string | undefined): boolean {
  return url !== undefined && /^(?:s3|gs|abfss?|oss):\/\//i.test(url);
}

/** `HOST:PORT` of a URL. The text of a URL can hold a password, so messages do not show it. */
function hostOf(text: string, name: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new GrantError(`${name} is not a URL`);
  }
  const port = url.port || { "http:": "80", "https:": "443" }[url.protocol];
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
    this.add("net", `unix:${bindingPath(path)}`, name);
    // The umask closes the gap between bind and chmod. Deno up to 2.6 knows no such permission.
    this.add("sys", "umask", name);
  }

  list(): Grant[] {
    return this.#grants;
  }
}
