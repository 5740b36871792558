/** One connection to a backend socket. Its write side is never shut by itself: the backend would drop the answers (spec/ipc.md 1.3). */
import { BACKEND_FRAMES, type ByteSink, type ByteSource, FrameError, FrameReader, writeAll } from "../wire/frames.ts";
import { ioError, IpcError } from "./errors.ts";

/** What a connection needs from the runtime; `Deno.UnixConn` is one. */
export interface Stream extends ByteSource, ByteSink {
  close(): void;
}

/** Opens a stream to a socket path. */
export type Connect = (path: string) => Promise<Stream>;

/** Connects through the operating system. */
export const connectUnix: Connect = (path) => Deno.connect({ transport: "unix", path });

/** A connected stream with its reader; every failure is an {@link IpcError}. */
export class Connection {
  readonly #stream: Stream;
  readonly #reader: FrameReader;
  #closed = false;

  private constructor(stream: Stream) {
    this.#stream = stream;
    this.#reader = new FrameReader(stream, BACKEND_FRAMES);
  }

  /** Connects. There is no way to give up: whoever does not want the connection any more closes it when it comes. */
  static async open(connect: Connect, path: string): Promise<Connection> {
    try {
      return new Connection(await connect(path));
    } catch (thrown) {
      throw ioError(`connecting to ${path}`, thrown);
    }
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Writes one frame. */
  async write(frame: Uint8Array): Promise<void> {
    try {
      await writeAll(this.#stream, frame);
    } catch (thrown) {
      throw ioError("writing a request", thrown);
    }
  }

  /** Reads the next frame; the end of the stream is an error, wherever it comes. */
  async read(): Promise<Uint8Array> {
    let frame: Uint8Array | undefined;
    try {
      frame = await this.#reader.readFrame();
    } catch (thrown) {
      if (!(thrown instanceof FrameError)) throw ioError("reading an answer", thrown);
      if (thrown.fault === "too_large") throw new IpcError("frame_too_large", thrown.message, { cause: thrown });
      throw new IpcError("io", thrown.message, { io: "unexpected_eof", cause: thrown });
    }
    if (frame === undefined) {
      throw new IpcError("io", "the backend closed the connection before it answered", { io: "unexpected_eof" });
    }
    return frame;
  }

  /** Gives a frame's buffer back for the next one. */
  recycle(frame: Uint8Array): void {
    this.#reader.recycle(frame);
  }

  /** Closes both directions; a read that is waiting fails. A second call does nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stream.close();
  }
}
