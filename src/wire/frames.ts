/**
 * The framing of both sockets: a length of four bytes, then that many bytes of body. The backend's lengths are big-endian
 * (spec/ipc.md 1.2), those of local ingest little-endian (spec/local-ingest.md 3). A length is checked before anything is
 * allocated for it, and a large body gets its memory only as its bytes arrive.
 */
import { SidecarError } from "../runtime/errors.ts";
import type { MsgpackWriter } from "./msgpack/writer.ts";

/** How a socket frames its messages. */
export interface FrameForm {
  readonly byteOrder: "big" | "little";
  /** Largest body in bytes, inclusive. */
  readonly maxBytes: number;
  /** A body up to this size gets its memory at once; a larger one starts with so much and grows with what arrives. */
  readonly eagerBytes: number;
}

/** The backend socket. One whole chunk of a large answer (4,198,400 bytes, spec/ipc.md 6.2) is read without growing. */
export const BACKEND_FRAMES: FrameForm = { byteOrder: "big", maxBytes: 33_554_432, eagerBytes: 4_198_400 };

/** The local-ingest socket, whose clients are trusted less with our memory. */
export const LOCAL_FRAMES: FrameForm = { byteOrder: "little", maxBytes: 67_108_864, eagerBytes: 65_536 };

/** What was wrong with a frame: announced too large, or the stream ended inside it. */
export type FrameFault = "too_large" | "cut_header" | "cut_body";

/** A frame that cannot be read or must not be written. */
export class FrameError extends SidecarError {
  readonly fault: FrameFault;

  constructor(fault: FrameFault, message: string) {
    super(`frame_${fault}`, message);
    this.fault = fault;
  }
}

/** Where bytes come from; null is the end. `Deno.Conn` is one. */
export interface ByteSource {
  read(into: Uint8Array): Promise<number | null>;
}

/** Where bytes go; may take fewer than it is given. `Deno.Conn` is one. */
export interface ByteSink {
  write(bytes: Uint8Array): Promise<number>;
}

const HEADER_BYTES = 4;
/** Read ahead: header and body of a small frame come in one read, and what belongs to the next frame is kept. */
const SCRATCH_BYTES = 16_384;

/** Reads the frames of one connection, one after another. Not for concurrent calls. */
export class FrameReader {
  readonly #source: ByteSource;
  readonly #form: FrameForm;
  readonly #scratch = new Uint8Array(SCRATCH_BYTES);
  #start = 0;
  #end = 0;
  #spare: Uint8Array | undefined;

  constructor(source: ByteSource, form: FrameForm) {
    this.#source = source;
    this.#form = form;
  }

  /**
   * The body of the next frame in a buffer of its own, which belongs to the caller; undefined when the stream ended between frames. A body of length 0 is returned as such: it is no MessagePack value, which the decoder will say.
   *
   * @throws FrameError for a length above the limit (before anything of the body is read) or an end inside the frame; what the
   * source throws
   */
  async readFrame(): Promise<Uint8Array | undefined> {
    while (this.#end - this.#start < HEADER_BYTES) {
      if (this.#start > 0) {
        this.#scratch.copyWithin(0, this.#start, this.#end);
        this.#end -= this.#start;
        this.#start = 0;
      }
      const count = await this.#source.read(this.#scratch.subarray(this.#end));
      if (count === null) {
        if (this.#end === this.#start) return undefined;
        throw new FrameError("cut_header", `the stream ended after ${this.#end - this.#start} of 4 header bytes`);
      }
      this.#end += count;
    }
    const length = this.#takeHeader();
    if (length > this.#form.maxBytes) throw tooLarge(length, this.#form);
    return await this.#readBody(length);
  }

  /** Gives a frame's buffer back, to be used for a later frame of about its size: the caller no longer looks at it. */
  recycle(frame: Uint8Array): void {
    const whole = new Uint8Array(frame.buffer);
    if (whole.length > this.#form.eagerBytes) return;
    if (this.#spare === undefined || this.#spare.length < whole.length) this.#spare = whole;
  }

  #takeHeader(): number {
    const bytes = this.#scratch;
    const at = this.#start;
    const [a, b, c, d] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]] as [number, number, number, number];
    this.#start += HEADER_BYTES;
    return (this.#form.byteOrder === "big"
      ? (a << 24) | (b << 16) | (c << 8) | d
      : (d << 24) | (c << 16) | (b << 8) | a) >>> 0;
  }

  async #readBody(length: number): Promise<Uint8Array> {
    const buffered = Math.min(this.#end - this.#start, length);
    let body = this.#room(length, buffered);
    body.set(this.#scratch.subarray(this.#start, this.#start + buffered));
    this.#start += buffered;
    if (this.#start === this.#end) this.#start = this.#end = 0;
    for (let filled = buffered; filled < length;) {
      if (filled === body.length) {
        const larger = new Uint8Array(Math.min(length, body.length * 2));
        larger.set(body);
        body = larger;
      }
      const count = await this.#source.read(filled === 0 ? body : body.subarray(filled));
      if (count === null) throw new FrameError("cut_body", `the stream ended after ${filled} of ${length} body bytes`);
      filled += count;
    }
    return body;
  }

  #room(length: number, buffered: number): Uint8Array {
    const spare = this.#spare;
    // A small frame must not keep a large buffer alive for as long as its caller looks at it.
    if (spare !== undefined && spare.length >= length && spare.length <= 2 * length) {
      this.#spare = undefined;
      return spare.subarray(0, length);
    }
    return new Uint8Array(Math.min(length, Math.max(this.#form.eagerBytes, buffered)));
  }
}

/** Begins a frame in a writer: leaves room for the header. Header and body then go out in one write. */
export function beginFrame(writer: MsgpackWriter): void {
  writer.clear();
  writer.room(HEADER_BYTES);
}

/**
 * Ends the frame that {@link beginFrame} began.
 *
 * @returns the whole frame, header included: a view that the next write to the writer makes invalid
 * @throws FrameError when the body is too large; nothing must be sent then
 */
export function endFrame(writer: MsgpackWriter, form: FrameForm): Uint8Array {
  const length = writer.length - HEADER_BYTES;
  if (length > form.maxBytes) throw tooLarge(length, form);
  writer.patchUint32(0, form.byteOrder === "big" ? length : swapped(length));
  return writer.view();
}

/** Writes all of `bytes`. */
export async function writeAll(sink: ByteSink, bytes: Uint8Array): Promise<void> {
  let written = await sink.write(bytes);
  while (written < bytes.length) written += await sink.write(bytes.subarray(written));
}

function swapped(value: number): number {
  return ((value & 0xff) << 24 | (value & 0xff00) << 8 | (value >>> 8) & 0xff00 | value >>> 24) >>> 0;
}

function tooLarge(length: number, form: FrameForm): FrameError {
  return new FrameError("too_large", `frame body of ${length} bytes exceeds the limit of ${form.maxBytes} bytes`);
}
