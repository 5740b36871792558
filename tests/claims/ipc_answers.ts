/** Claims on answers: each is sent by a scripted backend and read by the real client, in both transports. */
import assert from "node:assert/strict";
import { IpcError } from "../../src/ipc/errors.ts";
import type { Transport } from "../../src/ipc/transport.ts";
import type { IpcMethod } from "../../src/wire/ipc/methods.ts";
import { Ping } from "../../src/wire/ipc/methods.ts";
import { fromHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { client, failureOf, type Mode, MODES, NO_LIMIT_MS } from "../ipc/clients.ts";
import { pingAnswer } from "../ipc/frames.ts";
import { ScriptedBackend } from "../ipc/scripted_backend.ts";
import { ANSWER_FORMS, type AnswerForm } from "../ipc/wire_forms.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

interface AnswerVector {
  readonly name: string;
  readonly hex: string;
  readonly decoded:
    | { readonly ok: boolean; readonly body: Record<string, unknown> | null; readonly error: string }
    | null;
  readonly expected?: { readonly pool: string; readonly mux: string };
}

const OK_ANSWERS: Readonly<Record<string, readonly string[]>> = {
  ApplyModelConfig: ["apply_model_config"],
  Drain: ["drain"],
  EnsureModelReady: [
    "ensure_failed",
    "ensure_loading_in_progress",
    "ensure_loading_started",
    "ensure_ready_documented_descriptor",
    "ensure_ready_engine_batched",
    "ensure_ready_full",
    "ensure_retry_later",
  ],
  NumericalProfileSnapshot: ["numerical_profile_snapshot"],
  Ping: ["ping", "ping_older"],
  ReplaceModelConfigs: ["replace_model_configs"],
  RunBatch: [
    "batch_batched_f16",
    "batch_empty",
    "batch_error",
    "batch_nak",
    "batch_older",
    "batch_raw_dense",
    "batch_raw_dense_native",
    "batch_raw_multivector_f16",
    "batch_raw_multivector_f32",
    "batch_raw_score",
    "batch_raw_sparse",
    "batch_raw_sparse_no_dims",
    "batch_result_msgpack",
  ],
  SetPinnedModels: ["set_pinned_models"],
  SignalGenerateCancel: ["signal_generate_cancel"],
  WorkerCapabilities: ["worker_capabilities"],
};

const ERROR_ANSWERS = [
  "authority_without_hash",
  "bad_body",
  "chunk_bounds",
  "chunks_not_negotiated",
  "draining",
  "envelope",
  "generate_not_a_map",
  "unknown_method",
  "unknown_op",
  "version",
];

const BAD_ANSWERS = [
  "eof_in_body",
  "eof_in_header",
  "nil_list",
  "not_an_envelope",
  "not_ok_without_error",
  "ok_without_body",
  "oversize_header",
  "request_id",
  "trailing_byte",
  "unknown_disposition",
  "unknown_state",
  "version",
];

/** The first request of a client is `w-1`, as in the vectors. */
function call(transport: Transport, form: AnswerForm): Promise<unknown> {
  // The scripted backend does not look at the body, so a Ping's is as good as any.
  const method: IpcMethod<number, unknown> = { ...form.method, writeBody: Ping.writeBody };
  return transport.call(method, 0, NO_LIMIT_MS);
}

function formOf(method: string): AnswerForm {
  const form = ANSWER_FORMS[method];
  if (form === undefined) throw new Error(`no form for ${method}`);
  return form;
}

/** One connection after the other: the vector's bytes as the first answer, a Ping answer to whatever follows on it. */
function serving(bytes: Uint8Array, endsInMidFrame = false) {
  return new ScriptedBackend(async (connection) => {
    let first = true;
    for (;;) {
      const request = await connection.request();
      if (request === undefined) return;
      if (request.requestId !== "w-1") await connection.send(pingAnswer(request.requestId));
      else if (first) {
        await connection.send(bytes);
        if (endsInMidFrame) return;
      }
      first = false;
    }
  });
}

async function answered(vector: AnswerVector, form: AnswerForm, mode: Mode): Promise<unknown> {
  await using backend = serving(fromHex(vector.hex));
  using to = client({ path: backend.path, mode });
  return await call(to.transport, form);
}

function okClaim(method: string, names: readonly string[]): VectorClaim {
  return {
    files: names.map((name) => `ipc/resp_${name}.json`),
    *cases(data): Iterable<VectorCase> {
      const vector = data as AnswerVector;
      const form = formOf(method);
      for (const mode of MODES) {
        yield {
          name: `${method} over ${mode}`,
          async check() {
            const answer = await answered(vector, form, mode);
            assert.deepEqual(form.ofAnswer(answer), form.ofVector(vector.decoded?.body ?? {}));
          },
        };
      }
    },
  };
}

const errorClaim: VectorClaim = {
  files: ERROR_ANSWERS.map((name) => `ipc/resp_error_${name}.json`),
  *cases(data): Iterable<VectorCase> {
    const vector = data as AnswerVector;
    for (const mode of MODES) {
      yield {
        name: `error text over ${mode}`,
        async check() {
          const error = await failureOf(answered(vector, formOf("RunBatch"), mode));
          assert.ok(error instanceof IpcError);
          assert.equal(error.kind, "server");
          assert.equal(error.message, vector.decoded?.error);
          assert.equal(error.draining, vector.decoded?.error === "draining");
        },
      };
    }
  },
};

/** What `expected` says in words. */
interface BadOutcome {
  readonly kind: string | undefined;
  readonly retried: boolean;
  readonly kept: boolean;
}

function outcomeOf(text: string): BadOutcome {
  const named = /^(\w+)(?: \([^)]*\))? error/.exec(text)?.[1];
  const retried = /retried once/.test(text);
  return {
    kind: text === "accepted" ? undefined : named ?? (retried ? "io" : assert.fail(`unknown expectation: ${text}`)),
    retried,
    kept: text === "accepted" || /connection kept/.test(text),
  };
}

function methodOfBody(body: Record<string, unknown> | null | undefined): string {
  if (body !== null && body !== undefined && "state" in body) return "EnsureModelReady";
  return body !== null && body !== undefined && "outcomes" in body ? "RunBatch" : "Ping";
}

async function checkBad(vector: AnswerVector, mode: Mode, expected: BadOutcome): Promise<void> {
  await using backend = serving(fromHex(vector.hex), vector.name.includes("_eof_"));
  using to = client({ path: backend.path, mode });
  const form = formOf(methodOfBody(vector.decoded?.body));
  if (expected.kind === undefined) {
    const answer = await call(to.transport, form);
    assert.deepEqual(form.ofAnswer(answer), form.ofVector(vector.decoded?.body ?? {}));
  } else {
    const error = await failureOf(call(to.transport, form));
    assert.ok(error instanceof IpcError, String(error));
    assert.equal(error.kind, expected.kind);
    if (vector.decoded?.error === null && vector.decoded.ok === false) assert.equal(error.message, "");
  }
  assert.equal(backend.requests.filter((request) => request.requestId === "w-1").length, expected.retried ? 2 : 1);
  const before = backend.connections;
  assert.equal(before, expected.retried ? 2 : 1);
  await to.transport.call(Ping, 0, NO_LIMIT_MS);
  assert.equal(backend.connections, expected.kept ? before : before + 1, "connections after the next call");
}

/** The frame of another request is dropped; the request it did not answer ends by its limit alone. */
async function checkDropped(vector: AnswerVector): Promise<void> {
  await using backend = serving(fromHex(vector.hex));
  const clock = new VirtualClock();
  const dropped = Promise.withResolvers<string>();
  using to = client({ path: backend.path, mode: "mux", clock, calls: { dropped: dropped.resolve } });
  let ended = false;
  const failure = failureOf(call(to.transport, formOf("EnsureModelReady"))).finally(() => ended = true);
  assert.equal(await dropped.promise, "w-2");
  assert.equal(ended, false);
  await clock.advance(NO_LIMIT_MS);
  const error = await failure;
  assert.ok(error instanceof IpcError);
  assert.equal(error.kind, "timeout");
  assert.equal(backend.connections, 1);
}

const badClaim: VectorClaim = {
  files: BAD_ANSWERS.map((name) => `ipc/bad_response_${name}.json`),
  *cases(data): Iterable<VectorCase> {
    const vector = data as AnswerVector;
    for (const mode of MODES) {
      const text = vector.expected?.[mode] ?? "";
      yield {
        name: `${mode}: ${text}`,
        check: () =>
          text === "frame dropped, request stays pending until its timeout"
            ? checkDropped(vector)
            : checkBad(vector, mode, outcomeOf(text)),
      };
    }
  },
};

export const ipcAnswerClaims: VectorClaim[] = [
  ...Object.entries(OK_ANSWERS).map(([method, names]) => okClaim(method, names)),
  errorClaim,
  badClaim,
];
