/** The health message that the gateway routes by (health-telemetry.md 5.2): fields, order and derived values. */
import { sortedUnion } from "../runtime/sorted_union.ts";

const INT32_MAX = 2_147_483_647;
const INVENTORY_MAX_BYTES = 65_536;

/** Processes of the backend, as numerical admission knows them. Passed on as they are. */
export interface NumericalInventory {
  readonly observed_at_unix_ms: number;
  readonly children: readonly Readonly<Record<string, unknown>>[];
}

/** What a health message is made of. */
export interface HealthFacts {
  readonly workerId: string;
  readonly machineProfile: string;
  readonly pool: string;
  readonly bundle: string;
  /** `SIE_GPU_COUNT` as given. */
  readonly gpuCount: number;
  /** Backend children. */
  readonly children: number;
  readonly ready: boolean;
  readonly readyChildren: number;
  /** Committed hash; empty when there is none. */
  readonly bundleConfigHash: string;
  readonly loadedModels: readonly string[];
  readonly loadingModels: readonly string[];
  readonly unsupportedModels: readonly string[];
  readonly queueDepth: number;
  readonly pendingCost: number;
  readonly inflightBatches: number;
  readonly saturated: boolean;
  /** Only a worker that takes part in these protocols has them; ours does not, and says so by leaving them out. */
  readonly versioned?: {
    readonly authorityChildren: boolean;
    readonly authorityConsumer: boolean;
    readonly admissionChildren: boolean;
    readonly admissionConsumer: boolean;
    readonly inventory?: NumericalInventory;
  };
}

/** Subject of a worker's health messages; the id as configured. */
export function healthSubject(workerId: string): string {
  return `sie.health.${workerId}`;
}

/** Slots of the worker, ready or not. */
export function totalSlots(children: number, gpuCount: number): number {
  return Math.max(children, gpuCount, 1);
}

/** The message as JSON text. `terminated` makes it the retraction of a worker that leaves. */
export function healthMessage(facts: HealthFacts, terminated: boolean): string {
  const ready = facts.ready && !terminated;
  const total = totalSlots(facts.children, facts.gpuCount);
  const { versioned } = facts;
  const authority = ready && facts.bundleConfigHash !== "" && versioned !== undefined && versioned.authorityChildren &&
    versioned.authorityConsumer;
  const admission = authority && versioned.admissionChildren;
  const unsupported = sortedUnion([facts.unsupportedModels.map((model) => model.trim())])
    .filter((model) => model !== "");
  const inventory = terminated ? undefined : fitting(versioned?.inventory);
  return JSON.stringify({
    name: facts.workerId,
    ready,
    terminated,
    supports_execution_authority_v1: authority,
    supports_numerical_admission_v1: admission,
    supports_numerical_admission_subject_v1: admission && versioned.admissionConsumer,
    gpu_count: facts.gpuCount,
    total_gpu_slots: total,
    ready_gpu_slots: ready ? Math.min(Math.max(facts.readyChildren, 0), total) : 0,
    machine_profile: facts.machineProfile,
    pool_name: facts.pool,
    bundle: facts.bundle,
    bundle_config_hash: facts.bundleConfigHash,
    loaded_models: sortedUnion([facts.loadedModels]),
    loading_models: sortedUnion([facts.loadingModels]),
    queue_depth: Math.min(facts.queueDepth, INT32_MAX),
    pending_cost: facts.pendingCost,
    inflight_batches: Math.min(facts.inflightBatches, INT32_MAX),
    saturated: facts.saturated,
    ...(unsupported.length === 0 ? {} : { unsupported_models: unsupported }),
    ...(inventory === undefined ? {} : { numerical_process_inventory: inventory }),
  });
}

/** An inventory that is too large is left out as a whole. */
function fitting(inventory: NumericalInventory | undefined): NumericalInventory | undefined {
  if (inventory === undefined) return undefined;
  return new TextEncoder().encode(JSON.stringify(inventory)).length > INVENTORY_MAX_BYTES ? undefined : inventory;
}
