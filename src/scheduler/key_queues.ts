/**
 * What waits for one model: a batch former per key, the keys ordered by their oldest item, and the limits that the formers read.
 * Finding the key to serve costs O(1), O(log k) with k keys after items left it; an empty key costs nothing.
 */
import { type BatchConfig, type BatchLimits, checkBatchConfig } from "./batch_config.ts";
import { BatchFormer, PendingEntry, type TakenItems } from "./batch_former.ts";
import type { FitsPrefix } from "./batch_shape.ts";
import { IndexedHeap } from "./indexed_heap.ts";
import type { BatchKey, Operation, Schedulable } from "./schedulable.ts";

/** The formers of one model. */
export class KeyQueues<T extends Schedulable> {
  readonly #configs: Record<Operation, { current: BatchConfig }>;
  readonly #formers: Record<Operation, Map<string, BatchFormer<T>>> = {
    encode: new Map(),
    score: new Map(),
    extract: new Map(),
  };
  /** Formers with waiting items, the one with the oldest item first. */
  readonly #heads = new IndexedHeap<BatchFormer<T>>();
  #pendingItems = 0;
  #pendingCost = 0;
  #sequence = 0;

  /** @throws BatchConfigError */
  constructor(config: BatchConfig) {
    checkBatchConfig(config);
    this.#configs = { encode: { current: config }, score: { current: config }, extract: { current: config } };
  }

  /** Number of waiting items. */
  get pendingItems(): number {
    return this.#pendingItems;
  }

  /** Sum of their costs. */
  get pendingCost(): number {
    return this.#pendingCost;
  }

  /** Number of formers in memory. */
  get keyCount(): number {
    return this.#formers.encode.size + this.#formers.score.size + this.#formers.extract.size;
  }

  /** The former with the oldest waiting item (6.2), undefined when nothing waits. */
  get oldest(): BatchFormer<T> | undefined {
    return this.#heads.peek();
  }

  /** Limits of an operation in force. */
  config(operation: Operation): BatchConfig {
    return this.#configs[operation].current;
  }

  /** Replaces the limits that may move, for all formers. Throws BatchConfigError, without effect, for unusable ones. */
  setLimits({ maxBatchCost, maxBatchWaitMs }: BatchLimits): void {
    checkBatchConfig({ ...this.config("encode"), maxBatchCost, maxBatchWaitMs });
    for (const holder of Object.values(this.#configs)) {
      holder.current = { ...holder.current, maxBatchCost, maxBatchWaitMs };
    }
  }

  /** Makes every item of an operation a batch of its own. */
  separate(operation: Operation): void {
    const holder = this.#configs[operation];
    holder.current = { ...holder.current, maxBatchRequests: 1 };
  }

  /** Number of items that wait under a key. */
  countOf(key: BatchKey): number {
    return this.#formers[key.operation].get(key.lora)?.count ?? 0;
  }

  /**
   * Appends items of one key; see {@link BatchFormer.submit}.
   *
   * @throws UnschedulableItemError; then none of them was appended
   */
  submit(key: BatchKey, items: readonly T[], now: number): void {
    const former = this.#formerFor(key);
    const countBefore = former.count;
    const costBefore = former.cost;
    try {
      former.submit(items, now, this.#sequence);
    } finally {
      this.#dropIfEmpty(former);
    }
    this.#sequence += items.length;
    this.#pendingItems += items.length;
    this.#pendingCost += former.cost - costBefore;
    if (countBefore === 0 && former.count > 0) {
      former.anchor();
      this.#heads.push(former);
    }
  }

  /** Takes a batch of a key, due or not; undefined when nothing waits under it. See {@link BatchFormer.take}. */
  take(key: BatchKey, maxItems = Infinity, fits?: FitsPrefix): TakenItems<T> | undefined {
    const former = this.#formers[key.operation].get(key.lora);
    const taken = former?.take(maxItems, fits);
    if (former === undefined || taken === undefined) return undefined;
    this.#pendingItems -= taken.items.length;
    this.#pendingCost -= taken.totalCost;
    this.#afterLeaving(former);
    return taken;
  }

  /** Takes out one item; false when it does not wait here. */
  remove(item: T): boolean {
    const entry = item.queueEntry;
    const former = entry instanceof PendingEntry && this.#isOwn(entry.former) ? entry.former : undefined;
    if (former === undefined || !former.remove(item)) return false;
    this.#pendingItems--;
    this.#pendingCost -= item.cost;
    this.#afterLeaving(former);
    return true;
  }

  /** Everything that waits, key by key. */
  list(): T[] {
    const items: T[] = [];
    for (const formers of Object.values(this.#formers)) for (const former of formers.values()) former.list(items);
    return items;
  }

  /** Takes out everything: oldest key first, within a key in arrival order. */
  removeAll(): T[] {
    const items: T[] = [];
    for (let former = this.#heads.pop(); former !== undefined; former = this.#heads.pop()) {
      former.removeAll(items);
      this.#dropIfEmpty(former);
    }
    this.#pendingItems = 0;
    this.#pendingCost = 0;
    return items;
  }

  #formerFor(key: BatchKey): BatchFormer<T> {
    const formers = this.#formers[key.operation];
    let former = formers.get(key.lora);
    if (former === undefined) {
      former = new BatchFormer(key, this.#configs[key.operation], this);
      formers.set(key.lora, former);
    }
    return former;
  }

  #isOwn(former: BatchFormer<Schedulable>): former is BatchFormer<T> {
    return former.owner === this;
  }

  /** The former's oldest item may be another one now, or none. */
  #afterLeaving(former: BatchFormer<T>): void {
    this.#heads.remove(former);
    if (former.count > 0) {
      former.anchor();
      this.#heads.push(former);
    } else {
      this.#dropIfEmpty(former);
    }
  }

  /**
   * Forgets an empty former. LoRA names come from clients, so they must not pile up in memory; the three base keys stay, with the
   * one thing that an empty former remembers, whose turn it is (5.5).
   */
  #dropIfEmpty(former: BatchFormer<T>): void {
    const { operation, lora } = former.key;
    if (former.count === 0 && lora !== "") this.#formers[operation].delete(lora);
  }
}
