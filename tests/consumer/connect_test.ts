/** Connecting to real brokers: user and password, credentials, nkeys, TLS; what is refused, how, and that no secret is told. */
import assert from "node:assert/strict";
import { nkeys } from "@nats-io/nats-core";
import type { BrokerConnection } from "../../src/consumer/broker_connection.ts";
import { type BrokerOptions, connectToBroker } from "../../src/consumer/connect.ts";
import { BrokerError } from "../../src/consumer/errors.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import type { NatsSecurity } from "../../src/settings/settings.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { eventually, freePort, GaveUp, TestFolder } from "../harness/process.ts";
import { issueCredentials } from "./nats_credentials.ts";

const NO_SECURITY: NatsSecurity = {
  userPassword: undefined,
  credsFile: undefined,
  nkeyFile: undefined,
  tlsCaFile: undefined,
  tlsClient: undefined,
};

const TLS = fromFileUrl(new URL("../fixtures/tls", import.meta.url));
/** A client certificate on a connection that began in the clear: `node:tls` can do that from Deno 2.9 on. */
const clientCertificatesWork = Number(Deno.version.deno.split(".")[1]) >= 9;

async function withServer(
  config: string,
  body: (server: NatsServer, folder: TestFolder) => Promise<void>,
): Promise<void> {
  using folder = new TestFolder();
  await using server = await NatsServer.start({ folder: folder.path, config, jetStream: false });
  await body(server, folder);
}

function connect(url: string, security: Partial<NatsSecurity> = {}, more: Partial<BrokerOptions> = {}) {
  return connectToBroker({
    url,
    security: { ...NO_SECURITY, ...security },
    clock: systemClock,
    name: "test",
    patienceMs: 0,
    ...more,
  });
}

async function works(connecting: Promise<BrokerConnection>): Promise<void> {
  const connection = await connecting;
  await connection.flush();
  assert.equal(connection.state, "connected");
  await connection.close();
  assert.equal(connection.state, "closed");
}

async function refused(connecting: Promise<BrokerConnection>, text: RegExp): Promise<string> {
  const error = await connecting.then(() => undefined, (thrown: unknown) => thrown);
  assert.ok(error instanceof BrokerError, `not refused, or otherwise: ${error}`);
  assert.match(error.message, text);
  return error.message;
}

const USERS = `authorization { users: [ { user: "sie-worker", password: "pass word/1" } ] }`;

Deno.test("user and password; a wrong one is refused at once and not shown", () =>
  withServer(USERS, async (server) => {
    await works(connect(server.url, { userPassword: { user: "sie-worker", password: "pass word/1" } }));
    const wrong = await refused(
      connect(server.url, { userPassword: { user: "sie-worker", password: "hunter22" } }, { patienceMs: 30_000 }),
      /cannot connect to nats:\/\/127\.0\.0\.1:\d+: .*authorization/i,
    );
    assert.ok(!wrong.includes("hunter22"));
  }));

Deno.test("user info in the URL is neither used nor shown", () =>
  withServer(USERS, async (server) => {
    const url = `nats://sie-worker:s3cret@127.0.0.1:${server.port}`;
    await works(connect(url, { userPassword: { user: "sie-worker", password: "pass word/1" } }));
    const text = await refused(connect(url), /nats:\/\/<redacted>@127\.0\.0\.1/);
    assert.ok(!text.includes("s3cret"));
  }));

Deno.test("an address that cannot be read is refused without its password", async () => {
  for (const user of ["u:p/s3cret", "u:s3cret,x", "u:,s3cret", "u:s3cret/,/x", "u:p@s3cret"]) {
    const text = await refused(connect(`nats://${user}@127.0.0.1:${freePort()}`), /cannot connect to nats:/);
    assert.doesNotMatch(text, /s3cret/, user);
  }
});

Deno.test("several servers: the first that answers", () =>
  withServer("", async (server) => {
    await works(connect(`nats://127.0.0.1:${freePort()}, ${server.url}`));
  }));

Deno.test("nobody answers: a clear failure, after the patience and not before", async () => {
  const url = `nats://127.0.0.1:${freePort()}`;
  await refused(connect(url), /cannot connect to nats:\/\/127\.0\.0\.1:\d+: .*refused/i);
  const started = performance.now();
  await refused(connect(url, {}, { patienceMs: 1_200 }), /refused/i);
  assert.ok(performance.now() - started >= 1_000, "gave up before its patience was over");
});

Deno.test("a broker that comes up within the patience is found", async () => {
  using folder = new TestFolder();
  const port = freePort();
  const connecting = connect(`nats://127.0.0.1:${port}`, {}, { patienceMs: 30_000 });
  await using server = await NatsServer.start({ folder: folder.path, port, jetStream: false });
  assert.equal(server.port, port);
  await works(connecting);
});

Deno.test("credentials file", async (t) => {
  const issued = issueCredentials();
  await withServer(issued.serverConfig, async (server, folder) => {
    const credsFile = folder.file("worker.creds");
    await Deno.writeTextFile(credsFile, issued.credentials);
    await t.step("accepted", () => works(connect(server.url, { credsFile })));
    await t.step("somebody else's", async () => {
      await Deno.writeTextFile(folder.file("other.creds"), issueCredentials().credentials);
      const text = await refused(connect(server.url, { credsFile: folder.file("other.creds") }), /authorization/i);
      assert.ok(!text.includes(issued.seed));
    });
    await t.step("not one", async () => {
      await Deno.writeTextFile(folder.file("no.creds"), issued.seed);
      const text = await refused(
        connect(server.url, { credsFile: folder.file("no.creds") }),
        /SIE_NATS_CREDS_FILE does not hold a JWT and a seed/,
      );
      assert.ok(!text.includes(issued.seed));
    });
    await t.step("missing", async () => {
      await refused(
        connect(server.url, { credsFile: folder.file("none") }),
        /SIE_NATS_CREDS_FILE: .*none cannot be read/,
      );
    });
  });
});

Deno.test("nkey file", async () => {
  const user = nkeys.createUser();
  await withServer(`authorization { users: [ { nkey: ${user.getPublicKey()} } ] }`, async (server, folder) => {
    const nkeyFile = folder.file("worker.nk");
    await Deno.writeTextFile(nkeyFile, `# the worker\n${new TextDecoder().decode(user.getSeed())}\n`);
    await works(connect(server.url, { nkeyFile }));
    await Deno.writeTextFile(nkeyFile, new TextDecoder().decode(nkeys.createUser().getSeed()));
    await refused(connect(server.url, { nkeyFile }), /authorization/i);
    await Deno.writeTextFile(nkeyFile, user.getPublicKey());
    await refused(connect(server.url, { nkeyFile }), /SIE_NATS_NKEY_FILE does not hold the seed of a user/);
  });
});

Deno.test("credentials that are broken when they are read again: the earlier ones serve on", async (t) => {
  const issued = issueCredentials();
  // Looks like a seed, but its checksum is wrong.
  const spoilt = (seed: string) => seed.replace(/.{4}$/, (end) => end === "AAAA" ? "BBBB" : "AAAA");
  const user = nkeys.createUser();
  const kinds = {
    creds: {
      config: issued.serverConfig,
      good: issued.credentials,
      broken: issued.credentials.replace(issued.seed, spoilt(issued.seed)),
      security: (path: string) => ({ credsFile: path }),
    },
    nkey: {
      config: `authorization { users: [ { nkey: ${user.getPublicKey()} } ] }`,
      good: new TextDecoder().decode(user.getSeed()),
      broken: spoilt(new TextDecoder().decode(user.getSeed())),
      security: (path: string) => ({ nkeyFile: path }),
    },
  };
  for (const [kind, { config, good, broken, security }] of Object.entries(kinds)) {
    await t.step(kind, async () => {
      using folder = new TestFolder();
      await using first = await NatsServer.start({ folder: folder.path, config, jetStream: false });
      const path = folder.file("secret");
      await Deno.writeTextFile(path, good);
      const connection = await connect(first.url, security(path));
      assert.notEqual(broken, good);
      await Deno.writeTextFile(path, broken);
      await using second = await first.restart();
      assert.equal(second.port, first.port);
      await eventually("it is connected again", () => {
        if (connection.state === "closed") throw new GaveUp("the connection is closed for good");
        return connection.connected;
      });
      await connection.flush();
      await connection.close();
      // What is broken from the start is said.
      await refused(connect(second.url, security(path)), /SIE_NATS_(?:CREDS|NKEY)_FILE does not hold/);
    });
  }
});

const TLS_SERVER = `tls { cert_file: "${TLS}/server.pem", key_file: "${TLS}/server.key", ca_file: "${TLS}/ca.pem" }`;
const TLS_MUTUAL = `tls {
  cert_file: "${TLS}/server.pem", key_file: "${TLS}/server.key", ca_file: "${TLS}/ca.pem", verify: true }`;
const TLS_OTHER_NAME = `tls { cert_file: "${TLS}/other.pem", key_file: "${TLS}/other.key", ca_file: "${TLS}/ca.pem" }`;
const CA = { tlsCaFile: `${TLS}/ca.pem` };
const CLIENT = { tlsClient: { certFile: `${TLS}/client.pem`, keyFile: `${TLS}/client.key` } };

Deno.test("TLS with the authority that is trusted", () =>
  withServer(TLS_SERVER, async (server) => {
    const url = `tls://localhost:${server.port}`;
    await works(connect(url, CA));
    // The server asks for it, whatever the URL says.
    await works(connect(`nats://localhost:${server.port}`, CA));
    await works(connect(`tls://127.0.0.1:${server.port}`, CA));
    await refused(connect(url), /certificate/i);
    await refused(connect(`nats://localhost:${server.port}`), /certificate/i);
  }));

Deno.test("TLS: a certificate for another name is refused, by each name it is dialled with", () =>
  withServer(TLS_OTHER_NAME, async (server) => {
    for (const host of ["localhost", "127.0.0.1"]) {
      await refused(connect(`tls://${host}:${server.port}`, CA), /altnames|certificate/i);
    }
  }));

Deno.test({
  name: "TLS with a client certificate",
  ignore: !clientCertificatesWork,
  fn: () =>
    withServer(TLS_MUTUAL, async (server) => {
      const url = `tls://localhost:${server.port}`;
      await works(connect(url, { ...CA, ...CLIENT }));
      await refused(connect(url, CA), /cannot connect to .*certificate/i);
      await refused(
        connect(url, { ...CA, tlsClient: { certFile: `${TLS}/client.pem`, keyFile: `${TLS}/none.key` } }),
        /SIE_NATS_TLS_KEY: .*cannot be read/,
      );
    }),
});

Deno.test("tls:// to a broker without TLS is refused, never spoken in the clear", () =>
  withServer("", async (server) => {
    await refused(connect(`tls://127.0.0.1:${server.port}`, CA), /does not support 'tls'/);
  }));
