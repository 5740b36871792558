/** Binding a backend's outcomes to the items they belong to (spec/queue.md 5.3: by work_item_id, duplicates first-in first-out). */
import type { BatchOutcome, ItemOutcome } from "../wire/ipc/batch_outcome.ts";
import { sameBytes, textOf } from "../wire/msgpack/keys.ts";
import { type WorkItem, WorkItemField } from "../wire/work_item.ts";

/** What binding found. */
export interface Binding {
  /** The outcome of each item, by the items' order; undefined for an item without one. */
  readonly outcomes: readonly (ItemOutcome | undefined)[];
  /** Outcomes for an id that no item has, or that was used up: ignored, with a warning. */
  readonly unmatched: number;
}

/** Binds outcomes to items. Backends nearly always answer in order; then no id is decoded. */
export function bindOutcomes(items: readonly { readonly work: WorkItem }[], answer: BatchOutcome): Binding {
  const outcomes = answer.outcomes;
  if (outcomes.length === items.length && inOrder(items, answer)) return { outcomes, unmatched: 0 };
  const waiting = new Map<string, number[]>();
  items.forEach(({ work }, index) => {
    const id = work.workItemId;
    const queue = waiting.get(id);
    if (queue === undefined) waiting.set(id, [index]);
    else queue.push(index);
  });
  const bound: (ItemOutcome | undefined)[] = new Array(items.length).fill(undefined);
  let unmatched = 0;
  for (const outcome of outcomes) {
    const index = waiting.get(textOf(answer.bytes, outcome.workItemIdAt, outcome.workItemIdLength))?.shift();
    if (index === undefined) unmatched++;
    else bound[index] = outcome;
  }
  return { outcomes: bound, unmatched };
}

function inOrder(items: readonly { readonly work: WorkItem }[], answer: BatchOutcome): boolean {
  for (let i = 0; i < items.length; i++) {
    const work = (items[i] as { readonly work: WorkItem }).work;
    const outcome = answer.outcomes[i] as ItemOutcome;
    const length = work.size(WorkItemField.workItemId);
    if (length !== outcome.workItemIdLength) return false;
    if (!sameBytes(work.bytes, work.at(WorkItemField.workItemId), answer.bytes, outcome.workItemIdAt, length)) {
      return false;
    }
  }
  return true;
}
