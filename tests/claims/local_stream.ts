/** Claims on the stream rules of the local lane: a backend that sends the events of a case, and what a client would see of it. */
import assert from "node:assert/strict";
import { LocalGeneration } from "../../src/generate/local_generation.ts";
import type { GenerateEvent } from "../../src/ipc/backend.ts";
import { AppliedConfig } from "../../src/live_config/applied_config.ts";
import { ExecutionLock } from "../../src/live_config/execution_lock.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { ScriptedBackend } from "../dispatch/doubles.ts";
import { events } from "../generate/rig.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorClaim } from "../harness/vectors.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

interface StreamCase {
  readonly name: string;
  readonly input: {
    readonly request_id: string;
    readonly executed_hash: string;
    readonly events_then_done: readonly { kind: string; reply_subject?: string; payload_hex?: string }[];
  };
  readonly expected: {
    readonly final?: boolean;
    readonly chunks?: number;
    readonly error?: string;
    readonly chunks_sent: readonly number[];
    readonly cancel_signalled?: boolean;
  };
}

function eventOf(event: StreamCase["input"]["events_then_done"][number]): GenerateEvent {
  switch (event.kind) {
    case "publish":
      return {
        kind: "publish",
        replySubject: event.reply_subject ?? "",
        payload: fromHex(event.payload_hex ?? ""),
      };
    case "nak":
      return { kind: "nak", delayMs: undefined };
    case "in_progress":
    case "ack":
      return { kind: event.kind };
    default:
      return { kind: "unknown", name: event.kind };
  }
}

async function check({ input, expected }: StreamCase): Promise<void> {
  const backend = new ScriptedBackend();
  backend.stream = events([...input.events_then_done.map(eventOf), { kind: "done" }]);
  const config = new AppliedConfig(input.executed_hash);
  const runner = new LocalGeneration({ backend, config, barrier: new ExecutionLock(), clock: new VirtualClock() });
  const work = decodeWorkItem(workItemBytes({
    request_id: input.request_id,
    operation: "generate",
    item: null,
    generate: { prompt: "Once", max_new_tokens: 1 },
    bundle_config_hash: input.executed_hash,
    reply_subject: `_LOCAL.${input.request_id}`,
  }));
  const sent: { seq: number; hex: string }[] = [];
  const chunk = (payload: Uint8Array, seq: number) => Promise.resolve(void sent.push({ seq, hex: toHex(payload) }));
  const outcome = await runner.run(work, { chunk }, new AbortController().signal);
  assert.deepEqual(sent.map(({ seq }) => seq), expected.chunks_sent);
  // What came without a hash goes out as it came.
  const given = input.events_then_done.flatMap(({ payload_hex }) => payload_hex ?? []);
  if (input.executed_hash === "") assert.deepEqual(sent.map(({ hex }) => hex), given.slice(0, sent.length));
  if (expected.final === true) assert.deepEqual(outcome, { kind: "complete", chunks: expected.chunks });
  else assert.equal(outcome.kind === "failed" ? `${outcome.code}: ${outcome.message}` : outcome.kind, expected.error);
  assert.deepEqual(backend.cancelled, expected.cancel_signalled === true ? [input.request_id] : []);
}

/** The claim on `generation/local-stream.json`. */
export const localStreamClaims: VectorClaim[] = [{
  files: ["generation/local-stream.json"],
  *cases(data) {
    for (const one of data as StreamCase[]) yield { name: one.name, check: () => check(one) };
  },
}];
