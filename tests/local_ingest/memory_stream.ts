/** A client's byte stream in memory: a test feeds it, looks at what was written, and decides when writes go through. */
import type { ClientStream } from "../../src/local_ingest/connection.ts";
import { fromHex } from "../harness/paths.ts";

/** One end that {@link IngestConnection} serves; the test is the other end. */
export class MemoryStream implements ClientStream {
  #incoming: Uint8Array[] = [];
  #ended = false;
  #reader: PromiseWithResolvers<void> | undefined;
  #written: Uint8Array[] = [];
  #stalled: PromiseWithResolvers<void> | undefined;
  closed = false;
  /** Most bytes that one write takes. */
  writeLimit = Infinity;
  /** Sizes of the buffers that reads were given, to prove what was allocated. */
  largestRead = 0;

  /** What the client sends next. */
  feed(...parts: readonly (Uint8Array | string)[]): void {
    for (const part of parts) this.#incoming.push(typeof part === "string" ? fromHex(part) : part);
    this.#wakeReader();
  }

  /** The client ends its side. */
  end(): void {
    this.#ended = true;
    this.#wakeReader();
  }

  /** Bytes that were fed and not read yet. */
  get unread(): number {
    return this.#incoming.reduce((sum, part) => sum + part.length, 0);
  }

  /** Everything written so far. */
  written(): Uint8Array {
    const whole = new Uint8Array(this.#written.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of this.#written) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  /** The bodies of the frames written so far; fails when the last one is not whole. */
  frames(): Uint8Array[] {
    const bytes = this.written();
    const view = new DataView(bytes.buffer);
    const found: Uint8Array[] = [];
    for (let at = 0; at < bytes.length;) {
      const length = view.getUint32(at, true);
      if (at + 4 + length > bytes.length) throw new Error(`the frame at ${at} has ${length} bytes, not all are there`);
      found.push(bytes.subarray(at + 4, at + 4 + length));
      at += 4 + length;
    }
    return found;
  }

  /** The client stops reading: writes wait. */
  stall(): void {
    this.#stalled ??= Promise.withResolvers<void>();
  }

  /** The client reads again. */
  resume(): void {
    this.#stalled?.resolve();
    this.#stalled = undefined;
  }

  async read(into: Uint8Array): Promise<number | null> {
    this.largestRead = Math.max(this.largestRead, into.length);
    while (this.#incoming.length === 0) {
      if (this.closed) throw new Error("the stream is closed");
      if (this.#ended) return null;
      this.#reader ??= Promise.withResolvers<void>();
      await this.#reader.promise;
    }
    const [first = new Uint8Array(0)] = this.#incoming;
    const count = Math.min(first.length, into.length);
    into.set(first.subarray(0, count));
    if (count === first.length) this.#incoming.shift();
    else this.#incoming[0] = first.subarray(count);
    return count;
  }

  async write(bytes: Uint8Array): Promise<number> {
    while (this.#stalled !== undefined && !this.closed) await this.#stalled.promise;
    if (this.closed) throw new Error("the stream is closed");
    const taken = bytes.slice(0, this.writeLimit);
    this.#written.push(taken);
    return taken.length;
  }

  close(): void {
    if (this.closed) throw new Error("closed twice");
    this.closed = true;
    this.#stalled?.resolve();
    this.#wakeReader();
  }

  #wakeReader(): void {
    this.#reader?.resolve();
    this.#reader = undefined;
  }
}
