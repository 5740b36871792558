/**
 * What a gateway makes of the publications of one generation (spec/generation.md 9): one attempt is listened to, its chunks have to
 * come in order, and a worker's refusal sends the work to the pool, once. Pure.
 */

/** What the rules look at in a chunk. */
export interface ChunkMark {
  readonly attemptId: string;
  readonly seq: number;
  readonly done: boolean;
}

/**
 * What becomes of a chunk: `delta` and `terminal` go to the client; `stale` (another attempt's) and `duplicate` are dropped;
 * `seq_gap` ends the stream with `transport_failure`; `late` came after the end.
 */
export type ChunkVerdict = "delta" | "terminal" | "stale" | "duplicate" | "seq_gap" | "late";

/**
 * What becomes of a worker's refusal: the work is sent to the pool (`republish`); the client is told to come back later
 * (`rate_limited`), because that was done before; it is another attempt's (`stale`), or came after the end (`late`).
 */
export type NakVerdict = "republish" | "rate_limited" | "stale" | "late";

/** Collects one generation. */
export class StreamCollector {
  /** The attempt that is listened to: the first one heard of. */
  #attempt: string | undefined;
  readonly #abandoned = new Set<string>();
  #lastSeq: number | undefined;
  #ended = false;
  #republished = false;

  /** Whether the stream has ended, in whichever way. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Whether the work was sent to the pool again, which happens once at most. */
  get republished(): boolean {
    return this.#republished;
  }

  /** Takes a chunk. Terminal ones may come with any number, since what is missing no longer matters. */
  takeChunk({ attemptId, seq, done }: ChunkMark): ChunkVerdict {
    if (!this.#isOurs(attemptId)) return "stale";
    if (this.#ended) return "late";
    this.#attempt = attemptId;
    if (done) {
      this.#ended = true;
      return "terminal";
    }
    if (this.#lastSeq !== undefined && seq <= this.#lastSeq) return "duplicate";
    if (this.#lastSeq !== undefined && seq !== this.#lastSeq + 1) {
      this.#ended = true;
      return "seq_gap";
    }
    this.#lastSeq = seq;
    return "delta";
  }

  /** Takes a worker's refusal. */
  takeNak(attemptId: string): NakVerdict {
    if (!this.#isOurs(attemptId)) return "stale";
    if (this.#ended) return "late";
    if (this.#republished) {
      this.#ended = true;
      return "rate_limited";
    }
    this.#attempt = attemptId;
    this.republish();
    return "republish";
  }

  /**
   * The work goes to the pool: after a refusal, or because no chunk came in time. What still comes of the attempt so far is ignored.
   *
   * @returns false when it must not: it has been done before, or the stream has ended
   */
  republish(): boolean {
    if (this.#republished || this.#ended) return false;
    this.#republished = true;
    if (this.#attempt !== undefined) this.#abandoned.add(this.#attempt);
    this.#attempt = undefined;
    this.#lastSeq = undefined;
    return true;
  }

  #isOurs(attemptId: string): boolean {
    return !this.#abandoned.has(attemptId) && (this.#attempt === undefined || this.#attempt === attemptId);
  }
}
