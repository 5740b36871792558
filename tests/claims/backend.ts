/**
 * Claims on recordings of the real backend: every answer is read by our client's code, every request is judged as the backend
 * judged it, and those that our client can send are encoded to the same content.
 */
import assert from "node:assert/strict";
import { checkResponse } from "../../src/ipc/answer.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { ALL_STRUCTS } from "../../src/wire/ipc/all_structs.ts";
import { readResponse } from "../../src/wire/ipc/envelope.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { decodeNotation } from "../harness/notation.ts";
import { fromHex } from "../harness/paths.ts";
import { listVectorFiles, type VectorCase, type VectorClaim } from "../harness/vectors.ts";
import { splitFrames } from "../ipc/frames.ts";
import { type DecodedRequest, encodeAsClient } from "../ipc/requests.ts";
import { ANSWER_FORMS } from "../ipc/wire_forms.ts";
import { judged } from "./ipc_requests.ts";

type Plain = Record<string, unknown>;

interface Recording {
  readonly name: string;
  readonly request_hex: string;
  readonly response_hex?: string;
  readonly response_frames_hex?: readonly string[];
  readonly event_kinds?: readonly string[];
  readonly connection_closed_by_backend?: boolean;
  readonly decoded: {
    readonly request: (DecodedRequest & Plain) | null;
    readonly response?: Envelope;
    readonly responses?: readonly Envelope[];
  };
}

interface Envelope extends Plain {
  readonly request_id: unknown;
  readonly ok: boolean;
  readonly body: Plain | null;
  readonly error: string | null;
}

/** Only the shape of 37 MB was kept, from which nothing can be computed; the conformance test runs the exchange anew. */
const UNCLAIMED = ["chunked", "chunked-not-negotiated"];

/** Errors that come from the request's form; any other error is the handler's, and the request itself is in order. */
const FORM_ERRORS = /^(bad body for|unknown method|unsupported version|envelope missing fields)/;

/** Methods of our client that answer like those it does not have. */
const ALIKE: Readonly<Record<string, string>> = {
  RunBatchWithExecutionAuthorityV1: "RunBatch",
  RunBatchWithNumericalAdmissionV1: "RunBatch",
  ProcessGenerateWithExecutionAuthorityV1: "ProcessGenerate",
};

/** Requests in order by their form that our client would never make: mixed operations, items without a payload, tokens for score … */
const NEVER_SENT = [
  "drain-again",
  "encode-admission",
  "harness-score-prepared",
  "no-request-id",
  "run-mixed-op",
  "run-no-payload",
  "u64-batch-id",
  "worker-capabilities-nil-body",
];

function frames(recording: Recording): Uint8Array[] {
  const hex = recording.response_hex === undefined ? recording.response_frames_hex ?? [] : [recording.response_hex];
  return hex.flatMap((frame) => splitFrames(fromHex(frame)));
}

function envelopes(recording: Recording): readonly Envelope[] {
  return recording.decoded.response === undefined ? recording.decoded.responses ?? [] : [recording.decoded.response];
}

/** The method that an answer answers; of the pipelined requests by its id, of requests without a usable one any. */
function methodOf(recording: Recording, envelope: Envelope): string {
  if (recording.decoded.request === null) return envelope.request_id === "first" ? "ProcessEncodeBatch" : "Ping";
  const method = recording.decoded.request.method;
  return ALIKE[method] ?? (method in ANSWER_FORMS ? method : "Ping");
}

function checkAnswer(recording: Recording, frame: Uint8Array, envelope: Envelope): void {
  const form = ANSWER_FORMS[methodOf(recording, envelope)];
  assert.ok(form !== undefined);
  if (typeof envelope.request_id !== "string") {
    // Nobody can be waiting for it.
    assert.throws(() => readResponse(frame, form.method), MsgpackError);
    return;
  }
  const response = readResponse(frame, form.method);
  if (envelope.ok) {
    const answer = checkResponse(response, envelope.request_id);
    assert.deepEqual(form.ofAnswer(answer), form.ofVector(envelope.body ?? {}));
  } else {
    assert.throws(
      () => checkResponse(response, String(envelope.request_id)),
      (thrown) => thrown instanceof IpcError && thrown.kind === "server" && thrown.message === envelope.error,
    );
  }
}

function* answerCases(recording: Recording): Iterable<VectorCase> {
  const received = frames(recording);
  for (const [index, envelope] of envelopes(recording).entries()) {
    yield {
      name: `answer ${index + 1}`,
      check() {
        const frame = received[index];
        assert.ok(frame !== undefined, "the recording has fewer frames than decoded answers");
        checkAnswer(recording, frame, envelope);
      },
    };
  }
}

/** What the recording says of the request's form. */
function recordedVerdict(recording: Recording): string {
  const [first] = envelopes(recording);
  if (first === undefined) return recording.connection_closed_by_backend === true ? "closed" : "open";
  return !first.ok && FORM_ERRORS.test(first.error ?? "") ? first.error ?? "" : "taken";
}

async function checkVerdict(recording: Recording): Promise<void> {
  const verdict = await judged(fromHex(recording.request_hex));
  const text = typeof verdict === "string" ? verdict : (verdict as { error?: string }).error ?? "taken";
  assert.equal(text, recordedVerdict(recording));
}

/** A body with defaults filled in and tags resolved, so that it does not matter which keys were left out. */
function normalised(type: string, value: unknown): unknown {
  if (value === null) return null;
  const list = /^list\[(.*)\]$/.exec(type.replace(/\|nil$/, ""));
  if (list?.[1] !== undefined) return (value as unknown[]).map((each) => normalised(list[1] ?? "", each));
  const of = ALL_STRUCTS.find((each) => each.name === type.replace(/\|nil$/, ""));
  if (of === undefined) return untagged(value);
  return Object.fromEntries(of.names.map((name) => {
    const field = of.fields[name];
    const given = (value as Plain)[name];
    return [name, given === undefined ? field?.fallback : normalised(field?.type ?? "", given)];
  }));
}

function untagged(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(untagged);
  if (typeof value !== "object" || value === null) return value;
  if ("$bin" in value) return { $bin: value.$bin };
  if ("$f64" in value) return value.$f64;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, untagged(inner)]));
}

/** Our client asks for the shared buffers always. */
function withoutCapability(body: unknown): unknown {
  const { accepts_batched_f16_multivectors: _, ...rest } = body as Plain;
  return rest;
}

function checkEncoding(request: DecodedRequest): void {
  const bytes = encodeAsClient(request);
  assert.ok(bytes !== undefined);
  const sent = decodeNotation(bytes) as DecodedRequest;
  assert.deepEqual([sent.method, sent.request_id], [request.method, request.request_id]);
  const type = `${request.method}Request`;
  assert.deepEqual(
    withoutCapability(normalised(type, sent.body)),
    withoutCapability(normalised(type, request.body)),
  );
}

export const backendClaims: VectorClaim[] = [{
  files: listVectorFiles().filter((file) =>
    file.startsWith("backend/") && !UNCLAIMED.some((name) => file === `backend/${name}.json`)
  ),
  *cases(data): Iterable<VectorCase> {
    const recording = data as Recording;
    yield* answerCases(recording);
    // Two requests in one recording are no request.
    if (recording.decoded.request !== null || envelopes(recording).length === 0) {
      yield { name: `request: ${recordedVerdict(recording).slice(0, 60)}`, check: () => checkVerdict(recording) };
    }
    const { request } = recording.decoded;
    const ours = request !== null && request.method in ANSWER_FORMS && recordedVerdict(recording) === "taken";
    if (ours && !NEVER_SENT.includes(recording.name)) {
      yield { name: "request as our client sends it", check: () => checkEncoding(request) };
    }
    if (recording.event_kinds !== undefined) {
      yield {
        name: "kinds of the events",
        check() {
          const form = ANSWER_FORMS.ProcessGenerate;
          assert.ok(form !== undefined);
          const kinds = frames(recording).map((frame) => {
            const response = readResponse(frame, form.method);
            return response.ok ? (form.ofAnswer(response.body) as { kind: string }).kind : "error";
          });
          assert.deepEqual(kinds, recording.event_kinds);
        },
      };
    }
  },
}];
