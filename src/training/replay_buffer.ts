/** The memory of past samples that keeps narrow bursts from overwriting what was learnt (online-training.md, section 2.4). */
import { TrainingError } from "./errors.ts";
import { type Random, randomBelow } from "./random.ts";

/** A ring of the last `capacity` items, drawn from uniformly. */
export class ReplayBuffer<Item> {
  readonly capacity: number;
  readonly #items: Item[] = [];
  /** A permutation of the filled slots; drawing shuffles its front, so a draw needs no memory of its own. */
  readonly #order: number[] = [];
  #oldest = 0;
  #pushed = 0;
  #evicted = 0;

  /** @throws TrainingError `invalid_settings` when `capacity` is not positive. */
  constructor(capacity: number) {
    if (!(capacity > 0)) throw new TrainingError("invalid_settings", `capacity must be positive, got ${capacity}`);
    this.capacity = capacity;
  }

  /** Items held now. */
  get size(): number {
    return this.#items.length;
  }
  /** Items ever pushed. */
  get totalPushed(): number {
    return this.#pushed;
  }
  /** Items pushed out by newer ones. */
  get totalEvicted(): number {
    return this.#evicted;
  }

  /** Adds an item; a full buffer loses its oldest. Returns whether one was lost. */
  push(item: Item): boolean {
    this.#pushed++;
    if (this.#items.length < this.capacity) {
      this.#order.push(this.#items.length);
      this.#items.push(item);
      return false;
    }
    this.#items[this.#oldest] = item;
    this.#oldest = (this.#oldest + 1) % this.capacity;
    this.#evicted++;
    return true;
  }

  /**
   * Draws `count` items uniformly into `into` from `offset` on: without replacement when so many are held, otherwise with
   * replacement, so that a batch is always full. An empty buffer gives none.
   *
   * @returns the number of items drawn: `count`, or 0.
   */
  draw(count: number, random: Random, into: Item[], offset: number): number {
    const size = this.#items.length;
    if (size === 0) return 0;
    if (count > size) {
      for (let i = 0; i < count; i++) into[offset + i] = this.#items[randomBelow(random, size)] as Item;
      return count;
    }
    for (let i = 0; i < count; i++) {
      const other = i + randomBelow(random, size - i);
      const slot = this.#order[other] as number;
      this.#order[other] = this.#order[i] as number;
      this.#order[i] = slot;
      into[offset + i] = this.#items[slot] as Item;
    }
    return count;
  }

  /** The items from oldest to newest, as an independent copy. */
  toArray(): Item[] {
    return [...this.#items.slice(this.#oldest), ...this.#items.slice(0, this.#oldest)];
  }
}
