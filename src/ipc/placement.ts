/** Which backend process serves which model (spec/ipc.md 1.11), and what each of them has to do. */

/** What counts when a model is placed. */
export interface ChildLoad {
  ready: boolean;
  /** Models placed here. */
  readonly models: Set<string>;
  /** Cost and number of the items that wait for this child's models; as of the last placement. */
  pendingCost: number;
  pendingItems: number;
  inflightBatches: number;
}

/** What is queued for a model and not at the backend yet. */
export interface WaitingWork {
  readonly items: number;
  readonly cost: number;
}

/** A child nobody has used yet. Children are not ready until a ping or a call has succeeded. */
export function newChildLoad(): ChildLoad {
  return { ready: false, models: new Set(), pendingCost: 0, pendingItems: 0, inflightBatches: 0 };
}

/**
 * Models that are remembered. Names come from clients, and the backend is asked for each of them: beyond so many, the one that was
 * not asked for the longest is forgotten.
 */
export const MOST_PLACED = 4096;

/**
 * Model → child. A model stays where it is while that child is ready or no child is; otherwise it goes to the child with, in this
 * order: ready, fewest models, least pending cost, fewest pending items, fewest batches in flight, lowest index.
 */
export class Placement {
  readonly #children: readonly ChildLoad[];
  readonly #waiting: ((model: string) => WaitingWork) | undefined;
  /** The model that was asked for last is the last. */
  readonly #placed = new Map<string, number>();

  /** @param waiting tells what is queued for a model; asked only when another one is placed */
  constructor(children: readonly ChildLoad[], waiting?: (model: string) => WaitingWork) {
    if (children.length === 0) throw new RangeError("placement needs at least one child");
    this.#children = children;
    this.#waiting = waiting;
  }

  /** Index of the model's child; places the model when it has none. */
  childFor(model: string): number {
    const placed = this.#placed.get(model);
    const anyReady = this.#children.some((child) => child.ready);
    if (placed !== undefined && (this.#children[placed]?.ready || !anyReady)) {
      this.#placed.delete(model);
      this.#placed.set(model, placed);
      return placed;
    }
    if (placed !== undefined) this.drop(model, placed);
    const index = this.#best(anyReady);
    this.#placed.set(model, index);
    this.#children[index]?.models.add(model);
    if (this.#placed.size > MOST_PLACED) this.#forgetOldest();
    return index;
  }

  #forgetOldest(): void {
    for (const [model, index] of this.#placed) return this.drop(model, index);
  }

  /** Where the model is now, without placing it. */
  placed(model: string): number | undefined {
    return this.#placed.get(model);
  }

  /** Takes the model off this child; nothing happens when it has moved on. */
  drop(model: string, index: number): void {
    if (this.#placed.get(model) !== index) return;
    this.#placed.delete(model);
    this.#children[index]?.models.delete(model);
  }

  #best(anyReady: boolean): number {
    this.#countWaiting();
    let best = 0;
    for (let at = 1; at < this.#children.length; at++) {
      if (compare(this.#children[at] as ChildLoad, this.#children[best] as ChildLoad, anyReady) < 0) best = at;
    }
    return best;
  }

  #countWaiting(): void {
    if (this.#waiting === undefined) return;
    for (const child of this.#children) {
      child.pendingCost = child.pendingItems = 0;
      for (const model of child.models) {
        const { items, cost } = this.#waiting(model);
        child.pendingItems += items;
        child.pendingCost += cost;
      }
    }
  }
}

function compare(a: ChildLoad, b: ChildLoad, anyReady: boolean): number {
  const unready = (child: ChildLoad) => anyReady && !child.ready ? 1 : 0;
  return unready(a) - unready(b) ||
    a.models.size - b.models.size ||
    a.pendingCost - b.pendingCost ||
    a.pendingItems - b.pendingItems ||
    a.inflightBatches - b.inflightBatches;
}
