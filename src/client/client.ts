/**
 * The client of local ingest: work and generations for a sidecar on the same machine, without a broker (docs/local-ingest.md).
 *
 * ```ts
 * const client = new LocalIngestClient({
 *   socketPath: "/var/run/sie/ingest.sock",
 *   route: { pool: "default", machineProfile: "cpu", bundle: "default" },
 * });
 * const [result] = await client.publishWork({ operation: "encode", model: "m", inputs: [{ item: { text: "hello" } }] });
 * for await (const chunk of client.generate({ model: "m", parameters: { prompt: "Once", max_new_tokens: 8 } })) {
 *   console.log(chunk.textDelta);
 * }
 * client.close();
 * ```
 */
import { type Clock, systemClock } from "../runtime/clock.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { decodeWorkResult, type WorkResult } from "../wire/work_result_reader.ts";
import { CallLink } from "./call_link.ts";
import { LocalIngestError } from "./errors.ts";
import { GenerationStream } from "./generation_stream.ts";
import { Link } from "./link.ts";
import { generateBody, type GenerateRequest, type Route, workBody, type WorkRequest } from "./requests.ts";

/** What the sidecar may take beyond a deadline to clean up, in milliseconds. */
const CLEANUP_GRACE_MS = 11_000;
/** Longest wait for a chunk of a generation without a deadline, in milliseconds. */
const IDLE_MS = 900_000;
const PING_TIMEOUT_MS = 10_000;

/** How to reach a sidecar. */
export interface LocalIngestClientOptions {
  readonly socketPath: string;
  readonly route: Route;
  /** The clock; the system's by default. */
  readonly clock?: Clock;
  /** Makes request ids; random ones by default. */
  readonly newRequestId?: () => string;
}

/**
 * Talks to one sidecar. Calls share one connection, which is made when it is needed and again after it was lost; each generation has
 * a connection of its own.
 */
export class LocalIngestClient {
  readonly #options: LocalIngestClientOptions;
  readonly #clock: Clock;
  readonly #newRequestId: () => string;
  #calls: Promise<CallLink> | undefined;
  #closed = false;

  constructor(options: LocalIngestClientOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#newRequestId = options.newRequestId ?? randomRequestId;
  }

  /** Asks whether the sidecar answers. */
  async ping(signal?: AbortSignal): Promise<void> {
    const link = await this.#callLink();
    await link.call("ping", undefined, PING_TIMEOUT_MS, signal);
  }

  /**
   * Runs a batch.
   *
   * @returns one result per input, in their order; each says for itself whether it succeeded
   * @throws LocalIngestError when the call as a whole failed
   */
  async publishWork(request: WorkRequest, signal?: AbortSignal): Promise<WorkResult[]> {
    const requestId = request.requestId ?? this.#newRequestId();
    const body = workBody(this.#options.route, request, requestId, this.#clock.unixMs() / 1000);
    const link = await this.#callLink();
    const timeoutMs = request.timeoutMs || IngestLimits.publishWorkTimeoutDefaultMs;
    const answer = await link.call("publish_work", body, timeoutMs + CLEANUP_GRACE_MS, signal);
    if (answer.kind !== "results") throw new LocalIngestError("protocol", `an answer of the kind ${answer.kind}`);
    const results = readResults(answer.results);
    if (results.length !== request.inputs.length) {
      throw new LocalIngestError("protocol", `${results.length} results for ${request.inputs.length} inputs`);
    }
    return results;
  }

  /** A generation; it starts when the iteration over it does. */
  generate(request: GenerateRequest, signal?: AbortSignal): GenerationStream {
    const requestId = request.requestId ?? this.#newRequestId();
    return new GenerationStream({
      connect: () => this.#open(),
      body: generateBody(this.#options.route, request, requestId, this.#clock.unixMs() / 1000),
      idleMs: request.timeoutMs ? request.timeoutMs + CLEANUP_GRACE_MS : IDLE_MS,
      signal,
    });
  }

  /** Closes the shared connection; calls that wait fail. Generations go on. */
  close(): void {
    this.#closed = true;
    this.#calls?.then((link) => link.close(), () => {});
    this.#calls = undefined;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #open(): Promise<Link> {
    if (this.#closed) return Promise.reject(new LocalIngestError("closed", "the client was closed"));
    return Link.open(this.#options.socketPath, this.#clock);
  }

  async #callLink(): Promise<CallLink> {
    const known = this.#calls;
    if (known !== undefined && !(await known).closed) return await known;
    // Whoever comes first makes the new connection; the others wait for it.
    if (this.#calls === known) {
      const opening = this.#open().then((link) => new CallLink(link, this.#clock));
      opening.catch(() => {
        if (this.#calls === opening) this.#calls = undefined;
      });
      this.#calls = opening;
    }
    return await this.#callLink();
  }
}

function readResults(bytes: Uint8Array): WorkResult[] {
  try {
    const reader = new MsgpackReader(bytes);
    const results: WorkResult[] = [];
    for (let left = reader.arrayHeader(); left > 0; left--) {
      const start = reader.pos;
      reader.skip();
      results.push(decodeWorkResult(bytes.subarray(start, reader.pos)));
    }
    return results;
  } catch (cause) {
    throw new LocalIngestError("protocol", "the results cannot be read", { cause });
  }
}

function randomRequestId(): string {
  return `local-${crypto.randomUUID()}`;
}
