/** The body of `/status`, which the operator polls (online-training.md, section 6.6). */
import type { GateResult } from "./gate.ts";
import type { TrainerStatus } from "./trainer.ts";

/** Phases in the operator's vocabulary. */
export type TrainingPhase = "initializing" | "running" | "paused" | "failed";

/** See the file's comment. The first four keys are the operator's, the others are ours. */
export interface StatusBody extends TrainerStatus {
  readonly phase: TrainingPhase;
  /** Admitted samples, continued over restarts; stops at the largest 32-bit number. */
  readonly current_samples: number;
  /** RFC 3339 in whole seconds, or `""`. */
  readonly last_checkpoint_time: string;
  /** Newest committed version, or `""`. */
  readonly model_version: string;
  /** Name of the model that serves, or `""`. */
  readonly active_version: string;
  readonly last_gate: GateResult | "";
  readonly policy: string;
  /** Why something else serves than the policy asks for; `""` otherwise. */
  readonly note: string;
}

const LARGEST_SAMPLES = 2_147_483_647;
/** Longest note, so that the body stays well under the 4096 bytes that the operator reads. */
const MAX_NOTE = 300;

/** What the body is made of. */
export interface StatusFacts {
  readonly phase: TrainingPhase;
  readonly samplesTotal: number;
  readonly lastCheckpointTime: string;
  readonly modelVersion: string;
  readonly activeVersion: string;
  readonly lastGate: GateResult | "";
  readonly policy: string;
  readonly note: string;
  readonly trainer: TrainerStatus;
}

/** Builds the body. */
export function statusBody(facts: StatusFacts): StatusBody {
  return {
    phase: facts.phase,
    current_samples: Math.min(facts.samplesTotal, LARGEST_SAMPLES),
    last_checkpoint_time: facts.lastCheckpointTime,
    model_version: facts.modelVersion,
    active_version: facts.activeVersion,
    last_gate: facts.lastGate,
    policy: facts.policy,
    note: facts.note.slice(0, MAX_NOTE),
    ...facts.trainer,
  };
}
