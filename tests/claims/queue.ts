/** Claims on the queue vectors that the consumer answers: names, guards, settlement messages, deadlines, pool admission. */
import assert from "node:assert/strict";
import { ACK_BODY, nakBody, PROGRESS_BODY } from "../../src/consumer/acks.ts";
import {
  expectsReply,
  foreignWorkHeader,
  isComplete,
  isGatewaySignal,
  isSafeReplySubject,
  parseBatchCancel,
  parseCancel,
  parseWorkCancel,
  type RequestKey,
} from "../../src/consumer/guards.ts";
import {
  directLane,
  directSubject,
  filtersOverlap,
  type LaneIdentity,
  lenientToken,
  parseWorkSubject,
  poolLane,
  poolSubject,
  subjectToken,
  textOfToken,
  versionedLane,
} from "../../src/consumer/names.ts";
import {
  type AdmissionState,
  admitsItem,
  admitsPull,
  decidePool,
  logicalPools,
  poolKey,
} from "../../src/consumer/pool_admission.ts";
import { deadlineStatus, leaseHorizonS } from "../../src/consumer/deadline.ts";
import { toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";

type Json = Record<string, unknown>;

/** Cases of a file that is a list; `check` looks at the name's first word. */
function listed(files: readonly string[], check: (topic: string, one: Json) => void): VectorClaim {
  return {
    files,
    *cases(data) {
      for (const one of data as Json[]) {
        const name = String(one["name"]);
        yield { name, check: () => check(name.split(":")[0] ?? "", one) } satisfies VectorCase;
      }
    },
  };
}

const utf8 = new TextDecoder();

function laneOf(input: Json): LaneIdentity {
  return {
    pool: String(input["pool"]),
    machineProfile: String(input["machine_profile"]),
    bundle: String(input["bundle"]),
    workerId: String(input["worker_id"]),
  };
}

function checkSubject(topic: string, one: Json): void {
  const input = one["input"];
  switch (topic) {
    case "token": {
      const text = String(input), token = lenientToken(text);
      assert.equal(token, one["decoded"]);
      assert.equal(toHex(new TextEncoder().encode(token)), one["hex"]);
      assert.equal(subjectToken(text), one["gateway_token"]);
      assert.equal(textOfToken(token), one["denormalized"]);
      assert.equal(textOfToken(token) === text, one["round_trips"]);
      return;
    }
    case "lane":
      assert.deepEqual(laneNames(input as Json), one["expected"]);
      return;
    case "subject": {
      const parsed = parseWorkSubject(String(input));
      assert.equal(parsed?.model ?? null, one["model"]);
      assert.equal(parsed?.kind ?? "other", one["kind"]);
      assert.equal(parsed?.workerDirect ?? false, one["worker_direct"]);
      return;
    }
    case "overlap": {
      const [a = "", b = ""] = input as string[];
      assert.equal(filtersOverlap(a, b), one["overlaps"]);
      assert.equal(filtersOverlap(b, a), one["overlaps"], "the other way round");
      return;
    }
    default:
      assert.fail(`unknown topic ${topic}`);
  }
}

function laneNames(input: Json): Json {
  const lane = laneOf(input), model = String(input["model"]);
  const pool = poolLane(lane), direct = directLane(lane);
  const authority = versionedLane(lane, "execution-authority-v1");
  const admission = versionedLane(lane, "numerical-admission-v1");
  return {
    pool_stream: pool.stream,
    pool_stream_subjects: [pool.subject],
    pool_consumer: pool.durable,
    pool_filter: pool.filter,
    pool_subject: poolSubject(lane, model),
    direct_stream: direct.stream,
    direct_consumer: direct.durable,
    direct_filter: direct.filter,
    direct_subject: directSubject(lane, model),
    authority_stream: authority.stream,
    authority_consumer: authority.durable,
    authority_filter: authority.filter,
    admission_stream: admission.stream,
    admission_consumer: admission.durable,
    admission_filter: admission.filter,
  };
}

function pairOf(key: RequestKey | undefined): [string, string] | null {
  return key === undefined || !isComplete(key) ? null : [key.routerId, key.requestId];
}

function checkGuard(topic: string, one: Json): void {
  const input = String(one["input"]);
  const headers = Object.keys((one["headers"] ?? {}) as Json);
  switch (topic) {
    case "work_cancel":
      return assert.deepEqual(pairOf(parseWorkCancel(input)), one["expected"]);
    case "cancel":
      assert.deepEqual(pairOf(parseCancel(input)), one["expected"]);
      return assert.equal(parseCancel(input)?.requestId ?? null, one["forwarded_request_id"]);
    case "batch_cancel":
      return assert.equal(
        parseBatchCancel(input, subjectToken(String(one["worker_id"]))) ?? null,
        one["expected"],
      );
    case "cancel_origin":
      return assert.equal(isGatewaySignal((one["reply"] ?? undefined) as string | undefined, headers), one["accept"]);
    case "reply_subject":
      assert.equal(isSafeReplySubject(input), one["safe"]);
      return assert.equal(expectsReply(input), one["publishes"]);
    case "work_header":
      return assert.equal(foreignWorkHeader(headers) ?? null, one["rejected_header"]);
    default:
      assert.fail(`unknown topic ${topic}`);
  }
}

function checkAck(name: string, one: Json): void {
  if (name === "term" || name === "nak") {
    // Never sent: no body that code under `src/` makes may equal it.
    const made = [ACK_BODY, PROGRESS_BODY, nakBody(0), nakBody(100), nakBody(5000)].map(toHex);
    return assert.ok(!made.includes(String(one["hex"])), "a body that must never be sent can be made");
  }
  const body = name === "ack" ? ACK_BODY : name === "progress" ? PROGRESS_BODY : nakBody(Number(one["delay_ms"]));
  assert.equal(utf8.decode(body), one["decoded"]);
  assert.equal(toHex(body), one["hex"]);
}

function checkDeadline(one: Json): void {
  const limits = { skewToleranceS: Number(one["skew_tolerance_s"]), maxBudgetS: Number(one["max_budget_s"]) };
  const deadline = one["deadline"] === null ? undefined : Number(one["deadline"]);
  const status = deadlineStatus(deadline, Number(one["timestamp"]), Number(one["now"]), limits);
  assert.equal(status.kind, one["status"]);
  assert.equal(status.kind === "unbounded" ? null : status.seconds, one["seconds"]);
  const horizon = leaseHorizonS(status, one["enforce"] === true, limits, Number(one["max_horizon_s"]));
  assert.equal(horizon ?? null, one["lease_horizon_s"]);
}

function checkAdmission(topic: string, one: Json): void {
  switch (topic) {
    case "decide": {
      const decision = decidePool(one["pool"], {
        pool: String(one["pool_name"]),
        workerId: String(one["worker_id"]),
        machineProfile: String(one["machine_profile"]),
      });
      return assert.deepEqual([decision.admitted, decision.reason], one["expected"]);
    }
    case "logical":
      return assert.deepEqual(
        logicalPools(one["pools"] as unknown[], String(one["home_pool"]), String(one["worker_id"])),
        one["expected"],
      );
    case "item": {
      const state: AdmissionState = {
        admitted: one["admitted"] === true,
        logical: new Set((one["assigned_logical"] as string[]).map(poolKey)),
        reason: "assigned",
      };
      assert.equal(admitsItem(state, String(one["home_pool"]), String(one["admission_pool"])), one["admits"]);
      return assert.equal(admitsPull(state), one["pull_admitted"]);
    }
    default:
      assert.fail(`unknown topic ${topic}`);
  }
}

function checkGenerationSubject(one: Json): void {
  const { input, expected } = one;
  if (typeof input === "string") {
    const key = parseCancel(input);
    const read = key === undefined ? null : { router_id: key.routerId, request_id: key.requestId };
    return assert.deepEqual(read, expected);
  }
  const lane = laneOf(input as Json), model = String((input as Json)["model"]);
  const { stream, durable, filter } = directLane(lane);
  assert.deepEqual({
    pool_subject: poolSubject(lane, model),
    direct_subject: directSubject(lane, model),
    worker_stream: stream,
    worker_consumer: durable,
    worker_filter: filter,
  }, expected);
}

export const queueClaims: VectorClaim[] = [
  listed(["queue/subjects.json"], checkSubject),
  listed(["queue/guards.json"], checkGuard),
  listed(["queue/acks.json"], (name, one) => checkAck(name, one)),
  listed(["queue/deadline.json"], (_, one) => checkDeadline(one)),
  listed(["queue/pool_admission.json"], checkAdmission),
  listed(["generation/subjects.json"], (_, one) => checkGenerationSubject(one)),
];
