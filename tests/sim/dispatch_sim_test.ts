/** Hundreds of random runs of dispatch: whatever happens, each delivery ends once and nothing is held afterwards. */
import assert from "node:assert/strict";
import { DispatchWorld } from "./dispatch_world.ts";

const SEEDS_PER_TEST = 50;

/** Runs `action`; fails when a promise was rejected meanwhile that nobody waits for. */
async function withoutStrayRejections(action: () => Promise<void>): Promise<void> {
  const stray: unknown[] = [];
  const onRejection = (event: PromiseRejectionEvent) => {
    event.preventDefault();
    stray.push(event.reason);
  };
  globalThis.addEventListener("unhandledrejection", onRejection);
  try {
    await action();
  } finally {
    globalThis.removeEventListener("unhandledrejection", onRejection);
  }
  assert.deepEqual(stray, []);
}

for (let first = 1; first <= 300; first += SEEDS_PER_TEST) {
  Deno.test(`dispatch in a random world, seeds ${first} to ${first + SEEDS_PER_TEST - 1}`, async () => {
    for (let seed = first; seed < first + SEEDS_PER_TEST; seed++) {
      try {
        await withoutStrayRejections(() => new DispatchWorld(seed).run());
      } catch (cause) {
        throw new Error(`seed ${seed}`, { cause });
      }
    }
  });
}
