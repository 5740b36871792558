import assert from "node:assert/strict";
import { type ChildLoad, MOST_PLACED, newChildLoad, Placement } from "../../src/ipc/placement.ts";

function children(...given: Partial<ChildLoad>[]): ChildLoad[] {
  return given.map((fields) => ({ ...newChildLoad(), ...fields }));
}

function withModels(count: number): Set<string> {
  return new Set(Array.from({ length: count }, (_, i) => `other-${i}`));
}

Deno.test("the rules of placement, each decided by the first that differs", () => {
  const cases: readonly (readonly [string, Partial<ChildLoad>[], number])[] = [
    ["lowest index", [{ ready: true }, { ready: true }], 0],
    ["ready before all", [{ ready: false }, { ready: true, models: withModels(9), pendingCost: 99 }], 1],
    ["without a ready child readiness does not count", [{ models: withModels(1) }, {}], 1],
    [
      "fewest models",
      [{ ready: true, models: withModels(2) }, { ready: true, models: withModels(1), pendingCost: 5 }],
      1,
    ],
    ["least cost", [{ ready: true, pendingCost: 2 }, { ready: true, pendingCost: 1, pendingItems: 9 }], 1],
    ["fewest items", [{ ready: true, pendingItems: 2 }, { ready: true, pendingItems: 1, inflightBatches: 9 }], 1],
    ["fewest batches", [{ ready: true, inflightBatches: 2 }, { ready: true, inflightBatches: 1 }], 1],
  ];
  for (const [name, given, expected] of cases) {
    assert.equal(new Placement(children(...given)).childFor("m"), expected, name);
  }
});

Deno.test("work that waits for a child's models counts when another model is placed", () => {
  const waiting = new Map([["a", { items: 1, cost: 100 }], ["b", { items: 9, cost: 2 }]]);
  const loads = children({ ready: true }, { ready: true });
  const placement = new Placement(loads, (model) => waiting.get(model) ?? { items: 0, cost: 0 });
  assert.deepEqual(["a", "b"].map((model) => placement.childFor(model)), [0, 1]);
  // Both have one model: the cost decides, as it is at that moment.
  assert.equal(placement.childFor("c"), 1);
  placement.drop("c", 1);
  waiting.set("a", { items: 1, cost: 1 });
  assert.equal(placement.childFor("d"), 0);
});

Deno.test("a model stays while its child is ready, or while no child is", () => {
  const [first, second] = children({ ready: true }, { ready: true }) as [ChildLoad, ChildLoad];
  const placement = new Placement([first, second]);
  assert.equal(placement.childFor("m"), 0);
  first.pendingCost = 1000;
  assert.equal(placement.childFor("m"), 0);
  first.ready = second.ready = false;
  assert.equal(placement.childFor("m"), 0);
  second.ready = true;
  assert.equal(placement.childFor("m"), 1);
  assert.deepEqual([[...first.models], [...second.models]], [[], ["m"]]);
  // It does not come back by itself.
  first.ready = true;
  assert.equal(placement.childFor("m"), 1);
});

Deno.test("a model is taken only off the child it is on", () => {
  const loads = children({ ready: true }, { ready: true });
  const placement = new Placement(loads);
  assert.equal(placement.childFor("m"), 0);
  placement.drop("m", 1);
  assert.equal(placement.placed("m"), 0);
  placement.drop("m", 0);
  assert.equal(placement.placed("m"), undefined);
  assert.equal(loads[0]?.models.size, 0);
});

Deno.test("models spread over the children", () => {
  const placement = new Placement(children({ ready: true }, { ready: true }, { ready: true }));
  assert.deepEqual(["a", "b", "c", "d"].map((model) => placement.childFor(model)), [0, 1, 2, 0]);
});

Deno.test("placements do not pile up, however many names are asked for", () => {
  const loads = children({ ready: true }, { ready: true });
  const placement = new Placement(loads);
  for (let i = 0; i < 3 * MOST_PLACED; i++) placement.childFor(`model-${i}`);
  const kept = loads.reduce((sum, { models }) => sum + models.size, 0);
  assert.equal(kept, MOST_PLACED);
  assert.equal(placement.placed("model-0"), undefined);
  assert.notEqual(placement.placed(`model-${3 * MOST_PLACED - 1}`), undefined);
});

Deno.test("a model that is used keeps its place while others come and go", () => {
  const loads = children({ ready: true }, { ready: true });
  const placement = new Placement(loads);
  const home = placement.childFor("busy");
  for (let i = 0; i < 3 * MOST_PLACED; i++) {
    placement.childFor(`model-${i}`);
    if (i % 100 === 0) assert.equal(placement.childFor("busy"), home);
  }
});
