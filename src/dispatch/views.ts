/** What dispatch needs to know of the world around it. Each is implemented elsewhere and passed in by `serve`. */
import type { WorkItem } from "../wire/work_item.ts";
import type { Delivery, SettleReason } from "./delivery.ts";
import type { Arrival } from "./intake.ts";

/** The moments at which cancellation and deadlines are looked at (spec/queue.md 7.4). */
export type Checkpoint =
  | "intake"
  | "before_model_readiness"
  | "model_readiness"
  | "after_model_readiness"
  | "before_payload_fetch"
  | "after_payload_fetch"
  | "before_ipc";

/** Cancellation tombstones and enforced deadlines. */
export interface DropView {
  /**
   * Why a delivery is to be ACKed without running, or undefined. In this order: expired deadline, request-wide cancellation,
   * direct-batch cancellation. Never for generation.
   */
  dropReason(work: WorkItem, delivery: Delivery, checkpoint: Checkpoint): SettleReason | undefined;
  /** Milliseconds until a live, plausible deadline; undefined without one (spec/queue.md 2.4). A batch call may last that long. */
  remainingMs(work: WorkItem, delivery: Delivery): number | undefined;
}

/** The row of the settlement table that a drop reason belongs to. */
export function dropSituation(reason: SettleReason): "expired" | "cancelled" {
  return reason === "deadline_exceeded" ? "expired" : "cancelled";
}

/** The gate for logical pools (spec/queue.md 8). */
export interface AdmissionView {
  /** Whether an item may run here; "" is an item that names no logical pool: the physical pool itself decides. */
  admits(admissionPool: string): boolean;
}

/** The configuration this worker currently executes under (spec/queue.md 2.5). */
export interface ConfigView {
  /** The hash currently held, "" for none. */
  readonly currentHash: string;
  /** Whether an item with this hash may run: it is empty (legacy, unattested), or equal to the hash held. */
  accepts(bundleConfigHash: string): boolean;
  /** Whether the current configuration names the model as one that this worker cannot serve. */
  isUnsupported(modelId: string): boolean;
}

/** Keeps configuration changes out while a batch runs (spec/scheduler.md 7, step 4): inference takes the shared side. */
export interface ExecutionBarrier {
  /** Takes the shared side at once if no change is going on or waiting. */
  tryEnterShared(): boolean;
  /** Takes the shared side, waiting for a change to end. */
  enterShared(): Promise<void>;
  leaveShared(): void;
}

/** The payload store, for items that carry a reference instead of their input (spec/preparation.md 1.1). */
export interface PayloadResolver {
  /** Bytes of the object; rejects with {@link PayloadTooLargeError}, or anything else for all other failures. */
  fetch(reference: string): Promise<Uint8Array>;
}

/** Makes PreparedTokens of an encode item (spec/preparation.md 2 to 5). Any failure is its own: the item then goes without. */
export interface TokenPreparer {
  /** Encoded PreparedTokens and the number of ids; undefined when the item is not for the sidecar to tokenise. */
  prepare(modelId: string, work: WorkItem, item: Uint8Array): Promise<{ encoded: Uint8Array; ids: number } | undefined>;
}

/** Decodes the audio of an extract item (spec/preparation.md 7). */
export interface AudioPreparer {
  /** The item without `audio`, and the encoded prepared_audio map; undefined when there is no audio. */
  prepare(item: Uint8Array): Promise<PreparedAudio | { readonly refusal: string } | undefined>;
}

/** Decoded audio of one item. */
export interface PreparedAudio {
  readonly item: Uint8Array;
  readonly encoded: Uint8Array;
  readonly durationMs: number;
  readonly sampleCount: number;
}

/** Where generation goes: its own task per item, outside groups, batches and the scheduler (spec/generation.md 3). */
export interface GenerationLane {
  /** Takes one item; settles its delivery sooner or later. Returns at once. */
  start(arrival: Arrival): void;
}
