/**
 * How the worker proves itself to the broker and trusts it (spec/queue.md 1.7, and beyond it: TLS, credentials files, nkeys). Files
 * are read anew at each connection attempt, so that rotated credentials are picked up. Nothing here prints a secret.
 */
import { type Authenticator, credsAuthenticator, nkeyAuthenticator } from "@nats-io/nats-core";
import { getLogger } from "@logtape/logtape";
import { errorText } from "../runtime/errors.ts";
import type { NatsSecurity } from "../settings/settings.ts";
import type { TlsMaterial } from "./byte_socket.ts";
import { BrokerError } from "./errors.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** Part of the client's options. */
export interface SecurityOptions {
  readonly user?: string;
  readonly pass?: string;
  readonly authenticator?: Authenticator;
}

/** Options that prove who we are. Throws {@link BrokerError} `credentials` when a file cannot be read or is not what it should be. */
export function identityOptions(security: NatsSecurity): SecurityOptions {
  if (security.userPassword !== undefined) {
    return { user: security.userPassword.user, pass: security.userPassword.password };
  }
  if (security.credsFile !== undefined) {
    const content = rereadFile("SIE_NATS_CREDS_FILE", security.credsFile, checkCredentials);
    return { authenticator: credsAuthenticator(content) };
  }
  if (security.nkeyFile !== undefined) {
    const content = rereadFile("SIE_NATS_NKEY_FILE", security.nkeyFile, checkSeed);
    return { authenticator: nkeyAuthenticator(() => checkSeed(content())) };
  }
  return {};
}

/** What TLS is made of. Throws as {@link identityOptions}. */
export function tlsMaterial({ tlsCaFile, tlsClient }: NatsSecurity): TlsMaterial {
  const read = (setting: string, path: string) => textOf(readFile(setting, path));
  return {
    ca: tlsCaFile === undefined ? undefined : read("SIE_NATS_TLS_CA", tlsCaFile),
    client: tlsClient === undefined
      ? undefined
      : { cert: read("SIE_NATS_TLS_CERT", tlsClient.certFile), key: read("SIE_NATS_TLS_KEY", tlsClient.keyFile) },
  };
}

/** Reads a file now, and again at each call; when that fails later, the last good content serves on. */
function rereadFile(setting: string, path: string, check: (content: Uint8Array) => Uint8Array): () => Uint8Array {
  let last = check(readFile(setting, path));
  return () => {
    try {
      last = check(readFile(setting, path));
    } catch (thrown) {
      logger.warn("the earlier content of {setting} is used again: {error}", { setting, error: errorText(thrown) });
    }
    return last;
  };
}

function readFile(setting: string, path: string): Uint8Array {
  try {
    return Deno.readFileSync(path);
  } catch (thrown) {
    throw new BrokerError("credentials", `${setting}: ${path} cannot be read: ${errorText(thrown)}`, { cause: thrown });
  }
}

/** A credentials file holds a JWT and a seed between lines of dashes. */
function checkCredentials(content: Uint8Array): Uint8Array {
  const blocks = textOf(content).match(/-{3,}[^\n]*BEGIN[^\n]*-{3,}\r?\n/g)?.length ?? 0;
  if (blocks < 2 || !canProve(credsAuthenticator(content))) {
    throw new BrokerError("credentials", "SIE_NATS_CREDS_FILE does not hold a JWT and a seed");
  }
  return content;
}

/** The first line of a seed file that looks like a user's seed. */
function checkSeed(content: Uint8Array): Uint8Array {
  const text = /^\s*(SU[A-Z2-7]{40,})\s*$/m.exec(textOf(content))?.[1];
  const seed = new TextEncoder().encode(text);
  if (text === undefined || !canProve(nkeyAuthenticator(seed))) {
    throw new BrokerError("credentials", "SIE_NATS_NKEY_FILE does not hold the seed of a user");
  }
  return seed;
}

/** Whether something can be signed: the client closes a connection for good, without another attempt, when that fails. */
function canProve(authenticator: Authenticator): boolean {
  try {
    authenticator("nonce");
    return true;
  } catch {
    return false;
  }
}

function textOf(content: Uint8Array): string {
  return new TextDecoder().decode(content);
}
