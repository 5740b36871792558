/**
 * Clients that do anything, on virtual time: whatever they do, every operation of a connection that lives is answered exactly once,
 * limits hold at every moment, and in the end nothing is left behind. A failing seed can be run again.
 */
import assert from "node:assert/strict";
import type { Arrival, WorkIntake } from "../../src/dispatch/intake.ts";
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { IngestLimits } from "../../src/wire/ingest/limits.ts";
import { msgpack } from "../harness/work_items.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { settle } from "../sim/virtual_clock.ts";
import { cancelFrame, generateFrame, IngestRig, pingFrame, type RigClient, workFrame } from "./rig.ts";
import { TalkingBackend } from "./talking_backend.ts";

/** A whole number from 0 to `limit`, without it. */
function below(random: SeededRandom, limit: number): number {
  return random.integer(0, limit - 1);
}

/** Settles work at any time, in any way. */
class Whimsical implements WorkIntake {
  readonly #random: SeededRandom;
  readonly #open: Arrival[] = [];

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  accept(arrivals: readonly Arrival[]): Promise<void> {
    this.#open.push(...arrivals);
    return Promise.resolve();
  }

  /** Settles one of the open items, if there is one. */
  settleOne(): boolean {
    if (this.#open.length === 0) return false;
    const [arrival] = this.#open.splice(below(this.#random, this.#open.length), 1);
    if (arrival === undefined) return false;
    const { delivery, work } = arrival;
    switch (below(this.#random, 6)) {
      case 0:
        delivery.nak(below(this.#random, 8000), "retry");
        break;
      case 1:
        delivery.leave("crashed");
        break;
      case 2:
        delivery.ack("completed");
        break;
      default:
        delivery.publish("", msgpack({ work_item_id: work.workItemId }));
        delivery.ack("completed");
    }
    return true;
  }
}

/** A client with what it has asked for. */
class Wild {
  readonly client: RigClient;
  /** Ids that must be answered, by what ends them. */
  readonly asked = new Map<number, "one" | "stream">();
  #nextId = 1;
  isGone = false;

  constructor(rig: IngestRig) {
    this.client = rig.connect();
  }

  id(kind: "one" | "stream"): number {
    const id = this.#nextId++;
    this.asked.set(id, kind);
    return id;
  }

  /** Fails unless each id has at most one terminal, and nothing after it. */
  check(): Map<number, number> {
    const terminals = new Map<number, number>();
    for (const response of this.client.responses()) {
      const id = Number(response.id);
      assert.ok(this.asked.has(id), `an answer to ${id}, which was never asked`);
      assert.ok(!terminals.has(id), `more after the end of ${id}`);
      if (response.ok && response.body.kind === "chunk") continue;
      terminals.set(id, 1);
    }
    return terminals;
  }
}

async function step(random: SeededRandom, rig: IngestRig, intake: Whimsical, wilds: Wild[]): Promise<void> {
  const wild = wilds[below(random, wilds.length)];
  if (wild === undefined || wild.isGone) return;
  const { client } = wild;
  switch (below(random, 14)) {
    case 0:
    case 1:
      return await client.send(pingFrame(wild.id("one")));
    case 2:
    case 3:
    case 4: {
      const id = wild.id("one");
      const params = new Uint8Array(below(random, 4) === 0 ? below(random, 3_000_000) : below(random, 200));
      return await client.send(workFrame(id, `req-${id}`, 1 + below(random, 5), {
        params,
        timeoutMs: BigInt(below(random, 30_000)),
      }));
    }
    case 5:
    case 6: {
      const id = wild.id("stream");
      const requestId = `gen-${below(random, 12)}`;
      const generate = { chunks: below(random, 6), hold: below(random, 3) === 0 };
      return await client.send(
        generateFrame(id, requestId, { timeoutMs: BigInt(below(random, 3) * 4000) }, { generate }),
      );
    }
    case 7:
      return await client.send(cancelFrame(wild.id("one"), `gen-${below(random, 12)}`));
    case 8:
      return await rig.clock.advance(below(random, 3000));
    case 9:
      client.stream.stall();
      return;
    case 10:
      client.stream.resume();
      return await settle();
    case 11:
      if (below(random, 6) === 0) {
        wild.isGone = true;
        client.stream.end();
      }
      return await settle();
    default:
      for (let i = below(random, 10); i > 0; i--) intake.settleOne();
      return await settle();
  }
}

async function run(seed: number, referenceCompatible: boolean): Promise<void> {
  const random = new SeededRandom(seed);
  const intake = new Whimsical(random);
  const budget = new ByteBudget({ limit: 512 * 1024 * 1024, high: 8 * 1024 * 1024, low: 2 * 1024 * 1024 });
  const backend = new TalkingBackend();
  const rig = new IngestRig({ intake, budget, backend, referenceCompatible });
  const wilds = Array.from({ length: 4 }, () => new Wild(rig));
  for (let i = 0; i < 400; i++) {
    await step(random, rig, intake, wilds);
    const most = 4 * IngestLimits.bufferedRequestBytes;
    assert.ok(budget.used <= most, `${budget.used} bytes are held`);
    assert.ok(rig.parts.claims.size <= 12);
  }
  // Everybody reads again, everything settles, every deadline passes.
  for (const { client } of wilds) client.stream.resume();
  for (const requestId of backend.talks.keys()) await backend.signalGenerateCancel(requestId);
  for (let i = 0; i < 40; i++) {
    while (intake.settleOne());
    await rig.clock.advance(30_000);
    for (const requestId of backend.talks.keys()) await backend.signalGenerateCancel(requestId);
    await settle();
  }
  for (const wild of wilds) {
    const terminals = wild.check();
    if (wild.isGone || wild.client.end !== undefined) continue;
    for (const id of wild.asked.keys()) assert.ok(terminals.has(id), `${id} was not answered`);
  }
  for (const wild of wilds) wild.client.stream.end();
  await rig.clock.advance(30_000);
  await Promise.all(wilds.map(({ client }) => client.ended));
  while (intake.settleOne()) await rig.clock.advance(6000);
  await rig.clock.runToEnd();
  assert.equal(budget.used, 0);
  assert.equal(rig.parts.claims.size, 0);
  assert.equal(rig.parts.ledger.outstanding, 0);
  assert.equal(rig.parts.ledger.counts.refused, 0);
  assert.equal(rig.parts.barrier.sharedHolders, 0);
  assert.equal(rig.clock.timerCount, 0);
  assert.equal(backend.running, 0);
}

for (const referenceCompatible of [false, true]) {
  for (let seed = 1; seed <= 8; seed++) {
    const rules = referenceCompatible ? "the reference's rules" : "our rules";
    Deno.test(`clients that do anything, seed ${seed}, by ${rules}`, () => run(seed, referenceCompatible));
  }
}
