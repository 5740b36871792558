/**
 * Whether this worker may take work (spec/queue.md 8): the decisions on one answer of the gateway's `/v1/pools`. Pure.
 */

/** Why the physical pool is open or closed for this worker. */
export type AdmissionReason =
  | "pool_missing"
  | "uncapped"
  | "profile_uncapped"
  | "malformed_gpu_cap"
  | "cap_exhausted"
  | "malformed_assigned_workers"
  | "assigned"
  | "not_assigned";

/** Who asks. Pool names compare trimmed and in lower case, worker ids exactly. */
export interface AdmissionIdentity {
  readonly pool: string;
  readonly machineProfile: string;
  readonly workerId: string;
}

/** What one look at the pools came to. */
export interface PoolDecision {
  readonly admitted: boolean;
  readonly reason: AdmissionReason;
}

/** The pool that is open when nobody says otherwise. */
const DEFAULT_POOL = "default";

/** A pool name as it is compared. */
export function poolKey(name: string): string {
  return name.trim().toLowerCase();
}

/** Whether `pool` is the pool that needs no assignment. */
export function isDefaultPool(pool: string): boolean {
  return poolKey(pool) === DEFAULT_POOL;
}

/** The entry of the physical pool, or undefined. */
export function findPool(pools: readonly unknown[], pool: string): unknown {
  const wanted = poolKey(pool);
  return pools.find((entry) => {
    const name = member(member(entry, "spec"), "name");
    return typeof name === "string" && poolKey(name) === wanted;
  });
}

/** Decides on the physical pool; `entry` is its entry, undefined or null when there is none. */
export function decidePool(entry: unknown, who: AdmissionIdentity): PoolDecision {
  if (entry === undefined || entry === null) return { admitted: isDefaultPool(who.pool), reason: "pool_missing" };
  const caps = member(member(entry, "spec"), "gpu_caps");
  if (!isObject(caps) || Object.keys(caps).length === 0) return { admitted: true, reason: "uncapped" };
  const profile = poolKey(who.machineProfile);
  const capped = profile === "" ? undefined : Object.keys(caps).find((name) => poolKey(name) === profile);
  if (capped === undefined) return { admitted: true, reason: "profile_uncapped" };
  const cap = integerOf(caps[capped]);
  if (cap === undefined) return { admitted: false, reason: "malformed_gpu_cap" };
  if (cap <= 0) return { admitted: false, reason: "cap_exhausted" };
  const workers = member(member(entry, "status"), "assigned_workers");
  if (!Array.isArray(workers)) return { admitted: false, reason: "malformed_assigned_workers" };
  return lists(workers, who.workerId)
    ? { admitted: true, reason: "assigned" }
    : { admitted: false, reason: "not_assigned" };
}

/** The logical pools that have their queue here and list this worker, in lower case, sorted. Caps are not looked at. */
export function logicalPools(pools: readonly unknown[], homePool: string, workerId: string): readonly string[] {
  const home = poolKey(homePool);
  const found = new Set<string>();
  for (const entry of pools) {
    const spec = member(entry, "spec");
    const name = textOr(member(spec, "name"), DEFAULT_POOL);
    if (poolKey(textOr(member(spec, "queue_pool"), name)) !== home) continue;
    const workers = member(member(entry, "status"), "assigned_workers");
    if (Array.isArray(workers) && lists(workers, workerId)) found.add(poolKey(name));
  }
  return [...found].sort();
}

/** The state that the gates look at; it changes as a whole. */
export interface AdmissionState {
  /** The physical pool is open. */
  readonly admitted: boolean;
  /** Logical pools in lower case. */
  readonly logical: ReadonlySet<string>;
  /** Why the physical pool is open or closed; `status_error:…` when the gateway could not be asked for too long. */
  readonly reason: AdmissionReason | "off" | "starting" | `status_error:${string}`;
}

/** Whether the pull loops may ask for work at all. */
export function admitsPull(state: AdmissionState): boolean {
  return state.admitted || state.logical.size > 0;
}

/** Whether an item that names this admission pool may run. */
export function admitsItem(state: AdmissionState, homePool: string, admissionPool: string): boolean {
  if (admissionPool === "") return state.admitted;
  const pool = poolKey(admissionPool);
  return pool === "" || pool === poolKey(homePool) ? state.admitted : state.logical.has(pool);
}

/**
 * The list of pools in an answer: an object with an array `pools`, or that array alone. Undefined for anything else.
 */
export function poolsOfAnswer(answer: unknown): readonly unknown[] | undefined {
  const pools = Array.isArray(answer) ? answer : member(answer, "pools");
  return Array.isArray(pools) ? pools : undefined;
}

function lists(workers: readonly unknown[], workerId: string): boolean {
  return workers.some((worker) => member(worker, "name") === workerId);
}

function integerOf(value: unknown): number | undefined {
  if (typeof value === "number") return Number.isInteger(value) ? value : undefined;
  return typeof value === "string" && /^\s*[+-]?[0-9]{1,15}\s*$/.test(value) ? Number(value) : undefined;
}

function textOr(value: unknown, otherwise: string): string {
  return typeof value === "string" && value.trim() !== "" ? value : otherwise;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A member of a JSON object; undefined when the value is none, or has no such member of its own. */
export function member(value: unknown, key: string): unknown {
  return isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}
