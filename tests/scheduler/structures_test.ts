/** The data structures under the scheduler. */
import assert from "node:assert/strict";
import { ArrivalList } from "../../src/scheduler/arrival_list.ts";
import { HardCaps } from "../../src/scheduler/hard_caps.ts";
import { type HeapEntry, IndexedHeap, NOT_IN_HEAP } from "../../src/scheduler/indexed_heap.ts";
import { LatencyWindow } from "../../src/scheduler/latency_window.ts";
import { SeededRandom } from "../sim/seeded_random.ts";

Deno.test("a heap gives its entries back in order, whatever is removed in between", () => {
  for (let seed = 1; seed <= 100; seed++) {
    const random = new SeededRandom(seed);
    const heap = new IndexedHeap<HeapEntry>();
    const inside: HeapEntry[] = [];
    for (let sequence = 0; sequence < 300; sequence++) {
      if (random.chance(0.6)) {
        const entry = { rank: random.integer(0, 20), sequence, heapIndex: NOT_IN_HEAP };
        heap.push(entry);
        inside.push(entry);
      } else if (inside.length > 0 && random.chance(0.5)) {
        const [entry] = inside.splice(random.integer(0, inside.length - 1), 1);
        assert.ok(entry !== undefined);
        heap.remove(entry);
        assert.equal(entry.heapIndex, NOT_IN_HEAP);
      } else {
        inside.sort((a, b) => a.rank - b.rank || a.sequence - b.sequence);
        assert.equal(heap.peek(), inside[0]);
        assert.equal(heap.pop(), inside.shift());
      }
      assert.equal(heap.size, inside.length);
    }
  }
});

Deno.test("an arrival list keeps its order and lets go of what is unlinked", () => {
  interface Node {
    readonly name: string;
    older: Node | undefined;
    newer: Node | undefined;
  }
  const node = (name: string): Node => ({ name, older: undefined, newer: undefined });
  const list = new ArrivalList<Node>();
  const [a, b, c] = [node("a"), node("b"), node("c")] as const;
  for (const one of [a, b, c]) list.append(one);
  list.unlink(b);
  assert.equal(a.newer, c);
  assert.equal(c.older, a);
  assert.deepEqual([b.older, b.newer], [undefined, undefined]);
  list.unlink(a);
  assert.equal(list.oldest, c);
  list.append(b);
  assert.equal(list.newest, b);
  list.unlink(b);
  list.unlink(c);
  assert.deepEqual([list.oldest, list.newest, list.size], [undefined, undefined, 0]);
});

Deno.test("the lowest hard cap is known through any course of arrivals and departures", () => {
  const random = new SeededRandom(7);
  const caps = new HardCaps();
  const inside: number[] = [];
  for (let step = 0; step < 2000; step++) {
    if (random.chance(0.5)) {
      const cap = random.pick([Infinity, 720_000, 40, 100, 7]);
      caps.add(cap);
      inside.push(cap);
    } else if (inside.length > 0) {
      const [cap] = inside.splice(random.integer(0, inside.length - 1), 1);
      caps.remove(cap ?? Infinity);
    }
    assert.equal(caps.lowest, Math.min(Infinity, ...inside));
  }
});

Deno.test("a latency window gives the percentiles of its last samples", () => {
  const random = new SeededRandom(3);
  const window = new LatencyWindow(50, 10);
  const all: number[] = [];
  for (let i = 0; i < 500; i++) {
    const sample = random.chance(0.3) ? random.integer(1, 5) : random.next() * 100;
    window.record(sample);
    all.push(sample);
    const last = all.slice(-50).sort((a, b) => a - b);
    for (const percent of [0, 50, 99, 100]) {
      const expected = last.length < 10 ? undefined : last[Math.trunc((percent / 100) * (last.length - 1))];
      assert.equal(window.percentile(percent), expected);
    }
  }
});

Deno.test("a latency window needs its minimum, takes the lower middle and ignores what is no number", () => {
  const window = new LatencyWindow();
  for (let ms = 1; ms <= 9; ms++) window.record(ms);
  window.record(NaN);
  window.record(Infinity);
  assert.equal(window.percentile(50), undefined);
  window.record(10);
  assert.equal(window.percentile(50), 5, "index 4 of ten");
  for (let ms = 11; ms <= 200; ms++) window.record(ms);
  assert.equal(window.percentile(50), 100, "index 99 of two hundred");
  window.clear();
  assert.equal(window.count, 0);
  assert.throws(() => new LatencyWindow(0), RangeError);
});
