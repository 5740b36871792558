/** The program while it starts: told to stop before it has begun, and what it says when it cannot begin. */
import assert from "node:assert/strict";
import { NatsServer } from "../harness/nats_server.ts";
import { freePort, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";

const LANE = { SIE_POOL: "default", SIE_BUNDLE: "default", SIE_MACHINE_PROFILE: "l4", SIE_WORKER_ID: "worker-start" };

/** A server that takes connections and says nothing. */
class SilentServer implements Disposable {
  readonly #listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly #connections: Deno.Conn[] = [];
  readonly #first = Promise.withResolvers<void>();

  constructor() {
    this.#accept();
  }

  get url(): string {
    return `nats://127.0.0.1:${this.#listener.addr.port}`;
  }

  /** Resolves when somebody has connected. */
  get connected(): Promise<void> {
    return this.#first.promise;
  }

  [Symbol.dispose](): void {
    this.#listener.close();
    for (const connection of this.#connections) connection.close();
  }

  async #accept(): Promise<void> {
    for await (const connection of this.#listener) {
      this.#connections.push(connection);
      this.#first.resolve();
    }
  }
}

Deno.test("SIGTERM while the broker does not answer: a clean end, not an error", async () => {
  using folder = new TestFolder();
  using broker = new SilentServer();
  await using sidecar = Sidecar.launch({
    env: { ...LANE, SIE_NATS_URL: broker.url, SIE_IPC_SOCKET_PATH: folder.file("ipc.sock"), SIE_LOG_FORMAT: "text" },
  });
  await broker.connected;
  await sidecar.untilHealthy();
  await sidecar.stop("SIGTERM");
  assert.match(sidecar.process.output(), /stopped while it was starting/);
  assert.doesNotMatch(sidecar.process.output(), /exited with error/);
});

Deno.test("a broker without JetStream is a clear failure with exit code 1", async () => {
  using folder = new TestFolder();
  await using broker = await NatsServer.start({ folder: folder.path, jetStream: false });
  await using sidecar = Sidecar.launch({
    env: { ...LANE, SIE_NATS_URL: broker.url, SIE_IPC_SOCKET_PATH: folder.file("ipc.sock"), SIE_LOG_FORMAT: "text" },
  });
  assert.equal((await sidecar.process.end()).code, 1);
  assert.match(sidecar.process.output(), /exited with error: .*jetstream/i);
});

Deno.test("a trace file that cannot be opened is named with its variable", async () => {
  using folder = new TestFolder();
  const trace = folder.file("none/trace.jsonl");
  await using sidecar = Sidecar.launch({
    env: {
      ...LANE,
      SIE_SIDECAR_INGEST: "local",
      SIE_SIDECAR_LOCAL_SOCKET: folder.file("ingest.sock"),
      SIE_IPC_SOCKET_PATH: folder.file("ipc.sock"),
      SIE_TRACE_FILE: trace,
      SIE_LOG_FORMAT: "text",
    },
  });
  assert.equal((await sidecar.process.end()).code, 1);
  assert.ok(
    sidecar.process.output().includes(`SIE_TRACE_FILE: ${trace} cannot be opened`),
    sidecar.process.output(),
  );
});

Deno.test("a path that is taken by a program that lives is said, and that program keeps it", async () => {
  using folder = new TestFolder();
  const path = folder.file("ingest.sock");
  using living = Deno.listen({ transport: "unix", path });
  const before = Deno.lstatSync(path).ino;
  await using sidecar = Sidecar.launch({
    env: {
      ...LANE,
      SIE_SIDECAR_INGEST: "local",
      SIE_SIDECAR_LOCAL_SOCKET: path,
      SIE_IPC_SOCKET_PATH: folder.file("ipc.sock"),
      SIE_WORKER_PROBE_PORT: String(freePort()),
      SIE_LOG_FORMAT: "text",
    },
  });
  assert.equal((await sidecar.process.end()).code, 1);
  assert.ok(sidecar.process.output().includes(`another process listens at ${path}`), sidecar.process.output());
  assert.equal(Deno.lstatSync(path).ino, before);
  assert.equal(living.addr.path, path);
});
