/** Results as they are made in production, up to a transport that records: shared by the tests and the vector claims. */
import type { Clock } from "../../src/runtime/clock.ts";
import type { PublishOutcome, ResultChannel } from "../../src/publish/publisher.ts";
import { type FinishedItem, ResultPublisher } from "../../src/publish/result_sender.ts";
import { INLINE_INPUT, type PreparedInput } from "../../src/wire/ipc/batch_items.ts";
import { type BatchOutcome, readBatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { encodeNotation } from "../harness/notation.ts";
import { msgpack, type Value, workItemBytes } from "../harness/work_items.ts";

/** A clock that stands still. */
export function frozenClock(unixMs: number): Clock {
  return {
    now: () => 0,
    unixMs: () => unixMs,
    after: () => {
      throw new Error("publishing sets no timers");
    },
  };
}

/** A transport that records copies of what it is given, and fails where it is told to. */
export class RecordingChannel implements ResultChannel {
  readonly source: "pool" | "direct" | "local";
  readonly workerDirect: boolean;
  maxPayload: number;
  /** Published messages in order, with "flush" between them. */
  readonly log: (Uint8Array | "flush")[] = [];
  /** Called with the number of messages published so far, before one is taken; throw to refuse it. */
  beforePublish: (count: number) => void | Promise<void> = () => {};
  /** Called before a flush resolves; throw to make it fail. */
  beforeFlush: (count: number) => void | Promise<void> = () => {};

  constructor(maxPayload = 1_048_576, source: "pool" | "direct" | "local" = "pool") {
    this.maxPayload = maxPayload;
    this.source = source;
    this.workerDirect = source !== "pool";
  }

  publish(_replySubject: string, payload: Uint8Array): void | Promise<void> {
    const pending = this.beforePublish(this.messages.length);
    if (pending === undefined) this.log.push(payload.slice());
    else return pending.then(() => void this.log.push(payload.slice()));
  }

  async flush(): Promise<void> {
    await this.beforeFlush(this.log.filter((entry) => entry === "flush").length);
    this.log.push("flush");
  }

  /** Published messages in order. */
  get messages(): Uint8Array[] {
    return this.log.filter((entry) => entry !== "flush");
  }
}

/** One outcome in the vectors' notation; identity and disposition have defaults. */
export type OutcomeNotation = Record<string, unknown>;

/** A backend's answer, decoded as in production. */
export function answerOf(outcomes: readonly OutcomeNotation[], batchedF16?: unknown): BatchOutcome {
  const body: Record<string, unknown> = {
    outcomes: outcomes.map((outcome, index) => ({
      work_item_id: `req-1.${index}`,
      request_id: "req-1",
      item_index: index,
      disposition: "publish_and_ack",
      ...outcome,
    })),
  };
  if (batchedF16 !== undefined) body["batched_f16_multivectors"] = batchedF16;
  return readBatchOutcome(new MsgpackReader(encodeNotation(body)));
}

/** As {@link answerOf}, from plain values: for payloads that are too large for the notation. */
export function largeAnswerOf(outcomes: readonly { readonly [key: string]: Value }[]): BatchOutcome {
  const identified = outcomes.map((outcome, index) => ({
    work_item_id: `req-1.${index}`,
    request_id: "req-1",
    item_index: index,
    disposition: "publish_and_ack",
    ...outcome,
  }));
  return readBatchOutcome(new MsgpackReader(msgpack({ outcomes: identified })));
}

/** An item that an outcome belongs to. */
export function finishedItem(
  delivery: ResultChannel,
  fields: { readonly [key: string]: Value } = {},
  input: PreparedInput = INLINE_INPUT,
): FinishedItem {
  return { delivery, work: decodeWorkItem(workItemBytes(fields)), input };
}

/** A publisher whose outcomes are kept. */
export class RecordedPublisher {
  readonly outcomes: PublishOutcome[] = [];
  readonly publisher: ResultPublisher;

  constructor(unixMs = 1_700_000_000_500, workerId = "worker-1") {
    this.publisher = new ResultPublisher({
      workerId,
      clock: frozenClock(unixMs),
      onPublished: (outcome) => void this.outcomes.push(outcome),
    });
  }
}
