/** A heap whose entries know their place, so that any of them can be removed or moved in O(log n) without being searched. */

/** Value of {@link HeapEntry.heapIndex} while an entry is in no heap. */
export const NOT_IN_HEAP = -1;

/** What an entry carries for the heap. Entries compare by `rank`, then by `sequence`; both must be constant inside. */
export interface HeapEntry {
  readonly rank: number;
  readonly sequence: number;
  /** Written by the heap only. */
  heapIndex: number;
}

/** A binary min-heap ordered by (rank, sequence). Entries are in at most one heap at a time. */
export class IndexedHeap<E extends HeapEntry> {
  readonly #entries: E[] = [];

  get size(): number {
    return this.#entries.length;
  }

  /** The least entry, or undefined when empty. */
  peek(): E | undefined {
    return this.#entries[0];
  }

  push(entry: E): void {
    this.#entries.push(entry);
    this.#siftUp(entry, this.#entries.length - 1);
  }

  /** Removes and returns the least entry. */
  pop(): E | undefined {
    const least = this.#entries[0];
    if (least !== undefined) this.remove(least);
    return least;
  }

  /** Removes an entry of this heap. */
  remove(entry: E): void {
    const index = entry.heapIndex;
    entry.heapIndex = NOT_IN_HEAP;
    const last = this.#entries.pop();
    if (last === undefined || last === entry) return;
    const parent = this.#entries[(index - 1) >> 1];
    if (index > 0 && parent !== undefined && isBefore(last, parent)) this.#siftUp(last, index);
    else this.#siftDown(last, index);
  }

  /** Puts `entry`, which belongs at `index` or nearer to the root, in its place. */
  #siftUp(entry: E, index: number): void {
    const entries = this.#entries;
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = entries[parentIndex];
      if (parent === undefined || !isBefore(entry, parent)) break;
      entries[index] = parent;
      parent.heapIndex = index;
      index = parentIndex;
    }
    entries[index] = entry;
    entry.heapIndex = index;
  }

  /** Puts `entry`, which belongs at `index` or further from the root, in its place. */
  #siftDown(entry: E, index: number): void {
    const entries = this.#entries;
    for (;;) {
      const left = entries[2 * index + 1];
      if (left === undefined) break;
      const right = entries[2 * index + 2];
      const least = right !== undefined && isBefore(right, left) ? right : left;
      if (!isBefore(least, entry)) break;
      const leastIndex = least.heapIndex;
      entries[index] = least;
      least.heapIndex = index;
      index = leastIndex;
    }
    entries[index] = entry;
    entry.heapIndex = index;
  }
}

function isBefore(a: HeapEntry, b: HeapEntry): boolean {
  return a.rank < b.rank || (a.rank === b.rank && a.sequence < b.sequence);
}
