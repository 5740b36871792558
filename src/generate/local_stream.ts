/**
 * The rules of a stream on the local lane (spec/generation.md 7, spec/ipc.md 5.6) as a state machine without effects: one event in,
 * what to do about it out. Streaming → AwaitingChunkAck → Complete, or → AwaitingRetryAck → Retry.
 */
import type { GenerateEvent } from "../ipc/backend.ts";
import { type Publication, readPublication } from "../wire/generate_chunk.ts";
import { quoted } from "../wire/ingest/quoted.ts";
import { MsgpackError } from "../wire/msgpack/errors.ts";

/** Limits of what identifies an attempt and names a reason, in bytes. */
const ATTEMPT_ID_BYTES = 128, REASON_BYTES = 64;

const utf8 = new TextEncoder();

type Phase =
  | { readonly kind: "Streaming" | "AwaitingChunkAck" | "Complete" }
  | { readonly kind: "AwaitingRetryAck" | "Retry"; readonly reason: string };

/** What an event asks for: a chunk to pass on, nothing, or the end of the stream because it broke a rule. */
export type StreamStep =
  | { readonly kind: "chunk"; readonly seq: number }
  | { readonly kind: "go_on" }
  | { readonly kind: "violation"; readonly message: string };

/** What a stream came to when the backend has ended it. */
export type StreamEnd =
  | { readonly kind: "complete"; readonly chunks: number }
  | { readonly kind: "retry"; readonly reason: string }
  /** `phase` as error texts name it. */
  | { readonly kind: "incomplete"; readonly phase: string };

const STREAMING: Phase = { kind: "Streaming" };
const AWAITING_CHUNK_ACK: Phase = { kind: "AwaitingChunkAck" };
const COMPLETE: Phase = { kind: "Complete" };
const GO_ON: StreamStep = { kind: "go_on" };

/** Follows one stream. */
export class LocalStream {
  readonly #requestId: string;
  readonly #replySubject: string;
  #phase: Phase = STREAMING;
  #attemptId: string | undefined;
  #chunks = 0;

  /** @param replySubject the one that the backend was given */
  constructor(requestId: string, replySubject: string) {
    this.#requestId = requestId;
    this.#replySubject = replySubject;
  }

  /** Takes one event other than `done`. After a violation the stream is over. */
  step(event: Exclude<GenerateEvent, { readonly kind: "done" }>): StreamStep {
    switch (event.kind) {
      case "publish":
        return event.replySubject === this.#replySubject
          ? this.#publication(event.payload)
          : violation("generation publish reply_subject mismatch");
      case "ack":
        return this.#ack();
      case "nak":
        return this.#nak();
      case "in_progress":
        return this.#phase === STREAMING
          ? GO_ON
          : violation(`generation progress violated terminal/settlement ordering in phase ${this.#phaseText()}`);
      case "unknown":
        return violation(`unknown ProcessGenerate event ${quoted(event.name)}`);
    }
  }

  /** The backend's `done`. */
  end(): StreamEnd {
    if (this.#phase === COMPLETE) return { kind: "complete", chunks: this.#chunks };
    if (this.#phase.kind === "Retry") return { kind: "retry", reason: this.#phase.reason };
    return { kind: "incomplete", phase: this.#phaseText() };
  }

  #ack(): StreamStep {
    if (this.#phase === AWAITING_CHUNK_ACK) this.#phase = COMPLETE;
    else if (this.#phase.kind === "AwaitingRetryAck") this.#phase = { kind: "Retry", reason: this.#phase.reason };
    else return violation(`generation ACK violated publication/settlement ordering in phase ${this.#phaseText()}`);
    return GO_ON;
  }

  #nak(): StreamStep {
    if (this.#phase !== STREAMING || this.#chunks > 0) {
      return violation(`generation NAK violated publication/settlement ordering in phase ${this.#phaseText()}`);
    }
    this.#phase = { kind: "Retry", reason: "backend_redelivery" };
    return GO_ON;
  }

  #publication(payload: Uint8Array): StreamStep {
    let found: Publication | undefined;
    try {
      found = readPublication(payload);
    } catch (thrown) {
      if (!(thrown instanceof MsgpackError)) throw thrown;
      return violation(`generation publication is not msgpack: ${thrown.message}`);
    }
    if (found === undefined) return violation("generation publication is not a msgpack map");
    if (found.repeated !== undefined) {
      return violation(`generation chunk contains duplicate ${quoted(found.repeated)} field`);
    }
    if (found.kind === undefined) return violation("generation publication kind must be a string");
    if (found.kind === "chunk") return this.#chunk(found);
    if (found.kind === "nak") return this.#semanticNak(found);
    return violation(`unexpected generation publication kind ${quoted(found.kind)}`);
  }

  #chunk(found: Publication): StreamStep {
    if (this.#phase !== STREAMING) {
      return violation(`generation emitted a chunk after terminal/settlement phase ${this.#phaseText()}`);
    }
    const stranger = this.#identityFault(found, "chunk");
    if (stranger !== undefined) return violation(stranger);
    const { seq, done } = found;
    if (seq === undefined) return violation("generation chunk seq must be a u32");
    if (seq !== this.#chunks) return violation(`generation chunk seq gap: got ${seq}, expected ${this.#chunks}`);
    if (done === undefined) return violation("generation chunk done must be a bool");
    this.#chunks++;
    if (done) this.#phase = AWAITING_CHUNK_ACK;
    return { kind: "chunk", seq };
  }

  #semanticNak(found: Publication): StreamStep {
    if (this.#phase !== STREAMING || this.#chunks > 0) {
      return violation(`generation emitted a semantic NAK after output/settlement phase ${this.#phaseText()}`);
    }
    const stranger = this.#identityFault(found, "NAK");
    if (stranger !== undefined) return violation(stranger);
    if (!isBounded(found.reason, REASON_BYTES)) return violation("generation NAK reason is invalid");
    this.#phase = { kind: "AwaitingRetryAck", reason: found.reason };
    return GO_ON;
  }

  /** Why a publication is not one of this stream's attempt. The first one names the attempt. */
  #identityFault(found: Publication, what: "chunk" | "NAK"): string | undefined {
    if (found.requestId === undefined) return `generation ${what} request_id must be a string`;
    if (found.requestId !== this.#requestId) return `generation ${what} request_id mismatch`;
    if (found.attemptId === this.#attemptId && this.#attemptId !== undefined) return undefined;
    if (!isBounded(found.attemptId, ATTEMPT_ID_BYTES)) return `generation ${what} attempt_id is invalid`;
    if (this.#attemptId !== undefined) return `generation ${what} attempt_id changed within stream`;
    this.#attemptId = found.attemptId;
    return undefined;
  }

  #phaseText(): string {
    const phase = this.#phase;
    return "reason" in phase ? `${phase.kind} { reason: ${quoted(phase.reason)} }` : phase.kind;
  }
}

/** Whether a text has 1 to `most` bytes. */
function isBounded(text: string | undefined, most: number): text is string {
  if (text === undefined || text === "" || text.length > most) return false;
  return utf8.encode(text).length <= most;
}

function violation(message: string): StreamStep {
  return { kind: "violation", message };
}
