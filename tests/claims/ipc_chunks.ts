/** Claims on chunked answers: the frames go through the real client, in both transports where both can receive them. */
import assert from "node:assert/strict";
import { type ChunkFault, ResponseChunkError } from "../../src/ipc/chunk_transfer.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { Ping, SignalGenerateCancel } from "../../src/wire/ipc/methods.ts";
import { decodeNotation } from "../harness/notation.ts";
import { fromHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { client, failureOf, type Mode, MODES, NO_LIMIT_MS } from "../ipc/clients.ts";
import { pingAnswer } from "../ipc/frames.ts";
import { ScriptedBackend } from "../ipc/scripted_backend.ts";
import { ANSWER_FORMS } from "../ipc/wire_forms.ts";

interface ChunkVector {
  readonly name: string;
  readonly hex: string;
  readonly limits?: string;
  readonly expected: { readonly outcome: string; readonly error?: ChunkFault; readonly reserved_bytes?: number };
  readonly reassembled?: { readonly hex: string; readonly sha256: string };
  readonly decoded: unknown;
}

const FAULTS = [
  "count_65",
  "digest",
  "digest_length",
  "duplicate",
  "early_end",
  "empty_payload",
  "layout_count",
  "layout_digest",
  "layout_total",
  "legacy_mid_transfer",
  "missing_field",
  "missing_first",
  "production_minimum",
  "skipped",
  "too_few_bytes",
  "too_many_bytes",
  "total_over_max",
  "typed_envelope",
  "version",
  "zero_count",
];

function limitsOf(vector: ChunkVector) {
  return vector.limits === "relaxed (legacy_frame_bytes=0)" ? { frameBytes: 0 } : {};
}

/** Sends the vector's frames once `requests` requests have come; answers what follows as a Ping. */
function serving(bytes: Uint8Array, requests = 1): ScriptedBackend {
  let seen = 0;
  return new ScriptedBackend(async (connection) => {
    for (;;) {
      const request = await connection.request();
      if (request === undefined) return;
      seen++;
      if (seen === requests) await connection.send(bytes);
      else if (seen > requests) await connection.send(pingAnswer(request.requestId));
    }
  });
}

async function checkFault(vector: ChunkVector, mode: Mode): Promise<void> {
  await using backend = serving(fromHex(vector.hex));
  const told: string[] = [];
  using to = client({
    path: backend.path,
    mode,
    limits: limitsOf(vector),
    chunks: { rejected: (outcome, fault) => told.push(`${outcome} ${fault}`), completed: () => told.push("completed") },
  });
  const error = await failureOf(to.transport.call(Ping, 0, NO_LIMIT_MS));
  assert.ok(error instanceof ResponseChunkError, String(error));
  assert.equal(error.fault, vector.expected.error);
  assert.equal(error.kind, "response_chunk");
  assert.deepEqual(told, [`${vector.expected.outcome} ${vector.expected.error}`]);
  assert.equal(to.budget.used, 0);
  // The pool drops its connection, the mux keeps it and drops what still comes for the id (6.5).
  await to.transport.call(Ping, 0, NO_LIMIT_MS);
  assert.equal(backend.connections, mode === "pool" ? 2 : 1);
}

const faultClaim: VectorClaim = {
  files: FAULTS.map((name) => `ipc/chunk_bad_${name}.json`),
  *cases(data): Iterable<VectorCase> {
    const vector = data as ChunkVector;
    for (const mode of MODES) {
      yield { name: `${vector.expected.error} over ${mode}`, check: () => checkFault(vector, mode) };
    }
  },
};

/** Without the right request id a mux has nobody to give the frame to. */
const idClaim: VectorClaim = {
  files: ["ipc/chunk_bad_request_id.json", "ipc/chunk_bad_empty_request_id.json"],
  *cases(data): Iterable<VectorCase> {
    const vector = data as ChunkVector;
    yield { name: `${vector.expected.error} over pool`, check: () => checkFault(vector, "pool") };
    yield {
      name: "mux: a foreign id is dropped, an empty one ends the connection",
      async check() {
        await using backend = serving(fromHex(vector.hex));
        const dropped: string[] = [];
        using to = client({
          path: backend.path,
          mode: "mux",
          limits: limitsOf(vector),
          calls: { dropped: (id) => dropped.push(id) },
        });
        const first = to.transport.call(Ping, 0, NO_LIMIT_MS);
        const id = (vector.decoded as { request_id: string }).request_id;
        if (id === "") {
          // The retry on the next connection is answered.
          assert.equal((await first).workerId, "scripted");
          assert.equal(backend.connections, 2);
        } else {
          await to.transport.call(Ping, 0, NO_LIMIT_MS);
          assert.deepEqual(dropped, [id]);
          assert.equal(backend.connections, 1);
          to.transport.close();
          assert.ok(await failureOf(first) instanceof IpcError);
        }
      },
    };
  },
};

const okClaim: VectorClaim = {
  files: ["ipc/chunk_transfer_ok.json", "ipc/chunk_transfer_single.json"],
  *cases(data): Iterable<VectorCase> {
    const vector = data as ChunkVector;
    for (const mode of MODES) {
      yield {
        name: `${vector.expected.outcome} over ${mode}`,
        async check() {
          await using backend = serving(fromHex(vector.hex));
          const told: unknown[] = [];
          const reserved: number[] = [];
          using to = client({
            path: backend.path,
            mode,
            limits: limitsOf(vector),
            chunks: {
              completed: (bytes, chunks) => told.push(["completed", bytes, chunks]),
              rejected: () => told.push("rejected"),
              reserved: (bytes) => reserved.push(bytes),
            },
          });
          const answer = await to.transport.call(Ping, 0, NO_LIMIT_MS);
          const chunks = [vector.decoded].flat() as { payload: { $bin: string }; total_bytes: number }[];
          const joined = fromHex(chunks.map((chunk) => chunk.payload.$bin).join(""));
          if (vector.reassembled !== undefined) assert.deepEqual(joined, fromHex(vector.reassembled.hex));
          const body = (decodeNotation(joined) as { body: Record<string, unknown> }).body;
          assert.deepEqual(ANSWER_FORMS.Ping?.ofAnswer(answer), ANSWER_FORMS.Ping?.ofVector(body));
          const total = chunks[0]?.total_bytes ?? 0;
          assert.deepEqual(told, [[vector.expected.outcome, total, chunks.length]]);
          assert.deepEqual(reserved, [2 * total + 4096, 0]);
          assert.equal(to.budget.used, 0);
        },
      };
    }
  },
};

const interleavedClaim: VectorClaim = {
  files: ["ipc/chunk_transfer_interleaved.json"],
  *cases(data): Iterable<VectorCase> {
    const vector = data as ChunkVector;
    yield {
      name: vector.expected.outcome,
      async check() {
        await using backend = serving(fromHex(vector.hex), 2);
        using to = client({ path: backend.path, mode: "mux", limits: limitsOf(vector) });
        const order: string[] = [];
        const calls = ["w-1", "w-2"].map(async (id) => {
          const answer = await to.transport.call(Ping, 0, NO_LIMIT_MS);
          order.push(id);
          return answer;
        });
        const answers = await Promise.all(calls);
        assert.deepEqual(order, vector.expected.outcome === "completed twice, w-1 first" ? ["w-1", "w-2"] : []);
        const chunks = vector.decoded as { request_id: string; payload: { $bin: string } }[];
        for (const [index, answer] of answers.entries()) {
          const own = chunks.filter((chunk) => chunk.request_id === `w-${index + 1}`);
          const joined = decodeNotation(fromHex(own.map((chunk) => chunk.payload.$bin).join("")));
          const { body } = joined as { body: Record<string, unknown> };
          assert.deepEqual(ANSWER_FORMS.Ping?.ofAnswer(answer), ANSWER_FORMS.Ping?.ofVector(body));
        }
      },
    };
  },
};

const pendingClaim: VectorClaim = {
  files: ["ipc/chunk_first_production.json"],
  *cases(data): Iterable<VectorCase> {
    const vector = data as ChunkVector;
    for (const mode of MODES) {
      yield {
        name: `${vector.expected.outcome} over ${mode}`,
        async check() {
          await using backend = serving(fromHex(vector.hex));
          const reserved = Promise.withResolvers<number>();
          const told: string[] = [];
          using to = client({
            path: backend.path,
            mode,
            limits: limitsOf(vector),
            chunks: {
              reserved: reserved.resolve,
              completed: () => told.push("completed"),
              rejected: () => told.push("rejected"),
            },
          });
          let outcome = "pending";
          const failure = failureOf(to.transport.call(Ping, 0, NO_LIMIT_MS)).finally(() => outcome = "ended");
          assert.equal(await reserved.promise, vector.expected.reserved_bytes);
          assert.equal(to.budget.used, vector.expected.reserved_bytes);
          assert.equal(outcome, vector.expected.outcome);
          to.transport.close();
          await failure;
          // An abandoned transfer gives its memory back and tells nobody (6.5).
          assert.equal(to.budget.used, 0);
          assert.deepEqual(told, []);
        },
      };
    }
  },
};

const unknownKindClaim: VectorClaim = {
  files: ["ipc/chunk_unknown_kind.json"],
  *cases(data): Iterable<VectorCase> {
    const vector = data as ChunkVector;
    for (const mode of MODES) {
      yield {
        name: `${vector.expected.outcome} over ${mode}`,
        async check() {
          await using backend = serving(fromHex(vector.hex));
          using to = client({ path: backend.path, mode });
          const matched = await to.transport.call(SignalGenerateCancel, "request", NO_LIMIT_MS);
          assert.equal(vector.expected.outcome, "ordinary response");
          assert.equal(matched, (vector.decoded as { body: { matched: boolean } }).body.matched);
        },
      };
    }
  },
};

export const ipcChunkClaims: VectorClaim[] = [
  faultClaim,
  idClaim,
  okClaim,
  interleavedClaim,
  pendingClaim,
  unknownKindClaim,
];
