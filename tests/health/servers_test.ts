/** The probe and debug servers on real sockets: raw paths, drain, ports that are taken, providers. */
import assert from "node:assert/strict";
import { DebugEndpoints, startDebugServer } from "../../src/health/debug_server.ts";
import { type HttpListener, rawPath } from "../../src/health/http_listener.ts";
import { startProbeServer } from "../../src/health/probe_server.ts";
import { Readiness } from "../../src/health/readiness.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

class Log {
  readonly errors: [string, Record<string, unknown>][] = [];
  info(): void {}
  error(message: string, fields: Record<string, unknown>): void {
    this.errors.push([message, fields]);
  }
}

async function withServer(server: HttpListener | undefined, use: (port: number) => Promise<void>): Promise<void> {
  assert.ok(server !== undefined);
  try {
    await use(server.port);
  } finally {
    await server.stop();
  }
}

/** Sends `head` as it is and returns the answer as text. */
async function raw(port: number, head: string): Promise<string> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  await connection.write(new TextEncoder().encode(`${head}\r\nHost: h\r\nConnection: close\r\n\r\n`));
  let text = "";
  const decoder = new TextDecoder();
  for (const buffer = new Uint8Array(4096);;) {
    const read = await connection.read(buffer);
    if (read === null) return text;
    text += decoder.decode(buffer.subarray(0, read), { stream: true });
  }
}

Deno.test("paths are taken as they are sent, without their query", async () => {
  const log = new Log();
  const server = startProbeServer({ hostname: "127.0.0.1", port: 0, readiness: () => ({ ready: true }), log });
  await withServer(server, async (port) => {
    const rows: [string, number][] = [
      ["GET /healthz HTTP/1.1", 200],
      ["GET /healthz?x=/readyz HTTP/1.1", 200],
      ["GET /readyz? HTTP/1.1", 200],
      ["GET /x/../healthz HTTP/1.1", 404],
      ["GET //healthz HTTP/1.1", 404],
      ["GET /%68ealthz HTTP/1.1", 404],
      ["GET /healthz%3F HTTP/1.1", 404],
      ["OPTIONS * HTTP/1.1", 404],
      ["PUT /readyz HTTP/1.1", 404],
    ];
    for (const [line, status] of rows) {
      const answer = await raw(port, line);
      assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `), line);
      assert.ok(answer.endsWith(status === 200 ? "\r\n\r\nok" : "\r\n\r\nnot found"), answer);
    }
  });
  assert.deepEqual(log.errors, []);
});

Deno.test("paths of odd URLs", () => {
  assert.equal(rawPath("http://h"), "/");
  assert.equal(rawPath("http://h/a?b#c"), "/a");
  assert.equal(rawPath("http://h/a#c?b"), "/a");
});

Deno.test("the drain is seen until the server stops, also on connections that come during it", async () => {
  const clock = new VirtualClock();
  const readiness = new Readiness(clock, 6000);
  const server = startProbeServer({
    hostname: "127.0.0.1",
    port: 0,
    readiness: () => readiness.state(),
    log: new Log(),
  });
  await withServer(server, async (port) => {
    const ask = async (path: string) => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`);
      return [response.status, await response.text()];
    };
    assert.deepEqual(await ask("/readyz"), [503, "not ready: handshake pending"]);
    readiness.pingSucceeded();
    assert.deepEqual(await ask("/readyz"), [200, "ok"]);
    readiness.drain();
    readiness.pingSucceeded();
    assert.deepEqual(await ask("/readyz"), [503, "not ready: draining"]);
    assert.match(await raw(port, "GET /readyz HTTP/1.1"), /not ready: draining$/);
    assert.deepEqual(await ask("/healthz"), [200, "ok"]);
  });
});

Deno.test("a heartbeat that was once there and is gone counts as lost", async () => {
  const clock = new VirtualClock();
  const readiness = new Readiness(clock, 6000);
  assert.equal(readiness.heartbeatLost, false);
  readiness.pingSucceeded();
  await clock.advance(6000);
  assert.equal(readiness.heartbeatLost, false);
  await clock.advance(1);
  assert.equal(readiness.heartbeatLost, true);
});

Deno.test("a port that is taken is an error in the log, and the process goes on", () => {
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const log = new Log();
  const port = taken.addr.port;
  const server = startProbeServer({ hostname: "127.0.0.1", port, readiness: () => ({ ready: true }), log });
  assert.equal(server, undefined);
  const [[message, fields] = ["", {}]] = log.errors;
  assert.equal(message, "probe server cannot listen; going on without it");
  assert.deepEqual([fields["hostname"], fields["port"]], ["127.0.0.1", port]);
});

Deno.test("debug endpoints show what their providers give", async () => {
  const endpoints = new DebugEndpoints();
  endpoints.provide("/debug/batches", () => ({ running: [], total: 7n }));
  endpoints.provide("/debug/limits", () => {
    throw new Error("not now");
  });
  const log = new Log();
  await withServer(startDebugServer(endpoints, { hostname: "127.0.0.1", port: 0 }, log), async (port) => {
    const ask = async (path: string, method = "GET") => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`, { method });
      assert.equal(response.headers.get("content-type"), "application/json");
      return [response.status, await response.json()];
    };
    assert.deepEqual(await ask("/debug/batches"), [200, { running: [], total: 7 }]);
    assert.deepEqual(await ask("/debug/limits"), [500, { error: "not now" }]);
    const known = { error: "not found", endpoints: ["/debug/batches", "/debug/limits"] };
    assert.deepEqual(await ask("/debug/ready"), [404, known]);
    assert.deepEqual(await ask("/"), [404, known]);
    assert.deepEqual(await ask("/debug/batches", "POST"), [405, { error: "only GET is answered" }]);
    endpoints.provide("/debug/ready", () => undefined);
    assert.deepEqual(await ask("/debug/ready"), [200, null]);
  });
});
