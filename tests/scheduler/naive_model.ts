/**
 * The rules of batch forming and of the drain loop, written down as plainly as possible: lists that are sorted and searched anew
 * each time, and the loop as a generator that reads like its description. Slow and obvious, to hold the real thing against.
 */
import type { BatchConfig } from "../../src/scheduler/batch_config.ts";
import type { Schedulable } from "../../src/scheduler/schedulable.ts";

/** An item that tests can recognise. */
export interface TestItem extends Schedulable {
  readonly name: string;
}

/** An item with defaults for what a test does not care about. */
export function testItem(name: string, overrides: Partial<Omit<TestItem, "name">> = {}): TestItem {
  return { name, cost: 1, hardCostCap: Infinity, runsAlone: false, queueEntry: undefined, ...overrides };
}

/** A batch in a form that is easily compared. */
export interface LoggedBatch {
  readonly t: number;
  readonly key: string;
  readonly role: string;
  readonly reason: string;
  readonly items: readonly string[];
  readonly cost: number;
}

interface Waiting {
  readonly item: TestItem;
  readonly arrival: number;
  /** Position among all submissions to the model, which decides between keys whose oldest items arrived together. */
  readonly order: number;
}

/** One former; `waiting` is kept in submission order. */
export class NaiveFormer {
  config: BatchConfig;
  waiting: Waiting[] = [];
  lastAlone: boolean | undefined = undefined;

  constructor(config: BatchConfig) {
    this.config = config;
  }

  submit(items: readonly TestItem[], now: number, order = 0): void {
    for (const item of items) this.waiting.push({ item, arrival: now, order });
  }

  remove(name: string): boolean {
    const before = this.waiting.length;
    this.waiting = this.waiting.filter((one) => one.item.name !== name);
    return this.waiting.length < before;
  }

  get first(): number {
    return Math.min(...this.waiting.map((one) => one.arrival));
  }

  get firstOrder(): number {
    return Math.min(...this.waiting.map((one) => one.order));
  }

  get last(): number {
    return Math.max(...this.waiting.map((one) => one.arrival));
  }

  get cost(): number {
    return this.waiting.reduce((sum, one) => sum + one.item.cost, 0);
  }

  get cap(): number {
    return Math.min(this.config.maxBatchCost, ...this.waiting.map((one) => one.item.hardCostCap));
  }

  get coalesceMs(): number {
    return Math.min(this.config.coalesceMs, this.config.maxBatchWaitMs * this.config.coalesceRatio);
  }

  get dueAt(): number {
    return Math.min(this.first + this.config.maxBatchWaitMs, this.last + this.coalesceMs);
  }

  reason(now: number, immediate: boolean): string | undefined {
    const count = this.waiting.length;
    if (count === 0) return undefined;
    if (count === 1 && this.cost > this.cap) return "single_oversize";
    if (this.cost >= this.cap) return "cost_cap";
    if (count >= this.config.maxBatchRequests) return "count_cap";
    if (now - this.first >= this.config.maxBatchWaitMs) return "timeout";
    if (now - this.last >= this.coalesceMs) return "coalesce";
    return immediate ? "idle_bypass" : undefined;
  }

  take(maxItems = Infinity): TestItem[] {
    const cheapestFirst = this.waiting.filter((one) => !one.item.runsAlone).sort((a, b) => a.item.cost - b.item.cost);
    const alone = this.waiting.filter((one) => one.item.runsAlone);
    let order = [...cheapestFirst, ...alone];
    const [firstAlone, ...otherAlone] = alone;
    if (firstAlone !== undefined && cheapestFirst.length > 0) {
      const oldestShared = Math.min(...cheapestFirst.map((one) => one.arrival));
      const aloneTurn = this.lastAlone === undefined ? firstAlone.arrival < oldestShared : !this.lastAlone;
      if (aloneTurn) order = [firstAlone, ...cheapestFirst, ...otherAlone];
    }
    const cap = this.cap;
    const taken: TestItem[] = [];
    let cost = 0;
    for (const { item } of order) {
      if (taken.length >= maxItems) break;
      if (item.runsAlone && taken.length > 0) break;
      if (cost + item.cost > cap && taken.length > 0) break;
      taken.push(item);
      cost += item.cost;
      if (item.runsAlone || taken.length >= this.config.maxBatchRequests) break;
    }
    if (taken[0] !== undefined) this.lastAlone = taken[0].runsAlone;
    this.waiting = this.waiting.filter((one) => !taken.includes(one.item));
    return taken;
  }
}

/** What happens to a model from outside. */
export type LoopEvent =
  | { readonly t: number; readonly kind: "submit"; readonly key: string; readonly items: readonly TestItem[] }
  | { readonly t: number; readonly kind: "remove"; readonly name: string };

/** Settings of the naive loop. */
export interface LoopSettings {
  readonly config: BatchConfig;
  readonly depth: number;
  readonly idleBypass: boolean;
  /** Time of the serial backend per batch, in milliseconds. */
  readonly serviceMs: number;
}

/** Runs the loop over the events until nothing is left to do; returns the batches in the order in which they left. */
export function runNaiveLoop(settings: LoopSettings, events: readonly LoopEvent[]): LoggedBatch[] {
  const { config, depth, idleBypass, serviceMs } = settings;
  const formers = new Map<string, NaiveFormer>();
  const log: LoggedBatch[] = [];
  const ends: number[] = [];
  let free = depth;
  let now = 0;

  const oldestKey = (): [string, NaiveFormer] | undefined => {
    let best: [string, NaiveFormer] | undefined;
    for (const entry of formers) {
      if (entry[1].waiting.length > 0 && (best === undefined || entry[1].firstOrder < best[1].firstOrder)) best = entry;
    }
    return best;
  };
  const dispatch = (key: string, role: string, reason: string, items: TestItem[]) => {
    const cost = items.reduce((sum, item) => sum + item.cost, 0);
    log.push({ t: now, key, role, reason, items: items.map((item) => item.name), cost });
    ends.push(Math.max(now, ends.at(-1) ?? 0) + serviceMs);
  };

  /** Yields the time at which it wants to go on without an event. */
  function* loop(): Generator<number, never, void> {
    let wasIdle = true;
    for (;;) {
      while (free === 0) yield Infinity;
      free--;
      let chosen: [string, NaiveFormer] | undefined;
      let reason: string | undefined;
      while (reason === undefined || chosen === undefined) {
        chosen = oldestKey();
        reason = chosen?.[1].reason(now, wasIdle && idleBypass);
        if (reason === undefined) yield chosen?.[1].dueAt ?? Infinity;
      }
      const [key, former] = chosen;
      const primary = former.take();
      dispatch(key, "primary", reason, primary);
      while (free === 0) yield Infinity;
      free--;
      let budget = former.waiting.length;
      let drained = false;
      let permitUsed = false;
      while (budget > 0) {
        const items = former.take(budget);
        if (items.length === 0) break;
        dispatch(key, "drain", "drain", items);
        permitUsed = drained = true;
        budget -= items.length;
        if (budget > 0) {
          while (free === 0) yield Infinity;
          free--;
          permitUsed = false;
        }
      }
      if (!permitUsed) free++;
      wasIdle = !drained && primary.length <= 1;
    }
  }

  const running = loop();
  let wakeAt = running.next().value;
  let nextEvent = 0;
  let nextEnd = 0;
  for (;;) {
    const event = events[nextEvent];
    const end = ends[nextEnd];
    const next = Math.min(event?.t ?? Infinity, end ?? Infinity, wakeAt);
    if (next === Infinity) return log;
    now = Math.max(now, next);
    if (end !== undefined && end <= now) {
      nextEnd++;
      free++;
    } else if (event !== undefined && event.t <= now) {
      nextEvent++;
      if (event.kind === "submit") {
        const former = formers.get(event.key) ?? new NaiveFormer(config);
        formers.set(event.key, former);
        former.submit(event.items, now, nextEvent);
      } else {
        for (const former of formers.values()) former.remove(event.name);
      }
    }
    wakeAt = running.next().value;
  }
}
