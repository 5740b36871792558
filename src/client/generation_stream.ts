/** A generation as it arrives (spec/local-ingest.md 12): one connection of its own, read only as fast as the caller reads. */
import { errorText } from "../runtime/errors.ts";
import type { IngestBody } from "../wire/ingest/request.ts";
import { LocalIngestError } from "./errors.ts";
import type { Link } from "./link.ts";
import { decodeValue, type ReadValue } from "./values.ts";

/** One chunk. */
export interface GenerationChunk {
  readonly seq: number;
  /** New text since the last chunk; may be empty. */
  readonly textDelta: string;
  /** True in the last chunk. */
  readonly done: boolean;
  /** `stop`, `length`, `cancelled`, `error`, …; in the last chunk. */
  readonly finishReason: string | undefined;
  /** Everything the backend sent, e.g. `usage`, `error`, `logprobs`. */
  readonly fields: { readonly [key: string]: ReadValue };
  /** The chunk's MessagePack as it came. */
  readonly bytes: Uint8Array;
}

/** What a stream works with. */
export interface GenerationStreamParts {
  connect(): Promise<Link>;
  readonly body: IngestBody;
  /** Longest wait for one answer, in milliseconds. */
  readonly idleMs: number;
  readonly signal: AbortSignal | undefined;
}

const STREAM_ID = 1n, CANCEL_ID = 2n;

/**
 * The chunks of one generation. Iterate over it once; leaving the loop early closes the connection, by which the sidecar cancels
 * the generation. An error answer is thrown as a {@link LocalIngestError} `refused`; an error that the model reports is an ordinary
 * last chunk with `finishReason` `error`.
 */
export class GenerationStream implements AsyncIterable<GenerationChunk> {
  readonly requestId: string;
  readonly #parts: GenerationStreamParts;
  #link: Link | undefined;
  #started = false;
  #cancelWanted = false;
  #cancelSent = false;

  constructor(parts: GenerationStreamParts) {
    this.#parts = parts;
    this.requestId = parts.body.requestId;
  }

  /**
   * Asks the sidecar to end the generation. The stream goes on to its own end, normally a chunk with `finishReason` `cancelled`.
   * Before the iteration has begun, nothing is ever started.
   */
  async cancel(): Promise<void> {
    this.#cancelWanted = true;
    await this.#sendCancel();
  }

  /** Starts the generation and yields its chunks. */
  async *[Symbol.asyncIterator](): AsyncGenerator<GenerationChunk, void, undefined> {
    if (this.#started) throw new TypeError("a generation can be iterated over only once");
    this.#started = true;
    const { signal, connect, body } = this.#parts;
    if (this.#cancelWanted) return;
    if (signal?.aborted) throw abortError(signal);
    const link = await connect();
    const onAbort = () => link.close();
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      if (signal?.aborted) throw abortError(signal);
      await link.request(STREAM_ID, "publish_generate_stream", body);
      this.#link = link;
      if (this.#cancelWanted) await this.#sendCancel();
      yield* this.#chunks(link);
    } catch (thrown) {
      throw signal?.aborted ? abortError(signal, thrown) : thrown;
    } finally {
      signal?.removeEventListener("abort", onAbort);
      this.#link = undefined;
      link.close();
    }
  }

  async *#chunks(link: Link): AsyncGenerator<GenerationChunk, void, undefined> {
    for (let expected = 0;;) {
      const response = await link.response(this.#parts.idleMs);
      if (response.id === CANCEL_ID && this.#cancelSent) {
        if (response.ok) continue;
        throw new LocalIngestError("refused", response.error);
      }
      if (response.id !== STREAM_ID) throw protocolError(`an answer with the unknown id ${response.id}`);
      if (!response.ok) throw new LocalIngestError("refused", response.error);
      const { body } = response;
      if (body.kind === "final") {
        if (body.chunks === expected) return;
        throw protocolError(`the stream ended after ${expected} chunks, the sidecar says ${body.chunks}`);
      }
      if (body.kind !== "chunk") throw protocolError(`an answer of the kind ${body.kind} within a stream`);
      if (body.seq !== expected) throw protocolError(`chunk ${body.seq} came where ${expected} was due`);
      expected++;
      yield chunkOf(body.chunk, body.seq);
    }
  }

  async #sendCancel(): Promise<void> {
    const link = this.#link;
    if (link === undefined || this.#cancelSent) return;
    this.#cancelSent = true;
    await link.cancel(CANCEL_ID, this.requestId);
  }
}

function chunkOf(bytes: Uint8Array, seq: number): GenerationChunk {
  const fields = readFields(bytes);
  const finishReason = fields["finish_reason"];
  return {
    seq,
    textDelta: typeof fields["text_delta"] === "string" ? fields["text_delta"] : "",
    done: fields["done"] === true,
    finishReason: typeof finishReason === "string" ? finishReason : undefined,
    fields,
    bytes,
  };
}

function readFields(bytes: Uint8Array): { readonly [key: string]: ReadValue } {
  let value: ReadValue;
  try {
    value = decodeValue(bytes);
  } catch (thrown) {
    throw protocolError(`a chunk cannot be read: ${errorText(thrown)}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value) || value instanceof Uint8Array) {
    throw protocolError("a chunk is not a map");
  }
  return value as { readonly [key: string]: ReadValue };
}

function protocolError(message: string): LocalIngestError {
  return new LocalIngestError("protocol", message);
}

function abortError(signal: AbortSignal, cause?: unknown): LocalIngestError {
  return new LocalIngestError("aborted", `the caller gave up: ${errorText(signal.reason)}`, { cause });
}
