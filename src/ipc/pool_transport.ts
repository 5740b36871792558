/** The default transport (spec/ipc.md 1.5): a pool of connections, each of which carries one request at a time. */
import type { IpcMethod } from "../wire/ipc/methods.ts";
import { MsgpackWriter } from "../wire/msgpack/writer.ts";
import { AnswerReader, MORE } from "./answer.ts";
import { Connection } from "./connection.ts";
import { IpcError } from "./errors.ts";
import { Slots } from "./slots.ts";
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

/** A connection that may not be there yet, and the buffer that its requests are written in. */
interface Slot {
  connection: Connection | undefined;
  writer: MsgpackWriter;
}

const WRITER_BYTES = 16_384;

/** Calls over a pool of connections. */
export class PoolTransport implements Transport {
  readonly #options: TransportOptions;
  readonly #ids = new RequestIds();
  readonly #slots: Slots<Slot>;
  readonly #all: Slot[] = [];
  #closed = false;

  /** @param size connections at most, until {@link grow} */
  constructor(options: TransportOptions, size: number) {
    this.#options = options;
    this.#slots = new Slots(size, () => {
      const slot: Slot = { connection: undefined, writer: new MsgpackWriter(WRITER_BYTES) };
      this.#all.push(slot);
      return slot;
    });
  }

  /** Slots of the pool. */
  get size(): number {
    return this.#slots.size;
  }

  grow(calls: number): void {
    this.#slots.grow(calls);
  }

  call<Request, Answer>(method: IpcMethod<Request, Answer>, request: Request, limitMs: number): Promise<Answer> {
    const id = this.#ids.next();
    return withRetry(this.#options, method.name, async (isRetry) => {
      const slot = await this.#slots.acquire();
      try {
        // The other connections most likely broke together with the one that failed: a retry does not trust them.
        if (isRetry) drop(slot);
        return await this.#within(slot, method, id, request, limitMs);
      } catch (thrown) {
        if (!keepsConnection(thrown)) drop(slot);
        throw thrown;
      } finally {
        this.#slots.release(slot);
      }
    });
  }

  close(): void {
    this.#closed = true;
    this.#slots.close(closedError("call"));
    for (const slot of this.#all) drop(slot);
  }

  /** One try under its limit, which covers connecting, writing and reading. */
  #within<Request, Answer>(
    slot: Slot,
    method: IpcMethod<Request, Answer>,
    id: string,
    request: Request,
    limitMs: number,
  ): Promise<Answer> {
    return new Promise((resolve, reject) => {
      let expired = false;
      const cancel = this.#options.clock.after(limitMs, () => {
        expired = true;
        drop(slot);
        // A write that hangs need not end by closing (Deno 2.6 leaves it pending), and it goes on using the buffer.
        slot.writer = new MsgpackWriter(WRITER_BYTES);
        reject(timeoutError(method.name, limitMs));
      });
      this.#exchange(slot, method, id, request, () => expired).then(
        (answer) => {
          cancel();
          resolve(answer);
        },
        (thrown) => {
          cancel();
          reject(thrown);
        },
      );
    });
  }

  async #exchange<Request, Answer>(
    slot: Slot,
    method: IpcMethod<Request, Answer>,
    id: string,
    request: Request,
    expired: () => boolean,
  ): Promise<Answer> {
    const frame = encodeRequest(slot.writer, method, id, request);
    const connection = slot.connection ?? await this.#connect(slot, expired);
    await connection.write(frame);
    if (frame.length > KEPT_WRITER_BYTES && !expired()) slot.writer = new MsgpackWriter(WRITER_BYTES);
    const answers = new AnswerReader(method, id, this.#options.chunks);
    try {
      for (;;) {
        const read = await connection.read();
        const answer = answers.feed(read);
        if (answer !== MORE) return answer;
        connection.recycle(read);
      }
    } finally {
      answers.abandon();
    }
  }

  async #connect(slot: Slot, expired: () => boolean): Promise<Connection> {
    const connection = await Connection.open(this.#options.connect, this.#options.path);
    if (expired() || this.#closed) {
      connection.close();
      throw closedError("connecting");
    }
    slot.connection = connection;
    return connection;
  }
}

function drop(slot: Slot): void {
  slot.connection?.close();
  slot.connection = undefined;
}

/** After an answer that was whole and for this request, however it refused, and when nothing was sent, all is in step (1.5). */
function keepsConnection(thrown: unknown): boolean {
  return thrown instanceof IpcError && ["server", "version_mismatch", "encode"].includes(thrown.kind);
}
