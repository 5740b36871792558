/** Connecting to the broker. This is the only file that chooses a transport: another one would be a change of one line. */
import { type ConnectionOptions, errors } from "@nats-io/nats-core";
import { NatsConnectionImpl, setTransportFactory } from "@nats-io/nats-core/internal";
import { getLogger } from "@logtape/logtape";
import { ABORTED, unlessAborted } from "../runtime/abort.ts";
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { redactUrl } from "../runtime/redact.ts";
import type { NatsSecurity } from "../settings/settings.ts";
import { BrokerConnection } from "./broker_connection.ts";
import { BrokerError } from "./errors.ts";
import { identityOptions, tlsMaterial } from "./nats_security.ts";
import { NatsTransport } from "./nats_transport.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** Prefix of the inboxes a worker may listen to; with another one the broker refuses the first request (spec/queue.md 1.7). */
export const INBOX_PREFIX = "_INBOX_WORKER";

/** How to connect. */
export interface BrokerOptions {
  /** `SIE_NATS_URL`: one URL or a comma list. User info in it is not used and not shown. */
  readonly url: string;
  readonly security: NatsSecurity;
  readonly clock: Clock;
  /** Name of this client, as the broker shows it. */
  readonly name: string;
  /** Ends the attempts. */
  readonly signal?: AbortSignal;
  /** How long the first connection is tried for when nobody answers, in milliseconds. Default 5000, at most 30000. */
  readonly patienceMs?: number;
  /**
   * Whether servers that the cluster tells of are dialled too. Default false: a strict binary may only dial the hosts of its own
   * configuration, and the client gives up for good when it is not allowed to.
   */
  readonly followCluster?: boolean;
}

const NEVER = new AbortController().signal;

const DEFAULT_PATIENCE_MS = 5_000;
const LONGEST_PATIENCE_MS = 30_000;
const RETRY_MS = 500;
const DIAL_TIMEOUT_MS = 5_000;
/** A server that leaves three of these unanswered is taken for dead. */
const PING_INTERVAL_MS = 2_000;
const PINGS_UNANSWERED = 2;
const RECONNECT_WAIT_MS = 500;

/**
 * Makes the connection. Once made it is kept up for ever; the first attempt fails when nobody answers within the patience, and at
 * once when the broker refuses the user or its certificate cannot be trusted.
 *
 * @throws BrokerError `connect` or `credentials`
 */
export async function connectToBroker(options: BrokerOptions): Promise<BrokerConnection> {
  const { clock, signal = NEVER } = options;
  const shown = redactUrl(options.url);
  const patience = Math.min(options.patienceMs ?? DEFAULT_PATIENCE_MS, LONGEST_PATIENCE_MS);
  const giveUpAt = clock.now() + patience;
  const plan = connectionPlan(options);
  let latest: NatsTransport | undefined;
  // Certificates are read anew for each attempt of the client, those after a loss included: they may have been rotated.
  setTransportFactory({ factory: () => latest = new NatsTransport(tlsMaterial(options.security)) });
  for (;;) {
    try {
      const nats = await unlessAborted(NatsConnectionImpl.connect(plan), signal, { late: (nats) => void nats.close() });
      if (nats === ABORTED) throw new BrokerError("connect", "told to stop before it answered");
      logger.info("connected to {server} of {url}", { server: nats.getServer(), url: shown });
      return new BrokerConnection(nats, clock);
    } catch (thrown) {
      if (isLasting(thrown) || clock.now() + RETRY_MS > giveUpAt || !(await sleep(clock, RETRY_MS, signal))) {
        const text = withoutSecrets(errorText(latest?.closeError ?? thrown), options);
        throw new BrokerError("connect", `cannot connect to ${shown}: ${text}`, { cause: thrown });
      }
    }
  }
}

function connectionPlan(options: BrokerOptions): ConnectionOptions {
  const servers = options.url.split(",").map((server) => server.trim()).filter((server) => server !== "");
  const { tlsCaFile, tlsClient } = options.security;
  const wantTls = tlsCaFile !== undefined || tlsClient !== undefined || servers.some((server) => /^tls:/i.test(server));
  return {
    servers: servers.map(withoutUserInfo),
    name: options.name,
    inboxPrefix: INBOX_PREFIX,
    ...identityOptions(options.security),
    // Only whether TLS is a must; what it is made of is the transport's.
    ...(wantTls ? { tls: {} } : {}),
    // Host-scoped net permission does not cover name resolution; dialling by name does it by itself.
    resolve: false,
    ignoreClusterUpdates: options.followCluster !== true,
    timeout: DIAL_TIMEOUT_MS,
    pingInterval: PING_INTERVAL_MS,
    maxPingOut: PINGS_UNANSWERED,
    reconnect: true,
    maxReconnectAttempts: -1,
    reconnectTimeWait: RECONNECT_WAIT_MS,
    reconnectJitter: RECONNECT_WAIT_MS,
    reconnectJitterTLS: RECONNECT_WAIT_MS,
    // A broker that refuses us while its configuration is being changed is asked again.
    ignoreAuthErrorAbort: true,
    noAsyncTraces: true,
  };
}

/** Failures that no second attempt changes: a refused user, an untrusted certificate, a wrong option. */
function isLasting(thrown: unknown): boolean {
  return thrown instanceof errors.AuthorizationError || thrown instanceof errors.InvalidArgumentError ||
    thrown instanceof BrokerError || thrown instanceof Deno.errors.NotCapable || isTlsFailure(thrown);
}

function isTlsFailure(thrown: unknown): boolean {
  return thrown instanceof Error && /certificate|altnames|UnknownIssuer|does not support 'tls'/i.test(thrown.message);
}

function withoutUserInfo(server: string): string {
  return server.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/i, "$1");
}

/** An address that cannot be read is quoted by its error, with all that is in it; a server's text might echo a password. */
function withoutSecrets(text: string, options: BrokerOptions): string {
  if (/invalid url/i.test(text)) return "one of the addresses cannot be read";
  const password = options.security.userPassword?.password ?? "";
  return password === "" ? text : text.replaceAll(password, "<redacted>");
}
