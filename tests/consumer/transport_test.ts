/** Servers that are none, or not well: the transport says so, holds nothing back and leaves nothing open. */
import assert from "node:assert/strict";
import { connectToBroker } from "../../src/consumer/connect.ts";
import { BrokerError } from "../../src/consumer/errors.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { settingsFor } from "./support.ts";

/** A TCP server that does to each connection what the test says. */
async function withServer(
  serve: (connection: Deno.TcpConn) => Promise<void>,
  body: (url: string) => Promise<void>,
): Promise<void> {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const connections = new Set<Deno.TcpConn>();
  const tasks: Promise<void>[] = [];
  const accepting = (async () => {
    for await (const connection of listener) {
      connections.add(connection);
      tasks.push(serve(connection).catch(() => {}));
    }
  })();
  try {
    await body(`nats://127.0.0.1:${listener.addr.port}`);
  } finally {
    listener.close();
    await accepting;
    for (const connection of connections) {
      try {
        connection.close();
      } catch {
        // It is closed.
      }
    }
    await Promise.all(tasks);
  }
}

async function refused(url: string, text: RegExp): Promise<void> {
  const connecting = connectToBroker({
    url,
    security: settingsFor().nats.security,
    clock: systemClock,
    name: "test",
    patienceMs: 0,
  });
  await assert.rejects(connecting, (error: unknown) => {
    assert.ok(error instanceof BrokerError, String(error));
    assert.match(error.message, text);
    return true;
  });
}

const say = (text: string) => async (connection: Deno.TcpConn) => {
  await connection.write(new TextEncoder().encode(text));
};

Deno.test("something that speaks, but not NATS", () =>
  withServer(say("HTTP/1.1 400 Bad Request\r\n\r\n"), (url) => refused(url, /this is no NATS server: it says "HTTP/)));

Deno.test("a first line that is no JSON", () =>
  withServer(say("INFO {nonsense\r\n"), (url) => refused(url, /this is no NATS server/)));

Deno.test("a server that closes at once", () =>
  withServer(
    (connection) => Promise.resolve(connection.close()),
    (url) => refused(url, /closed the connection before/),
  ));

Deno.test("a first line without an end is cut off, not collected", () =>
  withServer(async (connection) => {
    const part = new TextEncoder().encode("INFO " + "x".repeat(60_000));
    for (let i = 0; i < 40; i++) await connection.write(part);
  }, (url) => refused(url, /first line is longer than 1048576 bytes/)));

Deno.test("a server that greets and then says nonsense", () =>
  withServer(async (connection) => {
    await say('INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true,"proto":1}\r\n')(
      connection,
    );
    await say("WHAT IS THIS\r\n")(connection);
  }, (url) => refused(url, /cannot connect/)));

const GREETING =
  'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true,"proto":1,"tls_required":true}';

Deno.test("what comes in the clear behind the first line is never taken for something said under TLS", () =>
  withServer(
    say(`${GREETING}\r\nMSG work_cancel.gw-1.somebody-elses 1 0\r\n\r\n`),
    (url) => refused(url, /said more than its first line before the connection is encrypted/),
  ));
