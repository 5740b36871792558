/**
 * The reading side of one connection (spec/local-ingest.md 3 and 10). Header and body are read apart, because the reader decides in
 * between whether the body may come in yet. While it decides, what the client sends next is looked at only as far as one small
 * buffer holds, so that a client that goes away is noticed.
 */
import type { ByteSource } from "../wire/frames.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";

/** Read ahead at most: many small frames come in one read. */
const SCRATCH_BYTES = 16_384;
/** A body up to this size gets its memory at once; a larger one gets more as its bytes arrive. */
const EAGER_BYTES = 65_536;

/** Reads frames from a byte stream. Not for concurrent calls. */
export class FrameInput {
  readonly #source: ByteSource;
  readonly #scratch = new Uint8Array(SCRATCH_BYTES);
  #start = 0;
  #end = 0;
  #ended = false;
  /** A read into the free end of the scratch buffer that {@link endsBefore} began and that has not come back yet. */
  #pending: Promise<void> | undefined;

  constructor(source: ByteSource) {
    this.#source = source;
  }

  /**
   * Length of the next frame's body; undefined when the stream ended before or inside the header. Not checked against a limit.
   *
   * @throws what the source throws
   */
  async header(): Promise<number | undefined> {
    const size = IngestLimits.frameHeaderBytes;
    while (this.#end - this.#start < size) {
      if (this.#ended) return undefined;
      await this.#fill();
    }
    const [a = 0, b = 0, c = 0, d = 0] = this.#scratch.subarray(this.#start, this.#start + size);
    this.#start += size;
    return ((d << 24) | (c << 16) | (b << 8) | a) >>> 0;
  }

  /**
   * The body of the frame whose header was read, in a buffer of its own; undefined when the stream ended inside it.
   *
   * @throws what the source throws
   */
  async body(length: number): Promise<Uint8Array | undefined> {
    let body = new Uint8Array(Math.min(length, EAGER_BYTES));
    let filled = this.#take(body, 0, length);
    // A read that is under way fills the scratch buffer; the order of bytes is kept by taking that first.
    if (filled < length && this.#pending !== undefined) {
      await this.#fill();
      filled += this.#take(body, filled, length);
    }
    while (filled < length) {
      if (this.#ended) return undefined;
      if (filled === body.length) body = grown(body, length);
      const count = await this.#source.read(body.subarray(filled));
      if (count === null) this.#ended = true;
      else filled += count;
    }
    return body;
  }

  /** Waits for `condition`, reading ahead meanwhile. @returns true as soon as the stream has ended, false when `condition` came first */
  async endsBefore(condition: Promise<void>): Promise<boolean> {
    let met = false;
    const marked = condition.then(() => {
      met = true;
    });
    while (!met && !this.#ended) {
      if (this.#end === SCRATCH_BYTES && this.#start === 0) await marked;
      else await Promise.race([marked, this.#fill()]);
    }
    return !met;
  }

  /** Reads more into the scratch buffer; joins a read that is under way. */
  #fill(): Promise<void> {
    if (this.#pending !== undefined) return this.#pending;
    if (this.#start > 0) {
      this.#scratch.copyWithin(0, this.#start, this.#end);
      this.#end -= this.#start;
      this.#start = 0;
    }
    this.#pending = this.#source.read(this.#scratch.subarray(this.#end)).then((count) => {
      if (count === null) this.#ended = true;
      else this.#end += count;
    }).finally(() => {
      this.#pending = undefined;
    });
    // Nobody may be waiting when it fails; the next read fails likewise.
    this.#pending.catch(() => {});
    return this.#pending;
  }

  /** Moves buffered bytes of a body to their place. @returns how many */
  #take(body: Uint8Array, at: number, length: number): number {
    const count = Math.min(this.#end - this.#start, length - at, body.length - at);
    body.set(this.#scratch.subarray(this.#start, this.#start + count), at);
    this.#start += count;
    if (this.#start === this.#end && this.#pending === undefined) this.#start = this.#end = 0;
    return count;
  }
}

function grown(body: Uint8Array<ArrayBuffer>, length: number): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(Math.min(length, body.length * 2));
  larger.set(body);
  return larger;
}
