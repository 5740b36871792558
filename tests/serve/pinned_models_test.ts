import assert from "node:assert/strict";
import { PinnedModels, pinnedModels } from "../../src/serve/pinned_models.ts";

function pools(models: unknown): unknown[] {
  return [{ spec: { name: "other", pinned_models: ["x"] } }, { spec: { name: " Default", pinned_models: models } }];
}

Deno.test("the pinned models of our pool: strings alone, trimmed, each once, sorted", () => {
  assert.deepEqual(pinnedModels(pools(["b", " a ", "", 7, null, "b"]), "default"), ["a", "b"]);
  for (const odd of [undefined, null, "a", { a: 1 }]) assert.deepEqual(pinnedModels(pools(odd), "default"), []);
  assert.deepEqual(pinnedModels([], "default"), []);
  assert.deepEqual(pinnedModels([null, 3, { spec: 4 }], "default"), []);
});

Deno.test("the backend is told of changes only, and again after a failure", async () => {
  const told: (readonly string[])[] = [];
  let fails = false;
  const pinned = new PinnedModels({
    setPinnedModels(models) {
      told.push(models);
      return fails ? Promise.reject(new Error("no child answers")) : Promise.resolve();
    },
  }, "default");
  await pinned.take(pools([]));
  await pinned.take(pools(["a"]));
  await pinned.take(pools(["a"]));
  fails = true;
  await pinned.take(pools(["b"]));
  fails = false;
  await pinned.take(pools(["b"]));
  await pinned.take(pools(undefined));
  assert.deepEqual(told, [["a"], ["b"], ["b"], []]);
});
