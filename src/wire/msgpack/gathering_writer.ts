import { MsgpackWriter } from "./writer.ts";

/** Spans of at least this many bytes are referred to instead of copied. */
const BORROWED_BYTES = 64 * 1024;

/**
 * A writer for messages that are too large to copy: long spans are not copied but become pieces of their own, views of the bytes
 * they came from, which must not change while the pieces are in use.
 */
export class GatheringWriter extends MsgpackWriter {
  readonly #pieces: Uint8Array[] = [];

  override raw(source: Uint8Array, at = 0, length: number = source.length - at): void {
    if (length < BORROWED_BYTES) return super.raw(source, at, length);
    this.#cut();
    this.#pieces.push(source.subarray(at, at + length));
  }

  /** What has been written, in order. Nothing may be written afterwards. */
  pieces(): readonly Uint8Array[] {
    this.#cut();
    return this.#pieces;
  }

  #cut(): void {
    if (this.length > 0) this.#pieces.push(this.take());
  }
}
