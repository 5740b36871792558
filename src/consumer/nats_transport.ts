/**
 * The transport under the NATS client. The client's own one for node takes its listeners off a socket before it destroys it, so that
 * a late reset has nobody to go to and ends the process; it also does not know the name to check a certificate against when it dials
 * by name. This one has neither fault.
 */
import { checkOptions, type ConnectionOptions, INFO, type Server, type Transport } from "@nats-io/nats-core/internal";
import { type ByteSocket, openSocket, type TlsMaterial } from "./byte_socket.ts";
import { BrokerError } from "./errors.ts";

/** Size of a read buffer, and how much of it must be left for it to be read into again. */
const READ_BYTES = 64 * 1024;
const LEAST_READ_BYTES = 16 * 1024;

const LINE_END = 10;

/** A server's first line is not longer than this. */
const LONGEST_INFO_BYTES = 1024 * 1024;

/** Frames up to this size are put together before they are written. */
const SMALL_FRAME_BYTES = 16 * 1024;

/** What the server says first. */
interface ServerGreeting {
  readonly tls_required?: boolean;
}

/** See the file's comment. */
export class NatsTransport implements Transport {
  readonly lang = "nats.js";
  readonly version = "3.4.0";
  closeError?: Error;
  readonly #material: TlsMaterial;
  readonly #ended = Promise.withResolvers<void | Error>();
  #socket: ByteSocket | undefined;
  #greeting: Uint8Array | undefined;
  #encrypted = false;
  #established = false;
  #done = false;
  #frames: Uint8Array[] = [];
  #writing: Promise<void> | undefined;

  constructor(material: TlsMaterial) {
    this.#material = material;
  }

  get isClosed(): boolean {
    return this.#done;
  }

  async connect(server: Server & { readonly hostname: string; readonly port: number }, options: ConnectionOptions) {
    const { hostname, port } = server;
    const socket = await openSocket({ hostname, port }, this.#material.client !== undefined);
    if (!this.#use(socket)) return;
    const greeting = await readGreeting(socket);
    const info = parseGreeting(greeting);
    checkOptions(info as Parameters<typeof checkOptions>[0], options);
    if (info.tls_required === true || options.tls instanceof Object) {
      // Who could put something in here could speak for the server; what is encrypted later would not be told from it.
      if (greeting.indexOf(LINE_END) !== greeting.length - 1) {
        throw new BrokerError("connect", "the server said more than its first line before the connection is encrypted");
      }
      const encrypted = await socket.upgrade(hostname, this.#material);
      this.#encrypted = true;
      if (!this.#use(encrypted)) return;
    }
    this.#greeting = greeting;
    this.#established = true;
  }

  async *[Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array> {
    const socket = this.#socket;
    if (socket === undefined) return;
    let failure: Error | undefined;
    try {
      if (this.#greeting !== undefined) yield this.#greeting;
      let buffer = new Uint8Array(READ_BYTES), at = 0;
      while (!this.#done) {
        const count = await socket.read(at === 0 ? buffer : buffer.subarray(at));
        if (count === null) break;
        // Messages are views of the buffer; what is read next goes behind them, never over them.
        yield buffer.subarray(at, at + count);
        at += count;
        if (buffer.length - at >= LEAST_READ_BYTES) continue;
        buffer = new Uint8Array(READ_BYTES);
        at = 0;
      }
    } catch (thrown) {
      failure = thrown instanceof Error ? thrown : new Error(String(thrown));
    } finally {
      // Also when the client stops reading because it could not make sense of something.
      this.#end(failure);
    }
  }

  isEncrypted(): boolean {
    return this.#encrypted;
  }

  send(frame: Uint8Array): void {
    if (this.#done) return;
    this.#frames.push(frame);
    this.#writing ??= this.#writeAll();
  }

  /** Waits for what is being written, then closes. */
  async close(error?: Error): Promise<void> {
    if (error === undefined && !this.#done) await this.#writing;
    this.#end(error);
  }

  disconnect(): void {
    this.#end(undefined);
  }

  closed(): Promise<void | Error> {
    return this.#ended.promise;
  }

  /** Throws everything away, and never tells that it has ended: another transport has taken over. */
  discard(): void {
    this.#established = false;
    this.#end(undefined);
  }

  /** Takes a socket into use; false, with the socket closed, when the attempt has been given up meanwhile. */
  #use(socket: ByteSocket): boolean {
    this.#socket = socket;
    if (this.#done) socket.close();
    return !this.#done;
  }

  #end(error: Error | undefined): void {
    if (this.#done) return;
    this.#done = true;
    if (error !== undefined) this.closeError = error;
    this.#frames = [];
    this.#socket?.close();
    if (this.#established) this.#ended.resolve(error);
  }

  async #writeAll(): Promise<void> {
    try {
      while (this.#frames.length > 0 && this.#socket !== undefined) {
        const frames = this.#frames;
        this.#frames = [];
        for (const frame of joinSmall(frames)) await this.#socket.write(frame);
      }
    } catch (thrown) {
      // Nothing may follow what was lost: an ACK would go out without the result before it.
      this.#end(thrown instanceof Error ? thrown : new Error(String(thrown)));
    } finally {
      this.#writing = undefined;
    }
  }
}

/** Small neighbours in one piece, large ones as they are. */
function joinSmall(frames: readonly Uint8Array[]): readonly Uint8Array[] {
  if (frames.length === 1) return frames;
  const joined: Uint8Array[] = [];
  let run: Uint8Array[] = [], size = 0;
  const endRun = () => {
    if (run.length > 0) joined.push(run.length === 1 ? run[0] as Uint8Array : concat(run, size));
    run = [];
    size = 0;
  };
  for (const frame of frames) {
    if (frame.length > SMALL_FRAME_BYTES || size > SMALL_FRAME_BYTES) endRun();
    run.push(frame);
    size += frame.length;
  }
  endRun();
  return joined;
}

function concat(parts: readonly Uint8Array[], size: number): Uint8Array {
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Reads until the end of the first line. What follows it, if anything, comes along. */
async function readGreeting(socket: ByteSocket): Promise<Uint8Array> {
  let received = new Uint8Array(0);
  const buffer = new Uint8Array(LEAST_READ_BYTES);
  while (!received.includes(LINE_END)) {
    if (received.length > LONGEST_INFO_BYTES) {
      throw new BrokerError("connect", `the server's first line is longer than ${LONGEST_INFO_BYTES} bytes`);
    }
    const count = await socket.read(buffer);
    if (count === null) throw new BrokerError("connect", "the server closed the connection before it said who it is");
    received = concat([received, buffer.subarray(0, count)], received.length + count) as Uint8Array<ArrayBuffer>;
  }
  return received;
}

function parseGreeting(bytes: Uint8Array): ServerGreeting {
  const line = new TextDecoder().decode(bytes);
  const json = INFO.exec(line)?.[1];
  try {
    const info: unknown = JSON.parse(json ?? "");
    if (typeof info === "object" && info !== null) return info;
  } catch {
    // Said below.
  }
  throw new BrokerError("connect", `this is no NATS server: it says ${JSON.stringify(line.slice(0, 60))}`);
}
