/** The choice of a worker and the key that it depends on, beyond the vectors. */
import assert from "node:assert/strict";
import { pickWorker, pressureOf, type WorkerLoad } from "../../src/gateway/rendezvous.ts";
import { DEFAULT_PREFIX_RULES, prefixHash, routingHash } from "../../src/gateway/routing_key.ts";
import { xxh3OfText } from "../../src/gateway/xxh3.ts";

function worker(name: string, load: Partial<WorkerLoad> = {}): WorkerLoad {
  return { name, readyGpuSlots: 1, pendingCost: 0, queueDepth: 0, inflight: 0, ...load };
}

const KEYS = Array.from({ length: 200 }, (_, index) => `session-${index}`);
const WORKERS = ["a", "b", "c", "d"].map((name) => worker(`worker-${name}`));

function picked(key: string, workers: readonly WorkerLoad[]): string | undefined {
  return pickWorker(workers, xxh3OfText(key))?.name;
}

Deno.test("without a worker or without a key the work belongs to the pool", () => {
  assert.equal(pickWorker([], 1n), undefined);
  assert.equal(pickWorker(WORKERS, routingHash({})), undefined);
});

Deno.test("a worker that leaves moves its own requests and no others", () => {
  const before = new Map(KEYS.map((key) => [key, picked(key, WORKERS)]));
  const left = WORKERS.filter(({ name }) => name !== "worker-b");
  let moved = 0;
  for (const key of KEYS) {
    if (before.get(key) === "worker-b") moved++;
    else assert.equal(picked(key, left), before.get(key), key);
  }
  assert.ok(moved > 0 && moved < KEYS.length / 2, `${moved} requests`);
});

Deno.test("the order in which workers are listed does not matter", () => {
  for (const key of KEYS) assert.equal(picked(key, WORKERS.toReversed()), picked(key, WORKERS));
});

Deno.test("less pressure goes before a better fit", () => {
  for (const key of KEYS) {
    const workers = WORKERS.map((each) => each.name === "worker-c" ? each : { ...each, pendingCost: 1 });
    assert.equal(picked(key, workers), "worker-c");
  }
});

Deno.test("pressure is counted for each slot and rounded up; negative counts are 0, no slot is one", () => {
  assert.deepEqual(
    pressureOf(worker("a", { readyGpuSlots: 3, pendingCost: 10, queueDepth: 9, inflight: 1 })),
    [4, 3, 1, 10, 9, 1],
  );
  assert.deepEqual(
    pressureOf(worker("a", { readyGpuSlots: 0, pendingCost: -5, queueDepth: 2, inflight: -1 })),
    [0, 2, 0, 0, 2, 0],
  );
  const cost = Number.MAX_SAFE_INTEGER;
  assert.equal(pressureOf(worker("a", { readyGpuSlots: 2, pendingCost: cost }))[0], (cost + 1) / 2);
});

Deno.test("a worker that is listed twice is taken where it is said to be under less pressure", () => {
  const [one, other] = [worker("same", { queueDepth: 1 }), worker("same")];
  assert.equal(pickWorker([one, other], 7n), other);
  assert.equal(pickWorker([other, one], 7n), other);
});

const LONG = "Answer in two sentences, name your sources, and say so when you do not know.";

Deno.test("the first text that is not empty makes the key", () => {
  const all = { routingKey: "r", promptCacheKey: "p", system: LONG, prompt: `${LONG} Why?` };
  assert.equal(routingHash(all), xxh3OfText("r"));
  assert.equal(routingHash({ ...all, routingKey: "" }), xxh3OfText("p"));
  assert.equal(routingHash({ ...all, routingKey: "", promptCacheKey: "" }), prefixHash(LONG));
  assert.equal(routingHash({ prompt: `${LONG} Why?` }), prefixHash(`${LONG} Why?`));
  assert.equal(routingHash({ routingKey: "", system: "", prompt: "" }), undefined);
});

Deno.test("case and white space do not matter, unless the bytes are kept", () => {
  const shouted = `\u0085\t ${LONG.toUpperCase().replaceAll(" ", "\u00a0\n ")}\r\n`;
  assert.equal(prefixHash(shouted), prefixHash(LONG));
  const kept = { ...DEFAULT_PREFIX_RULES, preservesBytes: true };
  assert.notEqual(prefixHash(shouted, kept), prefixHash(LONG, kept));
  // A byte order mark is no white space.
  assert.notEqual(prefixHash(`\ufeff${LONG}`), prefixHash(LONG));
});

Deno.test("only the beginning counts, and too short a text is hashed as it is", () => {
  const begin = "x".repeat(512);
  assert.equal(prefixHash(`${begin}one`), prefixHash(`${begin}two`));
  assert.notEqual(prefixHash(`${begin.slice(1)}one`), prefixHash(`${begin.slice(1)}two`));
  assert.equal(prefixHash("y".repeat(63)), undefined);
  assert.equal(routingHash({ system: "Short  TEXT" }), xxh3OfText("Short  TEXT"));
  const white = `${" ".repeat(200_000)}z`;
  assert.equal(routingHash({ prompt: white }), xxh3OfText(" ".repeat(512)), "nothing is left after normalising");
});

Deno.test("a salt keeps deployments apart", () => {
  const salted = (salt: string) => prefixHash(LONG, { ...DEFAULT_PREFIX_RULES, salt });
  assert.equal(salted("a"), xxh3OfText(`a\u001f${LONG.toLowerCase()}`));
  assert.notEqual(salted("a"), salted("b"));
});
