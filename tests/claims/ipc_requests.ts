/**
 * Claims on requests: those of our methods are encoded to the same bytes; the odd and the malformed ones are judged as the backend
 * judges them.
 */
import assert from "node:assert/strict";
import { callFault, judgeRequest } from "../../src/wire/ipc/request.ts";
import { BACKEND_FRAMES, FrameError, FrameReader } from "../../src/wire/frames.ts";
import { assertNotation, encodeNotation } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { framed } from "../ipc/frames.ts";
import { type DecodedRequest, encodeAsClient } from "../ipc/requests.ts";

interface RequestVector {
  readonly name: string;
  readonly hex: string;
  readonly decoded: unknown;
  readonly expected?: string;
  readonly answer?: { readonly request_id: unknown; readonly error: string };
  readonly work_item?: unknown;
}

/** What our client sends, key by key. */
const OURS = [
  "apply_model_config",
  "apply_model_config_adapters",
  "drain",
  "ensure_model_ready",
  "numerical_profile_snapshot",
  "ping",
  "process_encode_batch",
  "process_extract_batch_audio",
  "process_extract_batch_document",
  "process_generate",
  "process_score_batch",
  "replace_model_configs",
  "run_batch_empty",
  "run_batch_encode",
  "run_batch_extract",
  "run_batch_score",
  "set_pinned_models",
  "signal_generate_cancel",
  "worker_capabilities",
];

/** What other clients may send and the backend takes: forms with fewer keys, other methods. Only the judgement is ours. */
const ACCEPTED = [
  "ping_integer_timestamp",
  "ping_no_capability_key",
  "process_generate_execution_authority",
  "run_batch_admission_on_plain_method",
  "run_batch_execution_authority",
  "run_batch_minimal",
  "run_batch_missing_payload",
  "run_batch_mixed_op",
  "run_batch_numerical_admission",
];

const REFUSED = [
  "array",
  "bin_for_str",
  "binary_keys",
  "body_array",
  "bool_for_float",
  "cut_msgpack",
  "empty_frame",
  "float_for_int",
  "integer_key",
  "integer_request_id",
  "invalid_utf8",
  "method_case",
  "nil",
  "nil_for_default",
  "nil_key",
  "nil_request_id",
  "no_version",
  "oversize_header",
  "reserved_byte",
  "trailing_byte",
  "truncated_body",
  "truncated_header",
];

/** The first frame of `bytes`, read as from a connection that ends there; undefined when there is none. */
export async function firstFrame(bytes: Uint8Array): Promise<Uint8Array | undefined> {
  let at = 0;
  const source = {
    read(into: Uint8Array): Promise<number | null> {
      const count = Math.min(into.length, bytes.length - at);
      if (count === 0) return Promise.resolve(null);
      into.set(bytes.subarray(at, at + count));
      at += count;
      return Promise.resolve(count);
    },
  };
  try {
    return await new FrameReader(source, BACKEND_FRAMES).readFrame();
  } catch (thrown) {
    if (thrown instanceof FrameError) return undefined;
    throw thrown;
  }
}

/** What a backend does with the bytes: hangs up, answers an error, or runs a method. */
export async function judged(bytes: Uint8Array): Promise<unknown> {
  const frame = await firstFrame(bytes);
  if (frame === undefined) return "closed";
  const verdict = judgeRequest(frame);
  if (verdict.kind === "hang_up") return "closed";
  if (verdict.kind === "refuse") return { requestId: toHex(verdict.requestId), error: verdict.error };
  const fault = callFault(verdict.method, verdict.body);
  if (fault !== undefined) return { requestId: toHex(encodeNotation(verdict.requestId)), error: fault };
  const { method, requestId, acceptsChunks } = verdict;
  return { method, requestId, acceptsChunks };
}

export const ipcRequestClaims: VectorClaim[] = [
  {
    files: OURS.map((name) => `ipc/req_${name}.json`),
    *cases(data): Iterable<VectorCase> {
      const vector = data as RequestVector;
      const request = vector.decoded as DecodedRequest;
      yield {
        name: "the same bytes",
        check() {
          const bytes = encodeAsClient(request);
          assert.ok(bytes !== undefined);
          assert.equal(toHex(framed(bytes)), vector.hex);
          assertNotation(bytes, vector.decoded);
        },
      };
      yield {
        name: "a backend takes it",
        async check() {
          const acceptsChunks = request.method !== "ProcessGenerate";
          assert.deepEqual(await judged(fromHex(vector.hex)), {
            method: request.method,
            requestId: request.request_id,
            acceptsChunks,
          });
        },
      };
    },
  },
  {
    files: ACCEPTED.map((name) => `ipc/req_${name}.json`),
    *cases(data): Iterable<VectorCase> {
      const vector = data as RequestVector;
      const request = vector.decoded as DecodedRequest & { accepts_ipc_response_chunks_v1?: boolean };
      yield {
        name: "a backend takes it",
        async check() {
          assert.equal(toHex(framed(encodeNotation(vector.decoded))), vector.hex);
          assert.deepEqual(await judged(fromHex(vector.hex)), {
            method: request.method,
            requestId: request.request_id,
            acceptsChunks: request.accepts_ipc_response_chunks_v1 ?? false,
          });
        },
      };
    },
  },
  {
    files: REFUSED.map((name) => `ipc/bad_request_${name}.json`),
    *cases(data): Iterable<VectorCase> {
      const vector = data as RequestVector;
      yield {
        name: vector.expected ?? "",
        async check() {
          const expected = vector.expected === "connection closed, nothing written"
            ? "closed"
            : { requestId: toHex(encodeNotation(vector.answer?.request_id)), error: vector.answer?.error };
          assert.deepEqual(await judged(fromHex(vector.hex)), expected);
        },
      };
    },
  },
];
