/** Claims on generation streams: the frames go through the real client, event by event. */
import assert from "node:assert/strict";
import { connectUnix } from "../../src/ipc/connection.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { generateEvents } from "../../src/ipc/generation.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { assertNotation } from "../harness/notation.ts";
import { fromHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { NO_LIMIT_MS } from "../ipc/clients.ts";
import { ScriptedBackend } from "../ipc/scripted_backend.ts";
import { eventForm, eventVector } from "../ipc/wire_forms.ts";

interface StreamVector {
  readonly hex: string;
  readonly decoded: Envelope | readonly Envelope[];
  readonly payloads?: readonly unknown[];
}

interface Envelope {
  readonly ok: boolean;
  readonly body: Record<string, unknown>;
  readonly error: string | null;
}

const STREAMS = [
  "event_publish",
  "stream_cancelled",
  "stream_capacity_error",
  "stream_config_mismatch",
  "stream_error_envelope",
  "stream_no_settlement",
  "stream_semantic_nak",
  "stream_success",
  "stream_tool_call",
  "stream_transport_nak",
  "stream_validation_error",
];

/** Reads a whole stream. @returns the events, the published bytes, and how it ended */
async function collect(bytes: Uint8Array) {
  await using backend = new ScriptedBackend(async (connection) => {
    const request = await connection.request();
    assert.equal(request?.method, "ProcessGenerate");
    await connection.send(bytes);
  });
  const events: unknown[] = [];
  const payloads: Uint8Array[] = [];
  const options = {
    path: backend.path,
    connect: connectUnix,
    clock: systemClock,
    frameTimeoutMs: NO_LIMIT_MS,
    requestId: "w-1",
    signal: undefined,
  };
  try {
    for await (const event of generateEvents(options, { modelId: "gen/m", workItemMsgpack: Uint8Array.of(0x80) })) {
      events.push(eventForm(event));
      if (event.kind === "publish") payloads.push(event.payload);
    }
    return { events, payloads, error: undefined };
  } catch (error) {
    assert.ok(error instanceof IpcError, String(error));
    return { events, payloads, error };
  }
}

export const ipcGenerationClaims: VectorClaim[] = [{
  files: STREAMS.map((name) => `ipc/gen_${name}.json`),
  *cases(data): Iterable<VectorCase> {
    const vector = data as StreamVector;
    yield {
      name: "events in order, then the end",
      async check() {
        const envelopes = [vector.decoded].flat() as Envelope[];
        const { events, payloads, error } = await collect(fromHex(vector.hex));
        assert.deepEqual(events, envelopes.filter((envelope) => envelope.ok).map(({ body }) => eventVector(body)));
        const last = envelopes.at(-1);
        if (last?.ok === false) assert.deepEqual([error?.kind, error?.message], ["server", last.error]);
        else if (last?.body.kind === "done") assert.equal(error, undefined);
        else assert.deepEqual([error?.kind, error?.io], ["io", "unexpected_eof"]);
        if (vector.payloads === undefined) return;
        assert.equal(payloads.length, vector.payloads.length);
        for (const [index, payload] of payloads.entries()) assertNotation(payload, vector.payloads[index]);
      },
    };
  },
}];
