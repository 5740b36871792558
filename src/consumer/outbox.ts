/**
 * Publications of the hot path. Many small messages are written into one buffer and handed to the NATS client in one piece, which
 * saves making a string, three buffers and an options object for each. The order of publications is kept.
 *
 * The one place, with {@link BrokerConnection}, that uses the client's inner side (`ProtocolHandler`), pinned by version.
 */
import type { ProtocolHandler } from "@nats-io/nats-core/internal";
import { BrokerError } from "./errors.ts";

/**
 * Size of the buffer: small enough to come from the allocator's own store and not, page by page, from the system. Messages above
 * half of it go out as they are, without being copied here.
 */
const BUFFER_BYTES = 64 * 1024;
const LARGE_BYTES = BUFFER_BYTES / 2;
/**
 * Longest subject in bytes. A server breaks the connection, with everything that is on its way, at a line of the protocol longer
 * than its `max_control_line` (4096 by default); no subject that anybody means comes near this.
 */
const LONGEST_SUBJECT_BYTES = 1024;
/** Room for `PUB`, spaces, a length and line ends. */
const FRAMING_BYTES = 32;

const CRLF = Uint8Array.of(13, 10);
const EMPTY = new Uint8Array(0);
const utf8 = new TextEncoder();

/** Up to this length a plain loop copies faster than a view does. */
const SHORT_BYTES = 32;

/** Collects publications of one connection. */
export class Outbox {
  readonly #protocol: ProtocolHandler;
  #bytes = new Uint8Array(BUFFER_BYTES);
  #length = 0;
  #scheduled = false;
  /** Bytes published since the start, framing included. */
  handed = 0;

  constructor(protocol: ProtocolHandler) {
    this.#protocol = protocol;
  }

  /**
   * Publishes a message. `payload` must not change until the client has written it; in practice: is not reused.
   *
   * @throws BrokerError `subject` when a subject is too long, or holds white space or control characters
   */
  publish(subject: string, payload: Uint8Array = EMPTY, reply = ""): void {
    const size = payload.length;
    const room = 3 * (subject.length + reply.length) + FRAMING_BYTES;
    this.handed += size + subject.length + FRAMING_BYTES;
    if (size > LARGE_BYTES || room > LARGE_BYTES) return this.#publishLarge(subject, payload, reply);
    if (this.#length + room + size > BUFFER_BYTES) this.flush();
    const bytes = this.#bytes;
    const start = this.#length;
    let at = start;
    bytes[at++] = 80; // PUB and a space
    bytes[at++] = 85;
    bytes[at++] = 66;
    bytes[at++] = 32;
    at = writeSubject(bytes, at, subject);
    bytes[at++] = 32;
    if (reply !== "") {
      at = writeSubject(bytes, at, reply);
      bytes[at++] = 32;
    }
    at = writeDecimal(bytes, at, size);
    bytes[at++] = 13;
    bytes[at++] = 10;
    if (size <= SHORT_BYTES) {
      for (let i = 0; i < size; i++) bytes[at + i] = payload[i] as number;
    } else {
      bytes.set(payload, at);
    }
    at += size;
    bytes[at++] = 13;
    bytes[at++] = 10;
    this.#length = at;
    if (!this.#scheduled) this.#schedule();
  }

  /** Hands what is collected to the client. */
  flush(): void {
    if (this.#length === 0) return;
    const filled = this.#bytes.subarray(0, this.#length);
    this.#bytes = new Uint8Array(BUFFER_BYTES);
    this.#length = 0;
    this.#send(filled);
  }

  /** Forgets what is collected: the connection it was meant for is gone. */
  discard(): void {
    this.#length = 0;
  }

  /** Straight to the transport, behind what the client has collected itself: it would put everything together once more. */
  #send(...pieces: Uint8Array[]): void {
    const protocol = this.#protocol;
    if (!protocol.connected) return protocol.sendCommand(EMPTY, ...pieces);
    if (protocol.outbound.size() > 0) protocol.transport.send(protocol.outbound.drain());
    for (const piece of pieces) protocol.transport.send(piece);
  }

  #schedule(): void {
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.flush();
    });
  }

  #publishLarge(subject: string, payload: Uint8Array, reply: string): void {
    const words = reply === "" ? [subject] : [subject, reply];
    for (const word of words) checkSubject(word);
    this.flush();
    this.#send(utf8.encode(`PUB ${words.join(" ")} ${payload.length}\r\n`), payload, CRLF);
  }
}

/**
 * Whether a subject can be published to at all: it has something in it, but not too much, and nothing that ends a word of the
 * protocol.
 */
export function isPublishable(subject: string): boolean {
  if (subject === "" || subject.length > LONGEST_SUBJECT_BYTES) return false;
  for (let i = 0; i < subject.length; i++) {
    const code = subject.charCodeAt(i);
    if (code <= 32 || code === 127) return false;
  }
  return 3 * subject.length <= LONGEST_SUBJECT_BYTES || utf8.encode(subject).length <= LONGEST_SUBJECT_BYTES;
}

function checkSubject(subject: string): void {
  if (!isPublishable(subject)) {
    throw new BrokerError("subject", `not a subject to publish to: ${JSON.stringify(subject.slice(0, 100))}`);
  }
}

/** Writes a subject and returns the next position. Nothing written here counts when this throws. */
function writeSubject(bytes: Uint8Array, start: number, subject: string): number {
  if (subject.length === 0 || subject.length > LONGEST_SUBJECT_BYTES) checkSubject(subject);
  for (let i = 0; i < subject.length; i++) {
    const code = subject.charCodeAt(i);
    if (code <= 32 || code >= 127) return writeOddSubject(bytes, start, subject);
    bytes[start + i] = code;
  }
  return start + subject.length;
}

function writeOddSubject(bytes: Uint8Array, start: number, subject: string): number {
  checkSubject(subject);
  return start + utf8.encodeInto(subject, bytes.subarray(start)).written;
}

function writeDecimal(bytes: Uint8Array, start: number, value: number): number {
  let digits = 1;
  for (let rest = value; rest >= 10; rest = Math.trunc(rest / 10)) digits++;
  let rest = value;
  for (let at = start + digits - 1; at >= start; at--) {
    bytes[at] = 48 + rest % 10;
    rest = Math.trunc(rest / 10);
  }
  return start + digits;
}
