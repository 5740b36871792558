/**
 * A strict backend for generations: it streams what the parameters ask for, notices cancels, and fails a test where the sidecar uses
 * it in a way that the real one would not bear.
 *
 * Parameters: `chunks` (number of chunks before the last one), `text` (of each), `hold` (wait for a cancel before the last chunk),
 * `endless` (chunks until a cancel comes).
 */
import assert from "node:assert/strict";
import { decodeValue } from "../../src/client/values.ts";
import type { GenerateEvent } from "../../src/ipc/backend.ts";
import { IpcError } from "../../src/ipc/errors.ts";
import { decodeWorkItem, WorkItemField } from "../../src/wire/work_item.ts";
import { ScriptedBackend } from "../dispatch/doubles.ts";
import { chunk } from "./rig.ts";

/** One generation that the backend runs or ran. */
export interface Talk {
  readonly requestId: string;
  /** Chunks that were taken by the sidecar. */
  taken: number;
  readonly cancelled: PromiseWithResolvers<void>;
  isCancelled: boolean;
  ended: "running" | "whole" | "dropped";
}

/** See above. */
export class TalkingBackend extends ScriptedBackend {
  readonly talks = new Map<string, Talk>();
  /** Called whenever a chunk is taken. */
  onTaken: (talk: Talk) => void = () => {};
  /** Called with each cancel that arrives. */
  onCancel: (requestId: string) => void = () => {};
  /** Cancels wait for this. */
  cancelGate: Promise<void> = Promise.resolve();
  /** Cancels are noted but nothing ends because of them. */
  ignoresCancel = false;

  override stream = (modelId: string, workItem: Uint8Array, signal?: AbortSignal): AsyncIterable<GenerateEvent> =>
    this.#talk(modelId, workItem, signal);

  /** Generations that have not ended. */
  get running(): number {
    return [...this.talks.values()].filter(({ ended }) => ended === "running").length;
  }

  override async signalGenerateCancel(requestId: string): Promise<boolean> {
    await this.cancelGate;
    this.cancelled.push(requestId);
    this.onCancel(requestId);
    const talk = this.talks.get(requestId);
    if (talk === undefined) return false;
    if (this.ignoresCancel) return true;
    talk.isCancelled = true;
    talk.cancelled.resolve();
    return true;
  }

  async *#talk(modelId: string, bytes: Uint8Array, signal?: AbortSignal): AsyncGenerator<GenerateEvent, void> {
    const work = decodeWorkItem(bytes);
    const { requestId, replySubject } = work;
    assert.equal(modelId, work.modelId);
    assert.equal(replySubject, `_LOCAL.${requestId}`);
    assert.notEqual(this.talks.get(requestId)?.ended, "running", `${requestId} runs twice`);
    const talk: Talk = {
      requestId,
      taken: 0,
      cancelled: Promise.withResolvers<void>(),
      isCancelled: false,
      ended: "running",
    };
    this.talks.set(requestId, talk);
    const aborted = Promise.withResolvers<void>();
    signal?.addEventListener("abort", () => aborted.resolve(), { once: true });
    const publish = (fields: Parameters<typeof chunk>[2]): GenerateEvent => ({
      kind: "publish",
      replySubject,
      payload: chunk(requestId, talk.taken, fields),
    });
    try {
      const plan = parametersOf(bytes);
      yield { kind: "in_progress" };
      while ((plan.endless || talk.taken < plan.chunks) && !talk.isCancelled) {
        if (signal?.aborted) throw new IpcError("io", "aborted by the caller");
        yield publish({ text_delta: plan.text });
        talk.taken++;
        this.onTaken(talk);
      }
      if (plan.hold || plan.endless) await Promise.race([talk.cancelled.promise, aborted.promise]);
      if (signal?.aborted) throw new IpcError("io", "aborted by the caller");
      yield publish({ text_delta: "", done: true, finish_reason: talk.isCancelled ? "cancelled" : "stop" });
      talk.taken++;
      yield { kind: "ack" };
      // Whoever reads to the end may leave at once.
      talk.ended = "whole";
      yield { kind: "done" };
    } finally {
      if (talk.ended === "running") talk.ended = "dropped";
    }
  }
}

function parametersOf(bytes: Uint8Array): { chunks: number; text: string; hold: boolean; endless: boolean } {
  const work = decodeWorkItem(bytes);
  const at = work.at(WorkItemField.generate);
  const value = decodeValue(bytes.subarray(at, at + work.size(WorkItemField.generate))) as Record<string, unknown>;
  return {
    chunks: Number(value["chunks"] ?? 3),
    text: String(value["text"] ?? "word "),
    hold: value["hold"] === true,
    endless: value["endless"] === true,
  };
}
