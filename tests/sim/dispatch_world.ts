/**
 * The whole of dispatch in a random world on a virtual clock: bursts of arrivals, models in every state, a backend and a transport
 * that fail, payloads that are late or missing, cancellations, configuration changes, and a shutdown. The same seed gives the same
 * run.
 */
import assert from "node:assert/strict";
import { PayloadTooLargeError } from "../../src/dispatch/payload_error.ts";
import type { AudioPreparer, PayloadResolver, TokenPreparer } from "../../src/dispatch/views.ts";
import { sleep } from "../../src/runtime/clock.ts";
import { drainInOrder, type DrainStep } from "../../src/runtime/drain_order.ts";
import { ReassemblyBudget, RequestReceiver } from "../../src/gateway/chunk_receiver.ts";
import type { RunBatchBody } from "../../src/wire/ipc/batch_requests.ts";
import { readResultChunk } from "../../src/wire/result_chunk.ts";
import { decodeWorkItem, type WorkItem } from "../../src/wire/work_item.ts";
import { decodeWorkResult } from "../../src/wire/work_result_reader.ts";
import { Rig } from "../dispatch/rig.ts";
import { msgpack, type Value, workItemBytes } from "../harness/work_items.ts";
import { SeededRandom } from "./seeded_random.ts";
import { MODELS, SimBackend } from "./sim_backend.ts";
import { SimDelivery, type Transport } from "./sim_delivery.ts";

const HASHES = ["", "h1", "h2"] as const;
const ITEM_HASHES = ["", "", "", "", "h1", "h2"] as const;
const OPERATIONS = ["encode", "encode", "encode", "score", "extract", "generate", "load", "translate"] as const;
/** Arrivals come within this time, in milliseconds. */
const BUSY_MS = 20_000;
/** Groups that the rig lets prepare at once. */
const GROUP_PERMITS = 4;

interface Sent {
  readonly delivery: SimDelivery;
  readonly work: WorkItem;
}

/** One run. */
export class DispatchWorld {
  readonly rig: Rig;
  readonly sent: Sent[] = [];
  readonly #random: SeededRandom;
  readonly #backend: SimBackend;
  readonly #transport: Transport;
  readonly #mayCrash: boolean;
  readonly #accepted: Promise<void>[] = [];
  readonly #parkingPlaces: number;
  /** Holds fetches of `gate.bin` back until it is opened. */
  readonly #gate = Promise.withResolvers<void>();
  #atGate = 0;
  /** What the backend should never have been asked. */
  readonly #violations: unknown[] = [];
  #requests = 0;
  #stopped = false;

  constructor(seed: number) {
    const random = this.#random = new SeededRandom(seed);
    this.#mayCrash = random.chance(0.3);
    this.#parkingPlaces = random.integer(4, 20);
    this.rig = new Rig({
      referenceCompatible: random.chance(0.3),
      fetchBudget: this.#parkingPlaces,
      hash: random.pick(HASHES),
      realResults: true,
      realGeneration: true,
      payloads: this.#payloads(),
      ...(random.chance(0.5) ? { tokens: this.#tokens() } : {}),
      ...(random.chance(0.5) ? { audio: this.#audio() } : {}),
    });
    const { clock, backend } = this.rig;
    this.#transport = { random, clock, failureRate: random.chance(0.5) ? 0.05 : 0 };
    this.#backend = new SimBackend(random, clock, this.#mayCrash, (body) => {
      try {
        this.#checkBatch(body);
      } catch (thrown) {
        // Thrown here it would pass for a failure of the backend.
        this.#violations.push(thrown);
      }
    });
    this.#backend.script(backend);
    this.#backend.replySubjectOf = (bytes) => decodeWorkItem(bytes).replySubject;
  }

  /** Lives through arrivals, changes and, for some seeds, a shutdown in the middle of them; then everything comes to rest. */
  async run(): Promise<void> {
    const { clock } = this.rig;
    const random = this.#random;
    for (let bursts = random.integer(3, 10); bursts > 0; bursts--) {
      clock.at(random.integer(0, BUSY_MS), () => this.#burst());
    }
    for (let changes = random.integer(0, 3); changes > 0; changes--) {
      clock.at(random.integer(0, BUSY_MS), () => void this.#changeConfig());
    }
    let drained = Promise.resolve();
    if (random.chance(0.6)) {
      clock.at(random.integer(0, BUSY_MS), () => {
        drained = this.#shutDown();
      });
    }
    await clock.runToEnd();
    await drained;
    await Promise.all(this.#accepted);
    this.#check();
    if (!this.rig.shutdown.signal.aborted) await this.#probePermits();
  }

  #burst(): void {
    if (this.#stopped) return;
    const random = this.#random;
    const arrivals: Sent[] = [];
    for (let requests = random.integer(1, 5); requests > 0; requests--) arrivals.push(...this.#request());
    this.sent.push(...arrivals);
    this.#accepted.push(this.rig.dispatcher.accept(arrivals));
    for (const { work } of arrivals) {
      if (!random.chance(0.1)) continue;
      this.rig.clock.after(random.integer(0, 5000), () => {
        this.rig.cancelled.add(work.requestId);
        if (random.chance(0.5)) this.rig.dispatcher.somethingCancelled();
      });
    }
  }

  /** The items of one request. */
  #request(): Sent[] {
    const random = this.#random;
    const operation = random.pick(OPERATIONS);
    const items = operation === "encode" || operation === "extract" ? random.integer(1, 15) : 1;
    const fields: { [key: string]: Value } = {
      request_id: `r${this.#requests++}`,
      operation,
      model_id: random.chance(0.4) ? "warm" : random.pick(MODELS),
      total_items: items,
      bundle_config_hash: random.pick(ITEM_HASHES),
      accepts_result_chunks: random.chance(0.8),
      ...this.#input(operation),
      ...(random.chance(0.1) ? { options: { lora: random.pick(["a", "b"]) } } : {}),
      ...(random.chance(0.1) ? { fallback_reason: "local_full" } : {}),
      ...(random.chance(0.05) ? { reply_subject: "" } : {}),
    };
    const source = operation === "generate" ? "direct" : random.pick(["pool", "pool", "direct", "local"] as const);
    return Array.from({ length: items }, (_, item_index) => ({
      delivery: new SimDelivery(this.rig.ledger, source, this.#transport),
      work: decodeWorkItem(workItemBytes({ ...fields, item_index })),
    }));
  }

  #input(operation: string): { [key: string]: Value } {
    const random = this.#random;
    if (operation === "generate") return { item: null, generate: { prompt: "Once", max_new_tokens: 4 } };
    if (operation === "score") {
      return random.chance(0.5)
        ? { item: null, query_payload_ref: "score.bin" }
        : { item: null, query_item: { text: "q" }, score_items: [{ text: "x".repeat(random.integer(1, 9000)) }] };
    }
    if (random.chance(0.1)) return { item: 7 };
    if (random.chance(0.2)) return { item: null, payload_ref: random.pick(["item.bin", "missing.bin", "huge.bin"]) };
    return {};
  }

  #payloads(): PayloadResolver {
    return {
      fetch: async (reference) => {
        if (reference === "gate.bin") {
          this.#atGate++;
          await this.#gate.promise;
        }
        await this.#wait(200);
        if (reference === "huge.bin") throw new PayloadTooLargeError(35_717_121, 35_717_120);
        if (reference === "missing.bin") throw new Error("not found");
        if (reference === "score.bin") return msgpack({ query: { text: "q" }, items: [{ text: "d" }] });
        return msgpack({ text: "fetched" });
      },
    };
  }

  #tokens(): TokenPreparer {
    return {
      prepare: async () => {
        await this.#wait(20);
        if (this.#random.chance(0.1)) throw new Error("no tokenizer");
        return { encoded: msgpack({ input_ids: [[1, 2]] }), ids: this.#random.integer(0, 9000) };
      },
    };
  }

  #audio(): AudioPreparer {
    return {
      prepare: async (item) => {
        await this.#wait(500);
        if (this.#mayCrash && this.#random.chance(0.1)) throw new TypeError("a bug in the decoder");
        if (this.#random.chance(0.1)) return { refusal: "audio input is empty" };
        if (this.#random.chance(0.5)) return undefined;
        const sampleCount = this.#random.integer(1, 1_000_000);
        return { item, encoded: msgpack({}), durationMs: Math.ceil(sampleCount / 16), sampleCount };
      },
    };
  }

  async #changeConfig(): Promise<void> {
    const { barrier, config } = this.rig;
    await barrier.enterExclusive();
    assert.equal(this.#backend.running, 0, "work runs while the configuration changes");
    await this.#wait(1000);
    assert.equal(this.#backend.running, 0, "work began while the configuration changed");
    config.commit(this.#random.pick(HASHES), this.#random.chance(0.3) ? ["busy"] : []);
    barrier.leaveExclusive();
  }

  /** The steps of the process's shutdown that concern dispatch. */
  async #shutDown(): Promise<void> {
    const { rig } = this;
    this.#stopped = true;
    rig.shutdown.abort();
    const steps: DrainStep[] = [
      { name: "join", limitMs: 10_000, run: async () => void await Promise.all(this.#accepted) },
      { name: "parked", limitMs: 15_000, run: () => rig.dispatcher.parkedGroupsSettled() },
      {
        name: "queued",
        limitMs: 15_000,
        run: async () => rig.settler.settleAll(await rig.schedulers.drainAll(10_000), "shutdown_queued"),
      },
      { name: "generations", limitMs: 15_000, run: () => rig.generation.idle() },
      { name: "abandon", limitMs: 5000, run: () => rig.generation.abandon() },
    ];
    await drainInOrder(rig.clock, steps);
    assert.equal(rig.schedulers.totals().pendingItems, 0, "items are queued after the drain");
  }

  #checkBatch({ modelId, operation, loraKey, entries }: RunBatchBody): void {
    const { config, cancelled } = this.rig;
    assert.ok(entries.length > 0 && entries.length <= 12, `a batch of ${entries.length}`);
    for (const { work } of entries) {
      assert.equal(work.modelId, modelId);
      assert.equal(work.operation, operation);
      assert.ok(loraKey === "" || operation !== "score");
      assert.ok(config.accepts(work.bundleConfigHash), `${work.workItemId} runs under a foreign configuration`);
      assert.ok(!cancelled.has(work.requestId), `${work.workItemId} runs although it was cancelled`);
    }
  }

  #check(): void {
    const { rig } = this;
    assert.deepEqual(this.#violations, []);
    assert.equal(rig.ledger.counts.refused, 0, "settled twice");
    assert.equal(rig.ledger.outstanding, 0, "never settled");
    assert.equal(rig.barrier.sharedHolders, 0, "the execution barrier is held");
    assert.deepEqual(rig.schedulers.totals(), { pendingItems: 0, pendingCost: 0, inflightBatches: 0 });
    assert.deepEqual(rig.dispatcher.waitingForModels(), {});
    assert.equal(rig.generation.running, 0);
    for (const each of this.sent) this.#checkDelivery(each);
  }

  #checkDelivery({ delivery, work }: Sent): void {
    const ends = delivery.events.filter(({ did }) => did === "ack" || did === "nak" || did === "leave");
    assert.equal(ends.length, 1, work.workItemId);
    assert.ok(delivery.events.filter(({ did }) => did === "release").length <= 1);
    const [end] = ends;
    if (end?.did === "leave") {
      assert.ok(end.reason !== "crashed" || this.#mayCrash, `${work.workItemId} crashed`);
      assert.ok(end.reason !== "publish_failed" || this.#transport.failureRate > 0);
    }
    if (end?.did !== "ack" || work.operation === "generate" || work.operation === "load") return;
    const answered = isAnswered(delivery, work);
    const wantsNone = work.replySubject === "" && delivery.source !== "local";
    assert.ok(
      answered ? !wantsNone : wantsNone || this.rig.cancelled.has(work.requestId),
      `${work.workItemId} was ACKed ${answered ? "with" : "without"} an answer`,
    );
  }

  /** Every permit can be had again: so many places for waiting work, so many groups in preparation at once. */
  async #probePermits(): Promise<void> {
    const { rig } = this;
    rig.config.commit("", []);
    const states: ("loading_started" | "failed")[] = ["loading_started"];
    rig.backend.readiness = () => ({ state: states.shift() ?? "failed" });
    const parked = rig.arrivals(this.#parkingPlaces + 1, { request_id: "parked", model_id: "parked" });
    await rig.dispatcher.accept(parked);
    const ends = parked.map(({ delivery }) => delivery.settlement?.did);
    assert.deepEqual(ends, [...Array(this.#parkingPlaces), "nak"], "parking places");
    await rig.clock.runToEnd();

    rig.backend.readiness = () => ({ state: "ready", batchBudget: undefined, descriptor: undefined });
    const groups = Array.from({ length: GROUP_PERMITS + 1 }, (_, index) => {
      return rig.arrival({
        request_id: `group${index}`,
        model_id: `group${index}`,
        item: null,
        payload_ref: "gate.bin",
      });
    });
    const accepted = rig.dispatcher.accept(groups);
    await rig.clock.runToEnd();
    assert.equal(this.#atGate, GROUP_PERMITS, "group permits");
    this.#gate.resolve();
    await rig.clock.runToEnd();
    await accepted;
    assert.equal(rig.ledger.outstanding, 0);
  }

  #wait(mostMs: number): Promise<boolean> {
    return sleep(this.rig.clock, this.#random.integer(0, mostMs));
  }
}

/** Whether the caller has a whole result, in one message or in chunks. */
function isAnswered(delivery: SimDelivery, work: WorkItem): boolean {
  const receiver = new RequestReceiver(work.requestId, work.totalItems, new ReassemblyBudget(1 << 30));
  return delivery.published.some((message) => {
    let chunk;
    try {
      chunk = readResultChunk(message);
    } catch {
      return decodeWorkResult(message).workItemId === work.workItemId;
    }
    const verdict = receiver.accept(chunk);
    assert.ok(verdict.kind !== "reject", `a chunk of ${work.workItemId} was rejected`);
    return verdict.kind === "complete";
  });
}
