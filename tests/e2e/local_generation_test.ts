/** Generations through the local socket of the program as users start it, with the demonstration's backend behind it. */
import assert from "node:assert/strict";
import { LocalIngestClient } from "../../src/client/client.ts";
import { LocalIngestError } from "../../src/client/errors.ts";
import type { GenerationChunk, GenerationStream } from "../../src/client/generation_stream.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { accepts, eventually, freePort, ManagedProcess, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";
import { LANE } from "./rig.ts";

const ROOT = fromFileUrl(new URL("../../", import.meta.url));
/** A generation that would run for about a minute. */
const LONG = { model: "demo/markov", parameters: { prompt: "Once", max_new_tokens: 4000 } };

/** Folder, backend and sidecar of one test. Use it with `await using`. */
class Setup implements AsyncDisposable {
  readonly folder = new TestFolder();
  readonly debugPort = freePort();
  backend: ManagedProcess;
  sidecar: Sidecar;

  private constructor() {
    this.backend = this.#startBackend();
    this.sidecar = Sidecar.launch({
      env: {
        ...LANE,
        SIE_SIDECAR_INGEST: "local",
        SIE_SIDECAR_LOCAL_SOCKET: this.folder.file("ingest.sock"),
        SIE_IPC_SOCKET_PATH: this.folder.file("ipc.sock"),
        SIE_DEBUG_ADDR: `127.0.0.1:${this.debugPort}`,
      },
    });
  }

  static async start(): Promise<Setup> {
    const setup = new Setup();
    try {
      await setup.sidecar.untilReady();
      return setup;
    } catch (thrown) {
      await setup[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  #startBackend(): ManagedProcess {
    const socket = this.folder.file("ipc.sock");
    const isNew = Number(Deno.version.deno.split(".")[1]) >= 9;
    return ManagedProcess.start({
      name: "demo backend",
      command: [
        ...[Deno.execPath(), "run", "--quiet", "--no-prompt", `--config=${ROOT}/deno.json`],
        ...[`--allow-read=${ROOT},${this.folder.path}`, `--allow-write=${this.folder.path}`],
        ...(isNew ? [`--allow-net=unix:${socket}`] : []),
        ...[`${ROOT}/demo/backend/main.ts`, "--socket", socket],
      ],
    });
  }

  /** Kills the backend and starts it anew. */
  async replaceBackend(): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
    await Deno.remove(this.folder.file("ipc.sock"));
    this.backend = this.#startBackend();
    await this.backend.until("it accepts", () => accepts(this.folder.file("ipc.sock")));
  }

  client(): LocalIngestClient {
    return new LocalIngestClient({
      socketPath: this.folder.file("ingest.sock"),
      route: { pool: "default", machineProfile: "l4", bundle: "default" },
    });
  }

  /** The first chunk of a long generation, and the rest of it; started again while the model is being loaded. */
  async begin(client: LocalIngestClient): Promise<[GenerationStream, AsyncGenerator<GenerationChunk>]> {
    return await eventually("the model is loaded", async () => {
      const stream = client.generate(LONG);
      const chunks = stream[Symbol.asyncIterator]();
      assert.equal((await chunks.next()).done, false);
      return [stream, chunks];
    });
  }

  /** Connections to the local socket. */
  async connections(): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${this.debugPort}/debug/ready`);
    const { local } = await response.json() as { local: { connections: number } };
    return local.connections;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sidecar[Symbol.asyncDispose]();
    await this.backend[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}

async function textOf(chunks: AsyncIterable<GenerationChunk>): Promise<[string, string | undefined]> {
  let text = "", reason: string | undefined;
  for await (const chunk of chunks) {
    text += chunk.textDelta;
    reason = chunk.finishReason;
  }
  return [text, reason];
}

function failureOf(next: Promise<unknown>): Promise<LocalIngestError> {
  return next.then(() => assert.fail("it went on"), (thrown: unknown) => {
    assert.ok(thrown instanceof LocalIngestError, String(thrown));
    return thrown;
  });
}

/** The error that ends a stream, however many chunks come before it. */
async function endOf(chunks: AsyncGenerator<GenerationChunk>): Promise<LocalIngestError> {
  return await failureOf(textOf(chunks));
}

Deno.test("local: text arrives as it is made, and a cancel ends it in order", async () => {
  await using setup = await Setup.start();
  using client = setup.client();
  const [stream, chunks] = await setup.begin(client);
  await chunks.next();
  await stream.cancel();
  const [, reason] = await textOf(chunks);
  assert.equal(reason, "cancelled");
  const short = client.generate({ model: "demo/markov", parameters: { prompt: "Once", max_new_tokens: 5 } });
  const [text, end] = await textOf(short);
  assert.ok(text.length > 0);
  assert.ok(end === "stop" || end === "length", end);
  await setup.sidecar.stop();
});

Deno.test("local: a client that goes away ends the generation at the backend", async () => {
  await using setup = await Setup.start();
  using client = setup.client();
  const [, chunks] = await setup.begin(client);
  assert.equal(await setup.connections(), 1);
  await chunks.return(undefined);
  // The connection is kept until the backend has ended its stream, at most 5 s.
  await eventually("the backend has stopped", async () => await setup.connections() === 0, 4000);
  await setup.sidecar.stop();
});

Deno.test("local: a backend that dies in mid-stream is told to the caller, and the next one serves", async () => {
  await using setup = await Setup.start();
  using client = setup.client();
  const [, chunks] = await setup.begin(client);
  const [failure] = await Promise.all([endOf(chunks), setup.replaceBackend()]);
  assert.equal(failure.reason, "TRANSPORT_FAILURE", failure.message);
  const [, again] = await setup.begin(client);
  await again.return(undefined);
  await setup.sidecar.stop();
});

Deno.test("local: SIGTERM in mid-stream tells the caller and ends cleanly", async () => {
  await using setup = await Setup.start();
  using client = setup.client();
  const [, chunks] = await setup.begin(client);
  const [failure] = await Promise.all([endOf(chunks), setup.sidecar.stop("SIGTERM")]);
  assert.equal(failure.message, "DISCONNECTED: the sidecar is shutting down");
  await assert.rejects(Deno.lstat(setup.folder.file("ingest.sock")), Deno.errors.NotFound);
});

Deno.test("local: a deadline ends a generation with TIMEOUT", async () => {
  await using setup = await Setup.start();
  using client = setup.client();
  const [, warm] = await setup.begin(client);
  await warm.return(undefined);
  const failure = await failureOf(textOf(client.generate({ ...LONG, timeoutMs: 200 })));
  assert.equal(failure.message, "TIMEOUT: generation timed out after 200ms");
  await setup.sidecar.stop();
});
