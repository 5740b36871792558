/** The opt-in transport (spec/ipc.md 1.6): one connection carries all calls, answers are routed by their request id. */
import { type CancelTimer, sleep } from "../runtime/clock.ts";
import { readResponseHead } from "../wire/ipc/envelope.ts";
import type { IpcMethod } from "../wire/ipc/methods.ts";
import { MsgpackWriter } from "../wire/msgpack/writer.ts";
import { AnswerReader, MORE } from "./answer.ts";
import { Connection } from "./connection.ts";
import { IpcError } from "./errors.ts";
import {
  closedError,
  encodeRequest,
  KEPT_WRITER_BYTES,
  RequestIds,
  timeoutError,
  type Transport,
  type TransportOptions,
  withRetry,
} from "./transport.ts";

/** Pause before a new connection, whether the last one failed to open or ended. */
const PAUSE_MS = 100;

/** One try of one call. */
interface Command {
  readonly id: string;
  encode(writer: MsgpackWriter): Uint8Array;
  /** Takes a frame for this request. @returns whether the frame's buffer may be used again */
  deliver(frame: Uint8Array): boolean;
  fail(error: IpcError): void;
}

/** Calls over one connection. */
export class MuxTransport implements Transport {
  readonly #options: TransportOptions;
  readonly #ids = new RequestIds();
  /**
   * Not written yet, oldest first. The reference bounds this queue and lets callers wait for a place in it; a caller waits for its
   * answer either way, and nothing is encoded before its turn, so a bound would change nothing here.
   */
  readonly #queue = new Set<Command>();
  /** Written, or being written; by request id. */
  readonly #pending = new Map<string, Command>();
  readonly #closing = new AbortController();
  #started = false;
  #connection: Connection | undefined;
  #wakeWriter: () => void = () => {};

  constructor(options: TransportOptions) {
    this.#options = options;
  }

  /** One connection carries any number of calls. */
  grow(): void {}

  call<Request, Answer>(method: IpcMethod<Request, Answer>, request: Request, limitMs: number): Promise<Answer> {
    const id = this.#ids.next();
    return withRetry(this.#options, method.name, () => this.#try(method, id, request, limitMs));
  }

  close(): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    this.#connection?.close();
    this.#wakeWriter();
    for (const command of [...this.#queue, ...this.#pending.values()]) command.fail(closedError("call"));
  }

  /** One try. The limit covers waiting in the queue, writing and the answer. */
  #try<Request, Answer>(
    method: IpcMethod<Request, Answer>,
    id: string,
    request: Request,
    limitMs: number,
  ): Promise<Answer> {
    if (this.#closing.signal.aborted) return Promise.reject(closedError(method.name));
    return new Promise((resolve, reject) => {
      const answers = new AnswerReader(method, id, this.#options.chunks);
      const settle = () => {
        cancel();
        this.#queue.delete(command);
        if (this.#pending.get(id) === command) this.#pending.delete(id);
        answers.abandon();
      };
      const command: Command = {
        id,
        encode: (writer) => encodeRequest(writer, method, id, request),
        deliver(frame) {
          try {
            const answer = answers.feed(frame);
            if (answer === MORE) return true;
            settle();
            resolve(answer);
          } catch (thrown) {
            settle();
            reject(thrown);
          }
          return false;
        },
        fail(error) {
          settle();
          reject(error);
        },
      };
      const cancel: CancelTimer = this.#options.clock.after(
        limitMs,
        () => command.fail(timeoutError(method.name, limitMs)),
      );
      this.#queue.add(command);
      this.#wakeWriter();
      if (!this.#started) {
        this.#started = true;
        void this.#run();
      }
    });
  }

  /** Connects, and connects again, until it is closed. */
  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await this.#serveOneConnection();
      await sleep(this.#options.clock, PAUSE_MS, signal);
    }
  }

  async #serveOneConnection(): Promise<void> {
    let connection: Connection;
    try {
      connection = await Connection.open(this.#options.connect, this.#options.path);
    } catch {
      // Commands wait for the next try; their own limits end the waiting.
      return;
    }
    this.#connection = connection;
    if (this.#closing.signal.aborted) return connection.close();
    // Not waited for: a write that hangs need not end by closing the connection. It fails by itself when the peer goes.
    void this.#write(connection);
    const reason = await this.#read(connection);
    connection.close();
    this.#wakeWriter();
    const error = new IpcError("io", `the connection ended: ${reason.message}`, {
      io: "connection_reset",
      cause: reason,
    });
    for (const command of [...this.#pending.values()]) command.fail(error);
  }

  /** Writes commands in order until the connection is closed. */
  async #write(connection: Connection): Promise<void> {
    let writer = new MsgpackWriter();
    while (!connection.closed) {
      const [command] = this.#queue;
      if (command === undefined) {
        await new Promise<void>((resolve) => this.#wakeWriter = resolve);
        continue;
      }
      let frame: Uint8Array;
      try {
        frame = command.encode(writer);
      } catch (thrown) {
        if (!(thrown instanceof IpcError)) throw thrown;
        command.fail(thrown);
        continue;
      }
      this.#queue.delete(command);
      this.#pending.set(command.id, command);
      try {
        await connection.write(frame);
      } catch {
        // The reader sees the end too and fails what is pending.
        connection.close();
      }
      // One large request must not keep its memory for the life of the connection.
      if (frame.length > KEPT_WRITER_BYTES) writer = new MsgpackWriter();
    }
  }

  /** Routes answers until the connection ends. @returns why it did */
  async #read(connection: Connection): Promise<Error> {
    try {
      for (;;) {
        const frame = await connection.read();
        const { requestId } = readResponseHead(frame, true);
        if (requestId === undefined || requestId === "") return new Error("a frame without a request_id");
        const command = this.#pending.get(requestId);
        if (command === undefined) this.#options.observer?.dropped?.(requestId);
        if (command === undefined || command.deliver(frame)) connection.recycle(frame);
      }
    } catch (thrown) {
      return thrown instanceof Error ? thrown : new Error(String(thrown));
    }
  }
}
