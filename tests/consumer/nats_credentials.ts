/** Operator, account and user with signed tokens, made afresh for each test: what a credentials file and its server need. */
import { nkeys } from "@nats-io/nats-core";

/** A user's credentials file and the server configuration that accepts it. */
export interface IssuedCredentials {
  readonly credentials: string;
  readonly seed: string;
  readonly serverConfig: string;
}

type Signer = ReturnType<typeof nkeys.createOperator>;

/** Issues credentials. */
export function issueCredentials(): IssuedCredentials {
  const operator = nkeys.createOperator(), account = nkeys.createAccount(), user = nkeys.createUser();
  const without = { subs: -1, data: -1, payload: -1 };
  const operatorToken = sign(operator, operator, "test operator", { type: "operator", version: 2 });
  const accountToken = sign(operator, account, "test account", {
    type: "account",
    version: 2,
    limits: { ...without, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 },
    default_permissions: { pub: {}, sub: {} },
  });
  const userToken = sign(account, user, "worker", { type: "user", version: 2, pub: {}, sub: {}, ...without });
  const seed = new TextDecoder().decode(user.getSeed());
  return {
    seed,
    credentials: `-----BEGIN NATS USER JWT-----\n${userToken}\n------END NATS USER JWT------\n\n` +
      `-----BEGIN USER NKEY SEED-----\n${seed}\n------END USER NKEY SEED------\n`,
    serverConfig: `operator: ${operatorToken}\nresolver: MEMORY\n` +
      `resolver_preload: { ${account.getPublicKey()}: ${accountToken} }`,
  };
}

function sign(issuer: Signer, subject: Signer, name: string, nats: object): string {
  const part = (value: object) => base64Url(new TextEncoder().encode(JSON.stringify(value)));
  const claims = {
    jti: crypto.randomUUID(),
    iat: Math.floor(Date.now() / 1000),
    iss: issuer.getPublicKey(),
    name,
    sub: subject.getPublicKey(),
    nats,
  };
  const unsigned = `${part({ typ: "JWT", alg: "ed25519-nkey" })}.${part(claims)}`;
  return `${unsigned}.${base64Url(issuer.sign(new TextEncoder().encode(unsigned)))}`;
}

function base64Url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
