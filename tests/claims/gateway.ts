/** Claims on the vectors of the other end: what a gateway collects, reads and chooses. */
import assert from "node:assert/strict";
import { pickWorker, pressureOf, rendezvousScore, type WorkerLoad } from "../../src/gateway/rendezvous.ts";
import { DEFAULT_PREFIX_RULES, prefixHash, routingHash } from "../../src/gateway/routing_key.ts";
import { type ChunkMark, StreamCollector } from "../../src/gateway/stream_collector.ts";
import {
  readWorkerPublication,
  type TokenUsage,
  type WorkerChunk,
  type WorkerNak,
} from "../../src/gateway/worker_publication.ts";
import { xxh3OfText } from "../../src/gateway/xxh3.ts";
import { encodeNotation } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";

type Plain = Record<string, unknown>;

interface CollectorCase {
  readonly name: string;
  readonly input: readonly { readonly attempt_id: string; readonly seq: number; readonly done: boolean }[];
  readonly expected: readonly string[];
}

const collectorClaim: VectorClaim = {
  files: ["generation/gateway-collector.json"],
  *cases(data) {
    for (const { name, input, expected } of data as CollectorCase[]) {
      yield {
        name,
        check() {
          const collector = new StreamCollector();
          const marks = input.map(({ attempt_id: attemptId, seq, done }): ChunkMark => ({ attemptId, seq, done }));
          assert.deepEqual(marks.map((mark) => collector.takeChunk(mark)), expected);
        },
      } satisfies VectorCase;
    }
  },
};

interface PublicationCase {
  readonly name: string;
  readonly hex: string;
  readonly expected: Plain;
}

/** Fields that the reader hands on as they are: compared as bytes. */
const SPANS = ["logprobs", "candidates", "tool_calls"];

const publicationClaim: VectorClaim = {
  files: ["generation/worker-publications.json"],
  *cases(data) {
    for (const { name, hex, expected } of data as PublicationCase[]) {
      yield {
        name,
        check() {
          const fields = Object.entries(expected).map(([key, value]) =>
            SPANS.includes(key) ? [key, toHex(encodeNotation(value))] : [key, value]
          );
          assert.deepEqual(present(publicationForm(readWorkerPublication(fromHex(hex)))), Object.fromEntries(fields));
        },
      } satisfies VectorCase;
    }
  },
};

/** What was read, under the names of the wire. */
function publicationForm(read: WorkerChunk | WorkerNak): Plain {
  const common = {
    kind: read.kind,
    request_id: read.requestId,
    attempt_id: read.attemptId,
    executed_bundle_config_hash: read.executedBundleConfigHash,
  };
  if (read.kind === "nak") return { ...common, reason: read.reason };
  const { error } = read;
  return {
    ...common,
    seq: read.seq,
    text_delta: read.textDelta,
    done: read.done,
    is_first: read.isFirst,
    finish_reason: read.finishReason,
    usage: read.usage === undefined ? undefined : usageForm(read.usage),
    ttft_ms: read.ttftMs,
    error: error === undefined ? undefined : {
      code: error.code,
      message: error.message,
      param: error.param,
      retry_after_s: error.retryAfterS,
    },
    choice_index: read.choiceIndex,
    reasoning_delta: read.reasoningDelta,
    logprobs: spanForm(read.logprobs),
    candidates: spanForm(read.candidates),
    tool_calls: spanForm(read.toolCalls),
  };
}

function usageForm(usage: TokenUsage): Plain {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.totalTokens,
    prompt_tokens_details: usage.cachedTokens === undefined ? undefined : { cached_tokens: usage.cachedTokens },
    upstream_usage: spanForm(usage.upstreamUsage),
    images: spanForm(usage.images),
  };
}

function spanForm(bytes: Uint8Array | undefined): string | undefined {
  return bytes === undefined ? undefined : toHex(bytes);
}

/** Without members that are undefined, at any depth. */
function present(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(members.map(([key, member]) => [key, present(member)]));
}

interface HrwCase {
  readonly name: string;
  readonly input?: string;
  readonly hex?: string;
  readonly decoded?: string;
  readonly key?: string;
  readonly request_hash?: string;
  readonly scores?: Readonly<Record<string, string>>;
  readonly picked?: string;
  readonly load_slots_queue_cost_inflight?: Readonly<Record<string, readonly [number, number, number, number]>>;
  readonly pressure_keys?: Readonly<Record<string, readonly number[]>>;
  readonly hash?: string | null;
  readonly salted_hash?: string;
  readonly byte_preserving_hash?: string;
  readonly fallback_hash?: string;
}

const CHECKS: Readonly<Record<string, (one: HrwCase) => void>> = {
  xxh3({ input = "", hex, decoded }) {
    const hash = xxh3OfText(input);
    assert.equal(hash.toString(16).padStart(16, "0"), hex);
    assert.equal(String(hash), decoded);
  },
  pick({ key = "", request_hash, scores = {}, picked }) {
    const hash = hashOfKey(key);
    assert.equal(String(hash), request_hash);
    const names = Object.keys(scores);
    assert.deepEqual(
      Object.fromEntries(names.map((name) => [name, String(rendezvousScore(name, hash))])),
      scores,
    );
    assert.equal(pickWorker(names.map((name) => loaded(name, [1, 0, 0, 0])), hash)?.name, picked);
  },
  pick_pressure({ key = "", load_slots_queue_cost_inflight = {}, pressure_keys = {}, picked }) {
    const workers = Object.entries(load_slots_queue_cost_inflight).map(([name, load]) => loaded(name, load));
    assert.deepEqual(Object.fromEntries(workers.map((worker) => [worker.name, pressureOf(worker)])), pressure_keys);
    assert.equal(pickWorker(workers, hashOfKey(key))?.name, picked);
  },
  prefix_key({ input = "", hash, salted_hash, byte_preserving_hash }) {
    assert.equal(String(routingHash({ system: input })), hash);
    assert.equal(String(prefixHash(input)), hash);
    assert.equal(String(prefixHash(input, { ...DEFAULT_PREFIX_RULES, salt: "tenant" })), salted_hash);
    assert.equal(String(prefixHash(input, { ...DEFAULT_PREFIX_RULES, preservesBytes: true })), byte_preserving_hash);
  },
  prefix_short({ input = "", hash, fallback_hash }) {
    assert.equal(prefixHash(input) ?? null, hash);
    assert.equal(String(routingHash({ system: input })), fallback_hash);
  },
};

const hrwClaim: VectorClaim = {
  files: ["queue/hrw.json"],
  *cases(data) {
    for (const one of data as HrwCase[]) {
      yield {
        name: one.name,
        check() {
          const check = CHECKS[one.name.split(":")[0] ?? ""];
          assert.ok(check !== undefined, "a case that this claim does not know");
          check(one);
        },
      } satisfies VectorCase;
    }
  },
};

function hashOfKey(key: string): bigint {
  return routingHash({ routingKey: key }) ?? assert.fail("a key has a hash");
}

function loaded(name: string, [slots, depth, cost, inflight]: readonly [number, number, number, number]): WorkerLoad {
  return { name, readyGpuSlots: slots, queueDepth: depth, pendingCost: cost, inflight };
}

/** All claims of this topic. */
export const gatewayClaims: VectorClaim[] = [collectorClaim, publicationClaim, hrwClaim];
