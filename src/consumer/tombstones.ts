/**
 * What has been cancelled and must not run any more (spec/queue.md 7.2 and 7.3). Bounded in number and in time. Pure but for the
 * time that is passed in.
 */

/** Longest life of an entry, in milliseconds: thirty days. */
const LONGEST_TTL_MS = 30 * 24 * 3600 * 1000;

/** Entries of all kinds. */
export const TOMBSTONE_CAP = 100_000;

/** A set of keys that expire. A key that is added again lives from then on; at the cap the oldest leaves. */
export class Tombstones {
  readonly #ttlMs: number;
  readonly #cap: number;
  /** Time of expiry per key, oldest first: a key that is refreshed moves to the end. */
  readonly #expiry = new Map<string, number>();

  /**
   * @param ttlMs life of an entry in milliseconds, capped at thirty days; 0: entries are gone at once
   * @param cap most entries; 0: nothing is kept
   */
  constructor(ttlMs: number, cap: number = TOMBSTONE_CAP) {
    this.#ttlMs = Math.min(Math.max(ttlMs, 0), LONGEST_TTL_MS);
    this.#cap = cap;
  }

  /** Entries held, expired ones that have not been noticed included. */
  get size(): number {
    return this.#expiry.size;
  }

  /** Adds or refreshes a key. */
  add(key: string, now: number): void {
    this.#expiry.delete(key);
    this.#dropExpired(now);
    if (this.#cap === 0 || this.#ttlMs === 0) return;
    if (this.#expiry.size >= this.#cap) this.#dropOldest();
    this.#expiry.set(key, now + this.#ttlMs);
  }

  /** Whether a key is there and alive. */
  has(key: string, now: number): boolean {
    const expiry = this.#expiry.get(key);
    if (expiry === undefined) return false;
    if (expiry > now) return true;
    this.#expiry.delete(key);
    return false;
  }

  /** Removes expired entries; all have the same life, so they are the first ones. */
  #dropExpired(now: number): void {
    for (const [key, expiry] of this.#expiry) {
      if (expiry > now) return;
      this.#expiry.delete(key);
    }
  }

  #dropOldest(): void {
    for (const key of this.#expiry.keys()) {
      this.#expiry.delete(key);
      return;
    }
  }
}
