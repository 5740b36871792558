/**
 * Counters of the trainer and the scorer, as plain numbers, and their Prometheus text (online-training.md, section 6.7).
 */
import type { GateResult } from "./gate.ts";

/** Upper bounds of the step-duration histogram, in seconds. */
const STEP_BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1] as const;

/** Why a version was refused. */
export type RejectionReason = "digest_mismatch" | "invalid_model";

/** Gauges that are asked for at scrape time. */
export interface GaugeValues {
  readonly pendingSamples: number;
  readonly replaySamples: number;
  readonly replayEvictions: number;
  readonly trainingActive: boolean;
  /** Number of the version that serves; 0 for the seed model or none. */
  readonly activeVersion: number;
  /** Unix seconds of the newest checkpoint; 0 before the first. */
  readonly lastCheckpointSeconds: number;
}

/** See the file's comment. Fields are counters unless they say otherwise. */
export class TrainingMetrics {
  samplesAdmitted = 0;
  samplesRejected = 0;
  /** Not admitted, to be sent again: the queue was full, a retry failed, or training is paused. */
  samplesRefused = 0;
  /** Admitted, and given up with a window that kept failing. */
  samplesDropped = 0;
  stepsCompleted = 0;
  stepsFailed = 0;
  checkpointsCompleted = 0;
  checkpointsFailed = 0;
  swaps = 0;
  rollbacks = 0;
  predictionsCompleted = 0;
  predictionsFailed = 0;
  readonly gate: Record<GateResult, number> = { passed: 0, failed: 0, skipped: 0 };
  readonly versionsRejected: Record<RejectionReason, number> = { digest_mismatch: 0, invalid_model: 0 };
  /** Correlation of the newest version that the gate scored; undefined before. */
  gatePlcc: number | undefined;
  /** Loss of the newest step; undefined before. */
  loss: number | undefined;
  /** Called after each successful step; the plot listens. */
  onStep: ((step: number, loss: number) => void) | undefined;
  readonly #buckets = new Float64Array(STEP_BUCKETS.length);
  #stepSeconds = 0;

  /** Counts one successful step. */
  stepCompleted(step: number, loss: number, seconds: number): void {
    this.stepsCompleted++;
    this.loss = loss;
    this.#stepSeconds += seconds;
    for (let i = 0; i < STEP_BUCKETS.length; i++) {
      if (seconds <= (STEP_BUCKETS[i] as number)) this.#buckets[i] = (this.#buckets[i] as number) + 1;
    }
    this.onStep?.(step, loss);
  }

  /** The Prometheus text of everything. */
  render(version: string, gauges: GaugeValues): string {
    const text = new PrometheusText();
    text.family("vmafx_build_info", "gauge", "Version of this program.", [[`version="${version}"`, 1]]);
    text.family("vmafx_training_samples_total", "counter", "Feedback samples by what became of them.", [
      ['outcome="admitted"', this.samplesAdmitted],
      ['outcome="rejected"', this.samplesRejected],
      ['outcome="backpressure"', this.samplesRefused],
    ]);
    text.counter(
      "vmafx_training_samples_dropped_total",
      "Admitted samples given up with a window that kept failing.",
      this.samplesDropped,
    );
    text.family("vmafx_training_steps_total", "counter", "Optimiser steps.", [
      ['outcome="completed"', this.stepsCompleted],
      ['outcome="failed"', this.stepsFailed],
    ]);
    text.histogram("vmafx_training_step_duration_seconds", "Time of one successful optimiser step.", {
      bounds: STEP_BUCKETS,
      counts: this.#buckets,
      sum: this.#stepSeconds,
      total: this.stepsCompleted,
    });
    text.counter(
      "vmafx_training_replay_evictions_total",
      "Samples pushed out of the replay buffer.",
      gauges.replayEvictions,
    );
    text.gauge("vmafx_training_pending_samples", "Admitted samples not yet trained on.", gauges.pendingSamples);
    text.gauge("vmafx_training_replay_samples", "Samples in the replay buffer.", gauges.replaySamples);
    text.gauge("vmafx_training_active", "1 while a step or an export runs.", gauges.trainingActive ? 1 : 0);
    if (this.loss !== undefined) text.gauge("vmafx_training_loss", "Loss of the newest step.", this.loss);
    text.family("vmafx_training_checkpoints_total", "counter", "Checkpoint exports.", [
      ['outcome="completed"', this.checkpointsCompleted],
      ['outcome="failed"', this.checkpointsFailed],
    ]);
    text.gauge(
      "vmafx_training_last_checkpoint_timestamp_seconds",
      "Unix time of the newest checkpoint, 0 before the first.",
      gauges.lastCheckpointSeconds,
    );
    this.#renderModel(text, gauges);
    return text.toString();
  }

  #renderModel(text: PrometheusText, gauges: GaugeValues): void {
    const by = (label: string, counts: Readonly<Record<string, number>>) =>
      Object.entries(counts).map(([value, count]): [string, number] => [`${label}="${value}"`, count]);
    text.family("vmafx_training_gate_total", "counter", "Verdicts of the stability gate.", by("result", this.gate));
    if (this.gatePlcc !== undefined) {
      text.gauge("vmafx_model_gate_plcc", "Correlation of the newest version with the fixtures.", this.gatePlcc);
    }
    text.gauge(
      "vmafx_model_checkpoint_version",
      "Number of the version that serves, 0 for none.",
      gauges.activeVersion,
    );
    text.counter("vmafx_model_checkpoint_swaps_total", "Swaps of the serving version.", this.swaps);
    text.family(
      "vmafx_model_checkpoint_rejected_total",
      "counter",
      "Versions that failed verification.",
      by("reason", this.versionsRejected),
    );
    text.counter("vmafx_model_rollbacks_total", "Versions taken back for their failure rate.", this.rollbacks);
    text.family("vmafx_model_predictions_total", "counter", "Scoring calls.", [
      ['outcome="completed"', this.predictionsCompleted],
      ['outcome="failed"', this.predictionsFailed],
    ]);
  }
}

/** Builds the exposition format: every metric with HELP and TYPE. */
class PrometheusText {
  readonly #lines: string[] = [];

  counter(name: string, help: string, value: number): void {
    this.family(name, "counter", help, [["", value]]);
  }
  gauge(name: string, help: string, value: number): void {
    this.family(name, "gauge", help, [["", value]]);
  }
  family(name: string, type: "counter" | "gauge", help: string, rows: readonly (readonly [string, number])[]): void {
    this.#head(name, type, help);
    for (const [labels, value] of rows) this.#lines.push(`${name}${labels === "" ? "" : `{${labels}}`} ${value}`);
  }
  histogram(
    name: string,
    help: string,
    data: { bounds: readonly number[]; counts: ArrayLike<number>; sum: number; total: number },
  ): void {
    this.#head(name, "histogram", help);
    data.bounds.forEach((bound, i) => this.#lines.push(`${name}_bucket{le="${bound}"} ${data.counts[i]}`));
    this.#lines.push(
      `${name}_bucket{le="+Inf"} ${data.total}`,
      `${name}_sum ${data.sum}`,
      `${name}_count ${data.total}`,
    );
  }
  #head(name: string, type: string, help: string): void {
    this.#lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  }
  toString(): string {
    return `${this.#lines.join("\n")}\n`;
  }
}
