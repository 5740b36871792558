/** A connection to a Unix socket that sends one line and waits for one line, with limits on time and length. */
import type { Clock } from "../runtime/clock.ts";
import { TrainingError } from "./errors.ts";

/** Longest answer, in bytes. An answer echoes the request's `job_id`, which may be as long as a request line. */
const MAX_ANSWER_BYTES = 2 * 1024 * 1024;

/** See the file's comment. */
export class LineConnection {
  readonly #connection: Deno.Conn;
  readonly #clock: Clock;
  #closed = false;

  private constructor(connection: Deno.Conn, clock: Clock) {
    this.#connection = connection;
    this.#clock = clock;
  }

  /** Connects within `limitMs` milliseconds. */
  static async open(
    path: string,
    { clock, limitMs, signal }: { clock: Clock; limitMs: number; signal: AbortSignal },
  ): Promise<LineConnection> {
    const connecting = Deno.connect({ transport: "unix", path });
    const late = () => void connecting.then((connection) => connection.close(), () => {});
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const cancel = clock.after(
      limitMs,
      () => reject(new TrainingError("closed", `no connection within ${limitMs} ms`)),
    );
    const onAbort = () => reject(new TrainingError("closed", "the client is closed"));
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    let opened = false;
    try {
      const connection = await Promise.race([connecting, ended]);
      opened = true;
      return new LineConnection(connection, clock);
    } finally {
      cancel();
      signal.removeEventListener("abort", onAbort);
      if (!opened) late();
    }
  }

  /**
   * Sends `line`, which ends with a line feed, and returns the answer without its line feed.
   *
   * @param limitMs time for the write, and again for the answer.
   * @throws when the connection ends, a limit is passed, or more than one line comes back. It is closed then.
   */
  async exchange(line: Uint8Array, limitMs: number): Promise<string> {
    try {
      await this.#within(limitMs, "write", async () => {
        for (let at = 0; at < line.length;) at += await this.#connection.write(line.subarray(at));
      });
      return await this.#within(limitMs, "answer", () => this.#readLine());
    } catch (thrown) {
      this.close();
      throw thrown;
    }
  }

  /** Closes the connection; calling it again does nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#connection.close();
  }

  async #readLine(): Promise<string> {
    let bytes = new Uint8Array(4096), length = 0;
    for (;;) {
      if (length === bytes.length) {
        if (length >= MAX_ANSWER_BYTES) {
          throw new TrainingError("closed", `an answer exceeds ${MAX_ANSWER_BYTES} bytes`);
        }
        const larger = new Uint8Array(2 * bytes.length);
        larger.set(bytes);
        bytes = larger;
      }
      const count = await this.#connection.read(bytes.subarray(length));
      if (count === null) throw new TrainingError("closed", "the trainer closed the connection");
      const end = bytes.subarray(0, length + count).indexOf(0x0a, length);
      length += count;
      if (end < 0) continue;
      if (end + 1 < length) throw new TrainingError("closed", "more than one line came back");
      return new TextDecoder().decode(bytes.subarray(0, end));
    }
  }

  /** A limit that is passed closes the connection, which ends the operation. */
  async #within<T>(limitMs: number, what: string, action: () => Promise<T>): Promise<T> {
    let expired = false;
    const cancel = this.#clock.after(limitMs, () => {
      expired = true;
      this.close();
    });
    try {
      return await action();
    } catch (thrown) {
      if (expired) throw new TrainingError("closed", `no ${what} within ${limitMs} ms`, { cause: thrown });
      throw thrown;
    } finally {
      cancel();
    }
  }
}
