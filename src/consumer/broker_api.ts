/**
 * The broker's stream and consumer calls that the worker is allowed to make (spec/queue.md 1.7), and what their errors mean. Never
 * asks for names by subject, never lists streams: the chart's rights do not cover that.
 */
import { JetStreamApiError, type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { type NatsConnection, PermissionViolationError, RequestError, TimeoutError } from "@nats-io/nats-core";
import { errorText } from "../runtime/errors.ts";
import { BrokerError } from "./errors.ts";
import { rightFor } from "./rights.ts";

/** The broker's error numbers that decide something. */
export const BrokerCode = {
  consumerNotFound: 10014,
  storageChange: 10052,
  streamNameInUse: 10058,
  streamNotFound: 10059,
  subjectsOverlap: 10065,
  replicasNotPossible: 10074,
  filterNotUnique: 10100,
  consumerExists: 10148,
} as const;

/** How long one call may take, in milliseconds: at start and in the reconciler. */
export const PATIENT_CALL_MS = 5_000;

/**
 * The same while a lane is being healed. A cluster without a leader drops calls instead of answering them; what was asked too early
 * has to be asked again soon.
 */
export const HEALING_CALL_MS = 1_000;

/** The calls, without the check that asks for rights the chart does not give. */
export function brokerApi(nats: NatsConnection, timeoutMs: number): Promise<JetStreamManager> {
  return jetstreamManager(nats, { checkAPI: false, timeout: timeoutMs });
}

/** Whether an error is the broker's error of this number. */
export function hasCode(thrown: unknown, code: number): boolean {
  return thrown instanceof JetStreamApiError && thrown.code === code;
}

/** An error of a call as one of ours. `doing` says what was tried, e.g. "create stream X". */
export function apiError(doing: string, thrown: unknown): BrokerError {
  if (thrown instanceof BrokerError) return thrown;
  const refusal = permissionViolation(thrown);
  if (refusal !== undefined) {
    const right = rightFor(refusal.subject);
    const text = refusal.operation === "publish"
      ? `the user lacks the right to publish to ${right}`
      : `the user lacks the right to subscribe to ${right}`;
    return new BrokerError("permission", `cannot ${doing}: ${text}`, { cause: thrown });
  }
  return new BrokerError("provision", `cannot ${doing}: ${explain(thrown)}`, { cause: thrown });
}

/** The refusal behind an error of a request, if it is one. */
export function permissionViolation(thrown: unknown): PermissionViolationError | undefined {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    if (error instanceof PermissionViolationError) return error;
  }
  return undefined;
}

function explain(thrown: unknown): string {
  if (thrown instanceof JetStreamApiError) {
    const advice = ADVICE.get(thrown.code);
    return `${thrown.message} (error ${thrown.code})${advice === undefined ? "" : `; ${advice}`}`;
  }
  if (thrown instanceof TimeoutError) return "no answer in time";
  if (thrown instanceof RequestError && thrown.isNoResponders()) return "JetStream is not enabled on this broker";
  return errorText(thrown);
}

const ADVICE = new Map<number, string>([
  [BrokerCode.subjectsOverlap, "another stream has the lane's subjects: remove or change it"],
  [BrokerCode.replicasNotPossible, "SIE_STREAM_REPLICAS asks for more servers than the cluster has"],
  [BrokerCode.storageChange, "the stream's storage cannot be changed: set SIE_STREAM_STORAGE as the gateway has it"],
]);
