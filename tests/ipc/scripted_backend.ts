/** A backend of a test's own: a Unix socket whose connections a script serves, byte by byte. */
import { BACKEND_FRAMES, FrameReader, writeAll } from "../../src/wire/frames.ts";
import { decodeNotation } from "../harness/notation.ts";
import { TestFolder } from "../harness/process.ts";

/** A request as it came. */
export interface ReceivedRequest {
  readonly method: string;
  readonly requestId: string;
  readonly body: unknown;
  /** The frame without its length. */
  readonly bytes: Uint8Array;
}

/** One accepted connection. */
export class ServerConnection {
  /** Counted from 1. */
  readonly number: number;
  readonly #stream: Deno.UnixConn;
  readonly #reader: FrameReader;
  readonly #received: (request: ReceivedRequest) => void;
  #closed = false;

  constructor(stream: Deno.UnixConn, number: number, received: (request: ReceivedRequest) => void) {
    this.number = number;
    this.#stream = stream;
    this.#received = received;
    this.#reader = new FrameReader(stream, BACKEND_FRAMES);
  }

  /** The next request; undefined when the client has closed the connection. */
  async request(): Promise<ReceivedRequest | undefined> {
    let bytes: Uint8Array | undefined;
    try {
      bytes = await this.#reader.readFrame();
    } catch (thrown) {
      if (this.#closed || isDisconnect(thrown)) return undefined;
      throw thrown;
    }
    if (bytes === undefined) return undefined;
    const envelope = decodeNotation(bytes) as { method: string; request_id: string; body: unknown };
    const request = { method: envelope.method, requestId: envelope.request_id, body: envelope.body, bytes };
    this.#received(request);
    return request;
  }

  /** Sends bytes as they are. Nothing happens when the client is gone. */
  async send(bytes: Uint8Array): Promise<void> {
    try {
      await writeAll(this.#stream, bytes);
    } catch (thrown) {
      if (!this.#closed && !isDisconnect(thrown)) throw thrown;
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stream.close();
  }
}

function isDisconnect(thrown: unknown): boolean {
  return thrown instanceof Deno.errors.BrokenPipe || thrown instanceof Deno.errors.ConnectionReset;
}

/** Serves one connection; the connection is closed when it ends. */
export type Script = (connection: ServerConnection) => Promise<void>;

/** A scripted backend. Use it with `await using`; an error in a script is thrown then. */
export class ScriptedBackend implements AsyncDisposable {
  readonly path: string;
  /** Everything that was asked, over all connections. */
  readonly requests: ReceivedRequest[] = [];
  readonly #folder = new TestFolder();
  readonly #listener: Deno.UnixListener;
  readonly #connections: ServerConnection[] = [];
  readonly #running = new Set<Promise<void>>();
  readonly #script: Script;
  readonly #accepting: Promise<void>;
  #failure: unknown;
  #disposed = false;

  /** @param path where it listens; in a folder of its own when absent. */
  constructor(script: Script, path?: string) {
    this.path = path ?? this.#folder.file("backend.sock");
    this.#script = script;
    this.#listener = Deno.listen({ transport: "unix", path: this.path });
    this.#accepting = this.#accept();
  }

  /** Connections accepted so far. */
  get connections(): number {
    return this.#connections.length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#listener.close();
    // Newer versions of Deno remove the socket when the listener is closed, older ones do not.
    await Deno.remove(this.path).catch((thrown) => {
      if (!(thrown instanceof Deno.errors.NotFound)) throw thrown;
    });
    for (const connection of this.#connections) connection.close();
    await this.#accepting;
    await Promise.all(this.#running);
    this.#folder[Symbol.dispose]();
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #accept(): Promise<void> {
    for await (const stream of this.#listener) {
      const connection = new ServerConnection(
        stream as Deno.UnixConn,
        this.#connections.length + 1,
        (request) => this.requests.push(request),
      );
      this.#connections.push(connection);
      const running = this.#script(connection).catch((thrown) => {
        this.#failure ??= thrown;
      }).finally(() => {
        connection.close();
        this.#running.delete(running);
      });
      this.#running.add(running);
    }
  }
}

/** A script that answers each request with what `answer` makes of it. */
export function answering(answer: (request: ReceivedRequest, connection: number) => Uint8Array | undefined): Script {
  return async (connection) => {
    for (;;) {
      const request = await connection.request();
      if (request === undefined) return;
      const bytes = answer(request, connection.number);
      if (bytes !== undefined) await connection.send(bytes);
    }
  };
}
