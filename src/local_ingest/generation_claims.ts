/**
 * Request ids of running generations, over all connections: the backend's cancel knows nothing but the request id, so two
 * generations with the same one could not be told apart (spec/local-ingest.md 7.1).
 */
export class GenerationClaims {
  readonly #claimed = new Set<string>();

  /** Generations that are running. */
  get size(): number {
    return this.#claimed.size;
  }

  /** Claims a request id; false when it is claimed already. */
  claim(requestId: string): boolean {
    if (this.#claimed.has(requestId)) return false;
    this.#claimed.add(requestId);
    return true;
  }

  /** Gives a claimed id back: the terminal of its stream has been written, or never will be. */
  release(requestId: string): void {
    this.#claimed.delete(requestId);
  }
}
