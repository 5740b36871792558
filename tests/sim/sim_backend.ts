/** A backend that behaves in every way a real one may, and some it should not, by a seed. */
import assert from "node:assert/strict";
import type { GenerateEvent, ModelReadiness } from "../../src/ipc/backend.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { type Clock, sleep } from "../../src/runtime/clock.ts";
import type { BatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import type { RunBatchBody } from "../../src/wire/ipc/batch_requests.ts";
import { msgpack } from "../harness/work_items.ts";
import { batchAnswer, type OutcomeFields, type ScriptedBackend, success } from "../dispatch/doubles.ts";
import type { SeededRandom } from "./seeded_random.ts";

/** How each model behaves. */
export const MODELS = ["warm", "engine", "cold", "busy", "flaky", "broken"] as const;

const DESCRIPTOR = {
  tokenizerPath: undefined,
  tokenizerId: undefined,
  maxSeqLen: undefined,
  outputTypes: [],
  supportsRunBatch: true,
  defaultQueryTemplate: undefined,
  defaultDocTemplate: undefined,
};

const READY: ModelReadiness = { state: "ready", batchBudget: undefined, descriptor: undefined };
const FAILURES = [
  new IpcError("server", "draining"),
  new IpcError("timeout", "no answer within 60000 ms"),
  new IpcError("io", "reset", { io: "connection_reset" }),
  new IpcError("decode", "nonsense"),
];

/** Scripts a backend. */
export class SimBackend {
  /** Batches and streams at work: none may be while the configuration changes. */
  running = 0;
  readonly #random: SeededRandom;
  readonly #clock: Clock;
  readonly #loadedAt: number;
  /** Whether answers that no backend gives may occur; they count as crashes. */
  readonly #mayCrash: boolean;
  /** Looked at when a batch arrives. */
  readonly #onBatch: (body: RunBatchBody) => void;

  constructor(
    random: SeededRandom,
    clock: Clock,
    mayCrash: boolean,
    onBatch: (body: RunBatchBody) => void,
  ) {
    this.#random = random;
    this.#clock = clock;
    // Now and then a model loads for longer than work is ever held.
    this.#loadedAt = random.chance(0.05) ? Infinity : random.integer(0, 40_000);
    this.#mayCrash = mayCrash;
    this.#onBatch = onBatch;
  }

  /** Puts the script into a backend. */
  script(backend: ScriptedBackend): void {
    backend.readiness = (model) => this.#readiness(model);
    backend.answer = (body) => this.#answer(body);
    backend.stream = (_model, workItem, signal) => this.#stream(workItem, signal);
  }

  async #readiness(model: string): Promise<ModelReadiness> {
    const random = this.#random;
    if (random.chance(0.3)) await this.#wait(random.chance(0.1) ? 20_000 : 50);
    switch (model) {
      case "engine":
        return { state: "ready", batchBudget: 8, descriptor: { ...DESCRIPTOR, maxConcurrentDispatch: 3 } };
      case "cold":
        if (this.#clock.now() >= this.#loadedAt) return READY;
        return { state: random.chance(0.2) ? "loading_started" : "loading_in_progress" };
      case "busy":
        return random.chance(0.5) ? { state: "retry_later" } : READY;
      case "broken":
        return { state: "failed" };
      case "flaky":
        if (random.chance(0.4)) throw random.pick(FAILURES);
        return random.chance(0.3) ? { state: "loading_started" } : READY;
      default:
        return READY;
    }
  }

  async #answer(body: RunBatchBody): Promise<BatchOutcome> {
    const random = this.#random;
    this.#onBatch(body);
    this.running++;
    try {
      await this.#wait(random.chance(0.05) ? 40_000 : random.chance(0.2) ? 2000 : 100);
    } finally {
      this.running--;
    }
    if (random.chance(0.1)) throw random.pick(FAILURES);
    if (this.#mayCrash && random.chance(0.1)) return undefined as never;
    const outcomes = body.entries.flatMap(({ work }) => this.#outcomes(work.workItemId));
    if (random.chance(0.2)) outcomes.reverse();
    if (random.chance(0.1)) outcomes.push(success("stranger.0"));
    return batchAnswer(outcomes);
  }

  #outcomes(id: string): OutcomeFields[] {
    const random = this.#random;
    const fate = random.next();
    if (fate < 0.1) return [];
    if (fate < 0.2) return [success(id, { disposition: "nak_retry" })];
    if (fate < 0.3) return [success(id, { disposition: "nak_retry", nak_delay_ms: random.integer(0, 10_000) })];
    if (fate < 0.4) {
      return [success(id, { disposition: "publish_error_and_ack", error: "no", error_code: "INVALID_INPUT" })];
    }
    if (fate < 0.5) return [success(id), success(id)];
    // Single messages, transfers in chunks, and results too large for both.
    const size = random.chance(0.6) ? random.integer(0, 500) : random.integer(2000, 100_000);
    return [success(id, { result_msgpack: new Uint8Array(size) })];
  }

  async *#stream(workItem: Uint8Array, signal: AbortSignal | undefined): AsyncGenerator<GenerateEvent> {
    const random = this.#random;
    assert.ok(workItem.length > 0);
    this.running++;
    const interrupted = { aborted: false };
    const wait = async (mostMs: number) => {
      interrupted.aborted = !(await sleep(this.#clock, random.integer(0, mostMs), signal));
      if (interrupted.aborted) throw new IpcError("io", "aborted by the caller", { io: "closed" });
    };
    try {
      await wait(500);
      yield { kind: "in_progress" };
      for (let seq = random.integer(0, 6); seq > 0; seq--) {
        await wait(random.chance(0.1) ? 20_000 : 200);
        if (random.chance(0.05)) throw random.pick(FAILURES);
        const replySubject = random.chance(0.02) ? "_INBOX.other" : this.replySubjectOf(workItem);
        yield { kind: "publish", replySubject, payload: msgpack({ kind: "chunk", seq }) };
      }
      if (random.chance(0.8)) yield random.chance(0.8) ? { kind: "ack" } : { kind: "nak", delayMs: 100 };
      if (random.chance(0.1)) yield { kind: "ack" };
      yield { kind: "done" };
    } finally {
      this.running--;
    }
  }

  /** Set by the world: the reply subject of the work item that a stream is for. */
  replySubjectOf: (workItem: Uint8Array) => string = () => "";

  #wait(mostMs: number): Promise<boolean> {
    return sleep(this.#clock, this.#random.integer(0, mostMs));
  }
}
