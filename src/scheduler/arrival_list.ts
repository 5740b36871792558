/** Entries in the order in which they arrived, threaded through the entries themselves: append and unlink cost O(1). */

/** Links of an entry; written by the list only. */
export interface ArrivalLinks<E> {
  older: E | undefined;
  newer: E | undefined;
}

/** A doubly linked list from the oldest to the newest entry. An entry is in at most one list. */
export class ArrivalList<E extends ArrivalLinks<E>> {
  #oldest: E | undefined;
  #newest: E | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get oldest(): E | undefined {
    return this.#oldest;
  }

  get newest(): E | undefined {
    return this.#newest;
  }

  append(entry: E): void {
    entry.older = this.#newest;
    entry.newer = undefined;
    if (this.#newest === undefined) this.#oldest = entry;
    else this.#newest.newer = entry;
    this.#newest = entry;
    this.#size++;
  }

  /** Takes out an entry of this list and clears its links, so that it keeps no neighbour alive. */
  unlink(entry: E): void {
    const { older, newer } = entry;
    if (older === undefined) this.#oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
    entry.older = undefined;
    entry.newer = undefined;
    this.#size--;
  }
}
