/**
 * Forms batches out of the items of one key (spec/scheduler.md 5): pure and synchronous, time is an argument.
 *
 * With n items waiting and a batch of b: an item costs O(log n) to append (O(1) when it is no cheaper than what waits), taking a
 * batch O(b log n), removing an item O(log n), asking whether a batch is due O(1). One object per item is allocated.
 */
import { ArrivalList } from "./arrival_list.ts";
import type { FlushReason } from "./batch.ts";
import { type BatchConfig, effectiveCoalesceMs } from "./batch_config.ts";
import type { FitsPrefix } from "./batch_shape.ts";
import { UnschedulableItemError } from "./errors.ts";
import { HardCaps } from "./hard_caps.ts";
import { type HeapEntry, IndexedHeap, NOT_IN_HEAP } from "./indexed_heap.ts";
import type { BatchKey, Schedulable } from "./schedulable.ts";

/** Where a former reads its limits. Shared by many formers, so that a change of the limits reaches all of them at once. */
export interface BatchConfigSource {
  readonly current: BatchConfig;
}

/** Items taken out of a former, cheapest first. */
export interface TakenItems<T> {
  readonly items: T[];
  readonly totalCost: number;
}

/** An item while it waits. */
export class PendingEntry<T extends Schedulable> implements HeapEntry {
  readonly item: T;
  readonly former: BatchFormer<T>;
  /** Clock time of the submission, in milliseconds. */
  readonly arrival: number;
  readonly sequence: number;
  /** Shared items leave cheapest first. Those that run alone leave in arrival order: they all rank equal. */
  readonly rank: number;
  heapIndex = NOT_IN_HEAP;
  older: PendingEntry<T> | undefined = undefined;
  newer: PendingEntry<T> | undefined = undefined;

  constructor(item: T, former: BatchFormer<T>, arrival: number, sequence: number) {
    this.item = item;
    this.former = former;
    this.arrival = arrival;
    this.sequence = sequence;
    this.rank = item.runsAlone ? 0 : item.cost;
  }
}

/** The batch former of one key. */
export class BatchFormer<T extends Schedulable> implements HeapEntry {
  readonly key: BatchKey;
  /** Whoever made the former; lets it recognise its own. */
  readonly owner: object;
  /** Place among the owner's formers: the sequence number of the oldest waiting item, as of the last {@link anchor}. */
  rank = 0;
  readonly sequence = 0;
  heapIndex = NOT_IN_HEAP;

  readonly #config: BatchConfigSource;
  readonly #arrivals = new ArrivalList<PendingEntry<T>>();
  /** Every waiting item is in one of the two lanes (5.5). */
  readonly #shared = new IndexedHeap<PendingEntry<T>>();
  readonly #alone = new IndexedHeap<PendingEntry<T>>();
  readonly #hardCaps = new HardCaps();
  #cost = 0;
  /** Lane of the previous batch, undefined before the first. */
  #lastBatchAlone: boolean | undefined = undefined;

  constructor(key: BatchKey, config: BatchConfigSource, owner: object) {
    this.key = key;
    this.#config = config;
    this.owner = owner;
  }

  /** Number of waiting items. */
  get count(): number {
    return this.#arrivals.size;
  }

  /** Sum of the costs of the waiting items. */
  get cost(): number {
    return this.#cost;
  }

  /** Arrival of the oldest waiting item in milliseconds, undefined when nothing waits. */
  get firstArrival(): number | undefined {
    return this.#arrivals.oldest?.arrival;
  }

  /** Arrival of the newest waiting item in milliseconds, undefined when nothing waits. */
  get lastArrival(): number | undefined {
    return this.#arrivals.newest?.arrival;
  }

  /** Largest cost of a batch as things stand: the configured cap, or the lowest hard cap of anything that waits. */
  get costCap(): number {
    return Math.min(this.#config.current.maxBatchCost, this.#hardCaps.lowest);
  }

  /** Clock time at which a timer makes a batch due (rules 4 and 5), undefined when nothing waits. */
  get dueAt(): number | undefined {
    const { oldest, newest } = this.#arrivals;
    if (oldest === undefined || newest === undefined) return undefined;
    const config = this.#config.current;
    return Math.min(oldest.arrival + config.maxBatchWaitMs, newest.arrival + effectiveCoalesceMs(config));
  }

  /** Moves the former's {@link rank} to its oldest waiting item. Not while the former is in a heap. */
  anchor(): void {
    this.rank = this.#arrivals.oldest?.sequence ?? 0;
  }

  /**
   * Appends items in one step: no batch is cut between them.
   *
   * @param now clock time in milliseconds, not below that of an earlier call
   * @param sequence number of the first item; the following ones count up. Above all earlier numbers
   * @throws UnschedulableItemError for a broken cost or an item that waits already; then none of them was appended
   */
  submit(items: readonly T[], now: number, sequence: number): void {
    for (const item of items) checkItem(item);
    for (const item of items) {
      if (item.queueEntry !== undefined) {
        // It stands in the list twice, which the first pass cannot see.
        for (const earlier of items) this.remove(earlier);
        throw new UnschedulableItemError("the same item was submitted twice in one list");
      }
      const entry = new PendingEntry(item, this, now, sequence++);
      item.queueEntry = entry;
      this.#arrivals.append(entry);
      (item.runsAlone ? this.#alone : this.#shared).push(entry);
      if (item.hardCostCap !== Infinity) this.#hardCaps.add(item.hardCostCap);
      this.#cost += item.cost;
    }
  }

  /**
   * Whether a batch is due (5.2), and why.
   *
   * @param immediate whether anything that waits is due (idle bypass)
   */
  dueReason(now: number, immediate: boolean): FlushReason | undefined {
    const { oldest, newest, size } = this.#arrivals;
    if (oldest === undefined || newest === undefined) return undefined;
    const config = this.#config.current;
    const cap = this.costCap;
    if (size === 1 && this.#cost > cap) return "single_oversize";
    if (this.#cost >= cap) return "cost_cap";
    if (size >= config.maxBatchRequests) return "count_cap";
    if (now >= oldest.arrival + config.maxBatchWaitMs) return "timeout";
    if (now >= newest.arrival + effectiveCoalesceMs(config)) return "coalesce";
    return immediate ? "idle_bypass" : undefined;
  }

  /**
   * Takes a batch (5.3) whether one is due or not. Undefined when nothing waits or `maxItems` is below 1.
   *
   * @param fits shortens the batch to the largest one for which it holds, found by halving; to one item when there is none
   */
  take(maxItems = Infinity, fits?: FitsPrefix): TakenItems<T> | undefined {
    if (this.count === 0 || maxItems < 1) return undefined;
    // Before anything leaves: a low hard cap shrinks the batch even if its item is not taken.
    const cap = this.costCap;
    if (this.#isAloneTurn()) {
      const entry = this.#alone.pop();
      if (entry === undefined) return undefined;
      this.#forget(entry);
      this.#lastBatchAlone = true;
      return { items: [entry.item], totalCost: entry.item.cost };
    }
    const most = Math.min(maxItems, Math.max(this.#config.current.maxBatchRequests, 1));
    const taken: PendingEntry<T>[] = [];
    let totalCost = 0;
    while (taken.length < most) {
      const entry = this.#shared.peek();
      // The first one leaves whatever it costs. Behind one that does not fit, nothing is cheaper.
      if (entry === undefined || (taken.length > 0 && totalCost + entry.item.cost > cap)) break;
      this.#shared.pop();
      taken.push(entry);
      totalCost += entry.item.cost;
    }
    if (fits !== undefined) totalCost -= this.#putBack(taken, fittingCount(this.key, taken, totalCost, fits));
    const items: T[] = [];
    for (const entry of taken) {
      this.#forget(entry);
      items.push(entry.item);
    }
    this.#lastBatchAlone = false;
    return { items, totalCost };
  }

  /** Takes out one waiting item; false when it does not wait in this former. */
  remove(item: T): boolean {
    const entry = item.queueEntry;
    if (!(entry instanceof PendingEntry) || entry.former !== this) return false;
    (item.runsAlone ? this.#alone : this.#shared).remove(entry);
    this.#forget(entry);
    return true;
  }

  /** Lists what waits, in arrival order. */
  list(into: T[]): void {
    for (let entry = this.#arrivals.oldest; entry !== undefined; entry = entry.newer) into.push(entry.item);
  }

  /** Takes out everything, in arrival order. */
  removeAll(into: T[]): void {
    for (let entry = this.#arrivals.oldest; entry !== undefined; entry = this.#arrivals.oldest) {
      into.push(entry.item);
      this.remove(entry.item);
    }
  }

  /** Lanes take turns, batch by batch; the first turn is that of the oldest item (5.5). */
  #isAloneTurn(): boolean {
    if (this.#alone.size === 0) return false;
    if (this.#shared.size === 0) return true;
    if (this.#lastBatchAlone !== undefined) return !this.#lastBatchAlone;
    // Of items that arrived together a shared one counts as the oldest.
    const arrival = this.firstArrival;
    let entry = this.#arrivals.oldest;
    while (entry !== undefined && entry.item.runsAlone && entry.arrival === arrival) entry = entry.newer;
    return entry?.arrival !== arrival;
  }

  /** Cuts `taken` to its first `count` entries; the others wait on as if they had never left. Returns their cost. */
  #putBack(taken: PendingEntry<T>[], count: number): number {
    let cost = 0;
    for (const entry of taken.splice(count)) {
      this.#shared.push(entry);
      cost += entry.item.cost;
    }
    return cost;
  }

  /** Everything but the lane. */
  #forget(entry: PendingEntry<T>): void {
    const { item } = entry;
    item.queueEntry = undefined;
    this.#arrivals.unlink(entry);
    if (item.hardCostCap !== Infinity) this.#hardCaps.remove(item.hardCostCap);
    this.#cost -= item.cost;
  }
}

/**
 * How many of the entries, cheapest first, make the largest batch that fits. What fits is assumed to do so when shortened; where it
 * does not, the batch that is found fits all the same.
 */
function fittingCount<T extends Schedulable>(
  key: BatchKey,
  entries: readonly PendingEntry<T>[],
  totalCost: number,
  fits: FitsPrefix,
): number {
  const longestOf = (count: number) => entries[count - 1]?.item.cost ?? 0;
  if (entries.length < 2 || fits(key, entries.length, totalCost, longestOf(entries.length))) return entries.length;
  const costs = new Float64Array(entries.length + 1);
  for (const [index, { item }] of entries.entries()) costs[index + 1] = (costs[index] ?? 0) + item.cost;
  let most = 1, tooMany = entries.length;
  while (tooMany - most > 1) {
    const middle = (most + tooMany) >> 1;
    if (fits(key, middle, costs[middle] ?? 0, longestOf(middle))) most = middle;
    else tooMany = middle;
  }
  return most;
}

function checkItem(item: Schedulable): void {
  if (!Number.isSafeInteger(item.cost) || item.cost < 0) {
    throw new UnschedulableItemError(`the cost of an item must be a whole number of at least 0, got ${item.cost}`);
  }
  if (item.queueEntry !== undefined) throw new UnschedulableItemError("the item waits already");
}
