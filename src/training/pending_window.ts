/**
 * Queue, ownership and backpressure of admitted samples, as a state machine without effects (online-training.md,
 * section 2.6). There is at most one owner: whoever was handed a window commits or restores it.
 *
 * A reserved window stays at the front of the queue until it is committed, so restoring it moves nothing and its order
 * cannot be lost.
 */
import { ReplayBuffer } from "./replay_buffer.ts";
import type { BatchSplit } from "./batch_split.ts";
import { TrainingError } from "./errors.ts";

/** What became of one offered item. */
export type Admission<Item> =
  /** Not admitted: the backlog is full while a step runs. */
  | { readonly kind: "full" }
  /** Admitted; no step is due, or somebody else runs one. */
  | { readonly kind: "queued" }
  /** The caller owns a step: it must commit or restore it. */
  | { readonly kind: "reserved"; readonly step: ReservedStep<Item> };

/** The single ownership of a training step. */
export interface ReservedStep<Item> {
  /** The oldest waiting items, in the order they came. */
  readonly window: readonly Item[];
  /** Set when the offered item itself is not admitted yet: the backlog was full, and it enters only on success. */
  readonly deferred: boolean;
  /** The window is trained: it leaves the queue, and a deferred item enters. */
  commit(): void;
  /** The step failed: the window is first in the queue again. A deferred item stays outside. */
  restore(): void;
  /** The window is given up: it leaves the queue untrained. A deferred item enters. */
  discard(): void;
}

/** A growing ring with constant-time access at both ends. */
class Fifo<Item> {
  #slots: (Item | undefined)[] = new Array(64);
  #head = 0;
  #length = 0;

  get length(): number {
    return this.#length;
  }
  at(index: number): Item {
    return this.#slots[(this.#head + index) & (this.#slots.length - 1)] as Item;
  }
  push(item: Item): void {
    if (this.#length === this.#slots.length) this.#grow();
    this.#slots[(this.#head + this.#length) & (this.#slots.length - 1)] = item;
    this.#length++;
  }
  dropFront(count: number): void {
    const mask = this.#slots.length - 1;
    for (let i = 0; i < count; i++) this.#slots[(this.#head + i) & mask] = undefined;
    this.#head = (this.#head + count) & mask;
    this.#length -= count;
  }
  #grow(): void {
    const larger: (Item | undefined)[] = new Array(2 * this.#slots.length);
    for (let i = 0; i < this.#length; i++) larger[i] = this.at(i);
    this.#slots = larger;
    this.#head = 0;
  }
}

/** The state between admission and training. */
export class PendingWindow<Item> {
  readonly capacity: number;
  readonly newRows: number;
  readonly replay: ReplayBuffer<Item>;
  readonly #queue = new Fifo<Item>();
  readonly #window: Item[] = [];
  #active = false;

  constructor(split: BatchSplit, capacity: number, replay: ReplayBuffer<Item>) {
    this.newRows = split.newRows;
    this.capacity = capacity;
    this.replay = replay;
  }

  /** Admitted items that no successful step has covered yet: waiting and in flight. */
  get backlog(): number {
    return this.#queue.length;
  }
  /** Whether a step is owned by somebody. */
  get active(): boolean {
    return this.#active;
  }

  /** The waiting items that are not in flight, oldest first. */
  waiting(): Item[] {
    const from = this.#active ? this.newRows : 0;
    return Array.from({ length: this.#queue.length - from }, (_, i) => this.#queue.at(from + i));
  }

  /** Offers one item. */
  offer(item: Item): Admission<Item> {
    const deferred = this.#queue.length >= this.capacity;
    if (deferred && this.#active) return { kind: "full" };
    if (!deferred) this.#enter(item);
    if (this.#active || this.#queue.length < this.newRows) return { kind: "queued" };
    return { kind: "reserved", step: this.#reserve(item, deferred) };
  }

  #enter(item: Item): void {
    this.#queue.push(item);
    this.replay.push(item);
  }

  #reserve(item: Item, deferred: boolean): ReservedStep<Item> {
    this.#active = true;
    for (let i = 0; i < this.newRows; i++) this.#window[i] = this.#queue.at(i);
    let open = true;
    const release = (remove: boolean) => {
      if (!open) throw new TrainingError("closed", "this training step was already committed or restored");
      open = false;
      this.#active = false;
      if (!remove) return;
      this.#queue.dropFront(this.newRows);
      if (deferred) this.#enter(item);
    };
    return {
      window: this.#window,
      deferred,
      commit: () => release(true),
      restore: () => release(false),
      discard: () => release(true),
    };
  }
}
