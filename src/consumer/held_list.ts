/**
 * Deliveries in the order in which they must next be kept alive. All deliveries of a lane have the same interval, so that the list
 * is a timer wheel by itself: who comes in, or has just been seen to, goes to the end. Every step costs the same few pointers.
 */

/** An element of a {@link HeldList}; the list alone writes these fields. */
export interface Held {
  /** Clock time at which it is due, milliseconds. */
  dueAt: number;
  previous: Held | undefined;
  next: Held | undefined;
  /** Whether it is in a list. */
  held: boolean;
}

/** A doubly linked list through its elements. */
export class HeldList<T extends Held> {
  #first: T | undefined = undefined;
  #last: T | undefined = undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The element that is due first. */
  get first(): T | undefined {
    return this.#first;
  }

  /** Puts an element at the end. Its time must not be before that of the others. */
  append(element: T, dueAt: number): void {
    element.dueAt = dueAt;
    element.held = true;
    element.previous = this.#last;
    element.next = undefined;
    if (this.#last === undefined) this.#first = element;
    else this.#last.next = element;
    this.#last = element;
    this.#size++;
  }

  /** Takes an element out; nothing happens when it is not in. */
  remove(element: T): void {
    if (!element.held) return;
    const previous = element.previous as T | undefined, next = element.next as T | undefined;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    element.previous = element.next = undefined;
    element.held = false;
    this.#size--;
  }
}
