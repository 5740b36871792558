/** Claim on the admission traces: the trainer is driven event by event, with steps that succeed, fail or stay running. */
import assert from "node:assert/strict";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { formatAck, type IngestOutcome } from "../../src/training/ack.ts";
import { splitBatch } from "../../src/training/batch_split.ts";
import { TrainingMetrics } from "../../src/training/metrics.ts";
import { seededRandom } from "../../src/training/random.ts";
import type { StepReport } from "../../src/training/step_runner.ts";
import { OnlineTrainer } from "../../src/training/trainer.ts";

interface TraceEvent {
  readonly op: "ingest" | "step_ends";
  readonly sample?: number;
  readonly step_outcome?: string;
  readonly outcome?: string;
  readonly ack: Record<string, unknown> | null;
  readonly new_rows_trained?: number[];
  readonly status: Record<string, unknown>;
  readonly pending_order: number[];
}

interface Trace {
  readonly title: string;
  readonly batch_size: number;
  readonly replay_mix: number;
  readonly pending_capacity: number;
  readonly buffer_capacity: number;
  readonly new_rows: number;
  readonly replay_rows: number;
  readonly events: readonly TraceEvent[];
}

/** One trainer whose steps end as the trace says. Samples are told apart by their score. */
class Replay {
  readonly #trainer: OnlineTrainer;
  #outcome = "ok";
  #held: PromiseWithResolvers<StepReport> | undefined;
  #heldOutcome: Promise<IngestOutcome> | undefined;
  #samplesSince = 0;
  #window: number[] = [];

  constructor(trace: Trace) {
    const split = splitBatch(trace.batch_size, trace.replay_mix, trace.pending_capacity);
    assert.deepEqual(split, { newRows: trace.new_rows, replayRows: trace.replay_rows });
    this.#trainer = new OnlineTrainer({
      nFeatures: 1,
      split,
      pendingCapacity: trace.pending_capacity,
      replayCapacity: trace.buffer_capacity,
      poisonRetries: 0,
      samplesBefore: 0,
      runStep: (window, replayed) => {
        assert.equal(replayed.length, trace.replay_rows);
        this.#window = window.map((sample) => sample.score);
        if (this.#outcome === "ok") return { loss: 1 };
        if (this.#outcome !== "hold") throw new Error(this.#outcome);
        this.#held = Promise.withResolvers();
        return this.#held.promise;
      },
      checkpointer: {
        afterStep: (newRows) => {
          this.#samplesSince += newRows;
          return null;
        },
        counter: 0,
      },
      random: seededRandom(1),
      clock: systemClock,
      log: { info() {}, warn() {}, error() {} },
      metrics: new TrainingMetrics(),
    });
  }

  async play(event: TraceEvent): Promise<void> {
    const outcome = await this.#apply(event);
    if (event.ack === null) assert.equal(outcome, undefined, "the call has not returned yet");
    else {
      assert.ok(outcome !== undefined);
      const ack = JSON.parse(formatAck(outcome, '"id"')) as Record<string, unknown>;
      const expected: Record<string, unknown> = { ...event.ack };
      if (expected["ok"] === true) expected["job_id"] = "id";
      if (expected["loss"] !== undefined) expected["loss"] = 1;
      assert.deepEqual(ack, expected);
      if (outcome.kind === "trained") assert.deepEqual(this.#window, event.new_rows_trained);
    }
    const status = { ...this.#trainer.status(), samples_since_checkpoint: this.#samplesSince } as Record<
      string,
      unknown
    >;
    for (const [key, value] of Object.entries(event.status)) assert.equal(status[key], value, key);
    assert.deepEqual(this.#trainer.waiting().map((sample) => sample.score), event.pending_order);
  }

  async #apply(event: TraceEvent): Promise<IngestOutcome | undefined> {
    if (event.op === "ingest") {
      this.#outcome = event.step_outcome ?? "ok";
      const outcome = this.#trainer.ingest({ features: new Float32Array(1), score: event.sample ?? NaN });
      if (!(outcome instanceof Promise)) return outcome;
      this.#heldOutcome = outcome;
      return undefined;
    }
    if (event.outcome === "ok") this.#held?.resolve({ loss: 1 });
    else this.#held?.reject(new Error(event.outcome));
    return await this.#heldOutcome;
  }
}

/** See the file's comment. */
export const ingestTraceClaim: VectorClaim = {
  files: ["training/ingest_traces.json"],
  *cases(data): Generator<VectorCase> {
    for (const trace of (data as { traces: Trace[] }).traces) {
      yield {
        name: trace.title,
        async check() {
          const replay = new Replay(trace);
          for (const event of trace.events) await replay.play(event);
        },
      };
    }
  },
};
