/** Cuts a byte stream into lines without copying them, with a limit on their length. */

/** Bytes read at a time. */
const READ_BYTES = 65_536;
const LINE_FEED = 0x0a;

/** A line within the buffer; valid until the buffer is filled again. */
export interface Line {
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
}

/** One connection's input. */
export class LineBuffer {
  readonly #limit: number;
  #bytes = new Uint8Array(2 * READ_BYTES);
  /** Beginning of the line that is not taken yet, end of what was read, and where the search for its end goes on. */
  #start = 0;
  #end = 0;
  #searched = 0;

  /** @param limit longest line in bytes, without its line feed. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Reads once from `source`. Returns false at the end of the input; an unfinished line is thrown away then. */
  async fill(source: { read(into: Uint8Array): Promise<number | null> }): Promise<boolean> {
    this.#makeRoom();
    const count = await source.read(this.#bytes.subarray(this.#end, this.#end + READ_BYTES));
    if (count === null) return false;
    this.#end += count;
    return true;
  }

  /** The next complete line; undefined when more must be read; `too long` when the limit is passed. */
  next(): Line | "too long" | undefined {
    // The search must not run over bytes of an earlier, longer fill.
    const at = this.#bytes.subarray(0, this.#end).indexOf(LINE_FEED, this.#searched);
    const end = at < 0 ? this.#end : at;
    if (end - this.#start > this.#limit) return "too long";
    if (at < 0) {
      this.#searched = this.#end;
      return undefined;
    }
    const line = { bytes: this.#bytes, start: this.#start, end: at };
    this.#start = this.#searched = at + 1;
    return line;
  }

  #makeRoom(): void {
    if (this.#start === this.#end) this.#start = this.#end = this.#searched = 0;
    if (this.#bytes.length - this.#end >= READ_BYTES) return;
    const length = this.#end - this.#start;
    const target = length + READ_BYTES > this.#bytes.length ? new Uint8Array(2 * this.#bytes.length) : this.#bytes;
    target.set(this.#bytes.subarray(this.#start, this.#end));
    this.#bytes = target;
    this.#searched -= this.#start;
    this.#start = 0;
    this.#end = length;
  }
}
