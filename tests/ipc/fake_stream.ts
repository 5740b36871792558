/** A backend in memory: streams that a test fills by hand, so that virtual time and every read and write are in its hands. */
import type { Stream } from "../../src/ipc/connection.ts";
import { decodeNotation } from "../harness/notation.ts";
import { splitFrames } from "./frames.ts";

/** One end of a connection in memory. */
export class FakeStream implements Stream {
  /** Everything that was written, piece by piece. */
  readonly written: Uint8Array[] = [];
  closed = false;
  /** Reads that were begun. */
  reads = 0;
  /** While true, writes do not end. */
  stuck = false;
  #incoming: Uint8Array[] = [];
  #ended = false;
  #failure: Error | undefined;
  #wake: () => void = () => {};

  /** Sends bytes to the client. */
  push(...pieces: Uint8Array[]): void {
    this.#incoming.push(...pieces);
    this.#wake();
  }

  /** Ends the stream towards the client. */
  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** Makes reads and writes fail from now on. */
  fail(error: Error): void {
    this.#failure = error;
    this.#wake();
  }

  /** The requests that were written, whole frames only. */
  requests(): { readonly method: string; readonly request_id: string; readonly body: unknown }[] {
    const all = new Uint8Array(this.written.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (const piece of this.written) {
      all.set(piece, at);
      at += piece.length;
    }
    return splitFrames(all).map((frame) => decodeNotation(frame) as ReturnType<FakeStream["requests"]>[number]);
  }

  async read(into: Uint8Array): Promise<number | null> {
    this.reads++;
    for (;;) {
      if (this.closed) throw new Deno.errors.BadResource("closed");
      const next = this.#incoming[0];
      if (next !== undefined) {
        const count = Math.min(next.length, into.length);
        into.set(next.subarray(0, count));
        if (count === next.length) this.#incoming.shift();
        else this.#incoming[0] = next.subarray(count);
        return count;
      }
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#ended) return null;
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
  }

  write(bytes: Uint8Array): Promise<number> {
    if (this.closed) return Promise.reject(new Deno.errors.BadResource("closed"));
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.stuck) return new Promise(() => {});
    this.written.push(bytes.slice());
    return Promise.resolve(bytes.length);
  }

  close(): void {
    this.closed = true;
    this.#wake();
  }
}

/** Hands out streams, or errors, one a connection. */
export class FakeBackend {
  readonly streams: FakeStream[] = [];
  #refusal: Error | undefined;
  /** Connections that were asked for. */
  tries = 0;

  readonly connect = (): Promise<FakeStream> => {
    this.tries++;
    if (this.#refusal !== undefined) return Promise.reject(this.#refusal);
    const stream = new FakeStream();
    this.streams.push(stream);
    return Promise.resolve(stream);
  };

  /** Refuses connections with this error, or accepts them again. */
  refuse(error: Error | undefined): void {
    this.#refusal = error;
  }

  /** The stream of connection `number`, counted from 1. */
  stream(number: number): FakeStream {
    const stream = this.streams[number - 1];
    if (stream === undefined) throw new Error(`there is no connection ${number} (${this.streams.length} were made)`);
    return stream;
  }
}
