/**
 * Names on the broker: subjects, streams and durable consumers of one lane and one worker, and how to read them back
 * (spec/queue.md 1.1 to 1.5). Pure.
 */

/** What makes the names of a worker; `pool` is used as it is, the others are normalised. */
export interface LaneIdentity {
  readonly pool: string;
  readonly machineProfile: string;
  readonly bundle: string;
  readonly workerId: string;
}

/** One lane's stream, its single subject, its durable consumer and that consumer's filter. */
export interface LaneNames {
  readonly stream: string;
  readonly subject: string;
  readonly durable: string;
  readonly filter: string;
}

/**
 * A text as one subject token: `/` becomes `__`, `.` becomes `_dot_`, and `*`, `>`, space and control characters become `_`.
 * This is the gateway's form, a superset of the reference sidecar's, which keeps control characters.
 */
export function subjectToken(text: string): string {
  return text.replace(/[/.*> \p{Cc}]/gu, (c) => c === "/" ? "__" : c === "." ? "_dot_" : "_");
}

/** The reference sidecar's token form; differs from {@link subjectToken} only in keeping control characters. */
export function lenientToken(text: string): string {
  return text.replace(/[/.*> ]/g, (c) => c === "/" ? "__" : c === "." ? "_dot_" : "_");
}

/** The id behind a model token. Lossy: `a__b` was `a/b` or `a__b`; see {@link modelOf}. */
export function textOfToken(token: string): string {
  return token.replaceAll("__", "/").replaceAll("_dot_", ".");
}

/** Names of the lane that all replicas share. */
export function poolLane(lane: LaneIdentity): LaneNames {
  const [pool, profile, bundle] = [lane.pool, lane.machineProfile, lane.bundle].map(subjectToken);
  return {
    stream: `WORK_POOL_${lane.pool}`,
    subject: `sie.work.${lane.pool}.*.*.*`,
    durable: `${pool}_${profile}_${bundle}`,
    filter: `sie.work.${lane.pool}.${profile}.${bundle}.*`,
  };
}

/** Names of the lane that only this worker reads. */
export function directLane(lane: LaneIdentity): LaneNames {
  const worker = subjectToken(lane.workerId);
  const subject = `${laneSubject(lane, "*")}.${worker}`;
  return { stream: `WORK_WORKER_${worker}`, subject, durable: `gen-${worker}`, filter: subject };
}

/** Optional worker streams that newer gateways know. This program names them, to keep off them, and never makes them. */
export type VersionedLane = "execution-authority-v1" | "numerical-admission-v1";

/** Names of a versioned lane of this worker. */
export function versionedLane(lane: LaneIdentity, version: VersionedLane): LaneNames {
  const worker = subjectToken(lane.workerId);
  const [stream, durable] = version === "execution-authority-v1"
    ? [`WORK_AUTHORITY_V1_${worker}`, `authority-v1-${worker}`]
    : [`WORK_ADMISSION_V1_${worker}`, `admission-v1-${worker}`];
  const subject = `${laneSubject(lane, "*")}.${worker}.${version}`;
  return { stream, subject, durable, filter: subject };
}

/** Subject of pool work for a model. */
export function poolSubject(lane: LaneIdentity, model: string): string {
  return laneSubject(lane, subjectToken(model));
}

/** Subject of work for a model on this worker alone. */
export function directSubject(lane: LaneIdentity, model: string): string {
  return `${poolSubject(lane, model)}.${subjectToken(lane.workerId)}`;
}

function laneSubject(lane: LaneIdentity, modelToken: string): string {
  return `sie.work.${lane.pool}.${subjectToken(lane.machineProfile)}.${subjectToken(lane.bundle)}.${modelToken}`;
}

/** What a delivery's subject says. */
export interface WorkSubject {
  readonly kind: "pool" | "direct" | VersionedLaneKind | "other";
  /** The model token, as it stands in the subject. */
  readonly modelToken: string;
  /** The model id read back from the token. */
  readonly model: string;
  /** The work was sent to this worker alone. */
  readonly workerDirect: boolean;
}

type VersionedLaneKind = "execution_authority_v1" | "numerical_admission_v1";

/** Reads a delivery's subject; undefined when it is malformed, that is, has fewer than six tokens (1.3). */
export function parseWorkSubject(subject: string): WorkSubject | undefined {
  const tokens = subject.split(".");
  const modelToken = tokens[5];
  if (modelToken === undefined) return undefined;
  const kind = subjectKind(tokens);
  return {
    kind,
    modelToken,
    model: textOfToken(modelToken),
    workerDirect: kind !== "pool" && kind !== "other",
  };
}

function subjectKind(tokens: readonly string[]): WorkSubject["kind"] {
  if (tokens[0] !== "sie" || tokens[1] !== "work") return "other";
  if (tokens.length === 6) return "pool";
  if (tokens.length === 7) return "direct";
  if (tokens.length !== 8) return "other";
  if (tokens[7] === "execution-authority-v1") return "execution_authority_v1";
  return tokens[7] === "numerical-admission-v1" ? "numerical_admission_v1" : "other";
}

/**
 * The model of a delivery: the subject decides (1.3). Where the item's own id makes the same token the item's id is kept, since
 * reading a token back is lossy; the reference always takes the token's reading (`reference`).
 */
export function modelOf(subject: WorkSubject, itemModel: string, reference: boolean): string {
  if (itemModel === subject.model) return itemModel;
  if (!reference && lenientToken(itemModel) === subject.modelToken) return itemModel;
  if (!reference && subjectToken(itemModel) === subject.modelToken) return itemModel;
  return subject.model;
}

/** Whether two subject filters have a subject in common. An empty filter has none with anything. */
export function filtersOverlap(a: string, b: string): boolean {
  if (a === "" || b === "") return false;
  const left = a.split("."), right = b.split(".");
  const leftOpen = left.at(-1) === ">", rightOpen = right.at(-1) === ">";
  const common = Math.min(left.length - (leftOpen ? 1 : 0), right.length - (rightOpen ? 1 : 0));
  for (let i = 0; i < common; i++) {
    if (left[i] !== "*" && right[i] !== "*" && left[i] !== right[i]) return false;
  }
  if (leftOpen && rightOpen) return true;
  if (leftOpen) return right.length >= left.length;
  if (rightOpen) return left.length >= right.length;
  return left.length === right.length;
}

/** Whether every subject of `narrow` is one of `wide`. The empty filter of a consumer stands for all subjects. */
export function filterCovers(wide: string, narrow: string): boolean {
  if (wide === "") return true;
  const outer = wide.split("."), inner = narrow.split(".");
  for (const [i, token] of outer.entries()) {
    if (token === ">") return inner.length > i;
    if (inner[i] === undefined || inner[i] === ">") return false;
    if (token !== "*" && token !== inner[i]) return false;
  }
  return outer.length === inner.length;
}
