/**
 * Writes lines to a stream without ever making the caller wait. A reader that stalls (a full pipe) must not stall the
 * program: what does not fit into the bounded buffer is dropped, counted, and said once the reader goes on.
 */

/** Where the bytes go, e.g. `Deno.stdout`. */
export interface ByteSink {
  write(bytes: Uint8Array): Promise<number>;
}

/** Settings of a {@link LineWriter}. */
export interface LineWriterOptions {
  readonly sink: ByteSink;
  /** Makes the line that stands in for dropped ones. */
  readonly gapLine: (dropped: number) => string;
  /** Characters held back at most. Default 4 Mi. */
  readonly maxBuffered?: number;
}

/** See the module's comment. */
export class LineWriter {
  readonly #sink: ByteSink;
  readonly #gapLine: (dropped: number) => string;
  readonly #maxBuffered: number;
  #lines: string[] = [];
  #size = 0;
  #dropped = 0;
  #writing: Promise<void> | undefined;
  #broken = false;

  constructor(options: LineWriterOptions) {
    this.#sink = options.sink;
    this.#gapLine = options.gapLine;
    this.#maxBuffered = options.maxBuffered ?? 4 * 1024 * 1024;
  }

  /** Lines dropped since the last that was written. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Takes one line, newline included. */
  write(line: string): void {
    if (this.#broken) return;
    if (this.#size + line.length > this.#maxBuffered) {
      this.#dropped++;
      return;
    }
    if (this.#dropped > 0) {
      this.#push(this.#gapLine(this.#dropped));
      this.#dropped = 0;
    }
    this.#push(line);
    this.#writing ??= this.#writeAll();
  }

  /** Resolves when everything taken so far is written, or cannot be. */
  async flush(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  #push(line: string): void {
    this.#lines.push(line);
    this.#size += line.length;
  }

  async #writeAll(): Promise<void> {
    const encoder = new TextEncoder();
    // Lines that are said in one turn go out in one write.
    await undefined;
    while (this.#lines.length > 0) {
      const text = this.#lines.join("");
      this.#lines = [];
      const bytes = encoder.encode(text);
      try {
        for (let done = 0; done < bytes.length;) done += await this.#sink.write(bytes.subarray(done));
      } catch {
        // The reader is gone for good. There is nobody left to tell.
        this.#broken = true;
        this.#lines = [];
      }
      this.#size -= text.length;
    }
    // In the same turn in which nothing was left: a line that comes later begins anew.
    this.#writing = undefined;
  }
}
