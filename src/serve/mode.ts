/** What the two ingests have in common for `serve`: how they start and how they end. */
import type { Clock } from "../runtime/clock.ts";
import type { DrainStep } from "../runtime/drain_order.ts";
import type { ShutdownLatch } from "../runtime/signals.ts";
import type { TraceSink } from "../runtime/trace.ts";
import type { Settings } from "../settings/settings.ts";
import type { SidecarBatchTimes } from "./batch_time.ts";
import type { Core } from "./core.ts";
import type { WorkerHealth } from "./health.ts";

/** What a mode starts with. */
export interface ModeParts {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly trace: TraceSink | undefined;
  readonly latch: ShutdownLatch;
  readonly batchTimes: SidecarBatchTimes | undefined;
}

/** A running ingest. */
export interface RunningMode {
  readonly core: Core;
  readonly health: WorkerHealth;
  /** Steps that stop taking work; they come first in a shutdown. */
  readonly stopSteps: readonly DrainStep[];
  /** Rejects when the mode cannot go on: the process ends with an error, and somebody starts it anew. */
  readonly failure?: Promise<never>;
  /** Steps after the backend has been told to drain. */
  readonly lastSteps: readonly DrainStep[];
}
