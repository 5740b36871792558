/** Makes WorkResults and publishes them. */
import { getLogger } from "@logtape/logtape";
import { callerItemId } from "../prepare/caller_item_id.ts";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { PreparedInput } from "../wire/ipc/batch_items.ts";
import type { BatchOutcome, ItemOutcome } from "../wire/ipc/batch_outcome.ts";
import { GatheringWriter } from "../wire/msgpack/gathering_writer.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { encodedText, MsgpackWriter } from "../wire/msgpack/writer.ts";
import { type WorkItem, WorkItemField } from "../wire/work_item.ts";
import {
  beginOutcomeResult,
  endOutcomeResult,
  errorResultBound,
  outcomeResultBound,
  queueMilliseconds,
  type ResultError,
  type ResultStamp,
  writeErrorResult,
} from "../wire/work_result.ts";
import { type FramableOutput, framedLength, writeFramed } from "./framing.ts";
import { type LargeResult, publishLarge, type PublishOutcome, publishSingle, type ResultChannel } from "./publisher.ts";
import { HalfSlices, resultSource } from "./selection.ts";
import { MessageSlab } from "./slab.ts";

const logger = getLogger(["worker-sidecar", "publish"]);

/** What making and sending results needs. */
export interface ResultPublisherParts {
  readonly workerId: string;
  readonly clock: Clock;
  /** Told about each publication, for counters. */
  readonly onPublished?: (outcome: PublishOutcome) => void;
}

/** An item whose result is sent: what dispatch knows about it. */
export interface FinishedItem {
  readonly delivery: ResultChannel;
  readonly work: WorkItem;
  readonly input: PreparedInput;
}

/** An error that takes the place of a result. */
export interface RefusedWith extends ResultError {
  readonly code: string;
  readonly message: string;
  readonly retryAfterS?: number;
}

/** A stamp that is filled anew for each result. */
class Stamp implements ResultStamp {
  readonly workerId: Uint8Array;
  queueMs: number | undefined = undefined;
  payloadFetchMs = 0;
  workerDirect = false;
  executedHash = "";

  constructor(workerId: string) {
    this.workerId = encodedText(workerId);
  }
}

/** One outcome with everything that decides how its result is written. */
interface Composition {
  readonly answer: BatchOutcome;
  readonly outcome: ItemOutcome;
  /** Undefined in a success. */
  readonly error: ResultError | undefined;
  /** A typed output to frame; otherwise the outcome's own bytes. */
  readonly raw: FramableOutput | undefined;
  readonly callerId: Uint8Array | undefined;
  readonly payloadLength: number;
}

/**
 * Makes WorkResults and publishes them (spec/queue.md 3 and 4). Answers at once on the ordinary path, and with a promise where the
 * transfer takes several messages, or the transport makes the caller wait. An empty reply subject needs no result.
 */
export class ResultPublisher {
  readonly #clock: Clock;
  readonly #onPublished: ((outcome: PublishOutcome) => void) | undefined;
  readonly #slab = new MessageSlab();
  readonly #stamp: Stamp;
  readonly #slices = new WeakMap<BatchOutcome, HalfSlices>();
  /** Ends when the last large result has been sent: they go one after the other, so that only one is in memory. */
  #large: Promise<unknown> = Promise.resolve();

  constructor(parts: ResultPublisherParts) {
    this.#clock = parts.clock;
    this.#onPublished = parts.onPublished;
    this.#stamp = new Stamp(parts.workerId);
  }

  /**
   * Sends what the backend made of an item.
   *
   * @param executedHash the item's bundle hash if it was the one held while the batch ran, else ""
   * @returns whether a result was handed over
   */
  outcome(
    unit: FinishedItem,
    answer: BatchOutcome,
    outcome: ItemOutcome,
    executedHash: string,
  ): boolean | Promise<boolean> {
    const { delivery, work, input } = unit;
    if (wantsNoReply(delivery, work)) return true;
    const composition = this.#compose(unit, answer, outcome);
    const stamp = this.#stamp;
    stamp.queueMs = queueMilliseconds(this.#clock.unixMs(), work.timestamp);
    stamp.payloadFetchMs = input.payloadFetchMs;
    stamp.workerDirect = delivery.workerDirect;
    stamp.executedHash = executedHash;
    const bound = outcomeResultBound(outcome, composition.payloadLength, composition.error, stamp);
    if (bound > delivery.maxPayload) {
      return this.#sendLarge(delivery, work, this.#largeOutcome(composition, { ...stamp }));
    }
    writeOutcome(this.#slab.begin(bound), composition, stamp);
    return this.#sendSingle(delivery, work);
  }

  /** Sends an error of our own making. All timings are nil. */
  refusal(delivery: ResultChannel, work: WorkItem, refusal: RefusedWith): boolean | Promise<boolean> {
    if (wantsNoReply(delivery, work)) return true;
    const stamp = this.#stamp;
    stamp.queueMs = undefined;
    stamp.payloadFetchMs = 0;
    stamp.workerDirect = delivery.workerDirect;
    stamp.executedHash = "";
    const bound = errorResultBound(work, refusal, stamp);
    if (bound > delivery.maxPayload) return this.#sendLarge(delivery, work, largeRefusal(work, refusal, { ...stamp }));
    writeErrorResult(this.#slab.begin(bound), work, refusal, refusal.retryAfterS, stamp);
    return this.#sendSingle(delivery, work);
  }

  #compose(unit: FinishedItem, answer: BatchOutcome, outcome: ItemOutcome): Composition {
    if (outcome.disposition !== "publish_and_ack") {
      const error = { code: outcome.errorCode, message: outcome.error };
      return { answer, outcome, error, raw: undefined, callerId: undefined, payloadLength: 0 };
    }
    const source = resultSource(answer, outcome, this.#slicesOf(answer));
    switch (source.kind) {
      case "as_is":
        return {
          answer,
          outcome,
          error: undefined,
          raw: undefined,
          callerId: undefined,
          payloadLength: outcome.resultLength,
        };
      case "framed": {
        const callerId = callerIdOf(unit);
        const payloadLength = framedLength(source.raw, callerId);
        return { answer, outcome, error: undefined, raw: source.raw, callerId, payloadLength };
      }
      case "fault":
        return {
          answer,
          outcome,
          error: { code: "raw_output_shape_error", message: source.message },
          raw: undefined,
          callerId: undefined,
          payloadLength: 0,
        };
    }
  }

  #slicesOf(answer: BatchOutcome): HalfSlices | undefined {
    if (answer.batchedF16.length === 0) return undefined;
    let slices = this.#slices.get(answer);
    if (slices === undefined) {
      slices = new HalfSlices(answer.batchedF16);
      this.#slices.set(answer, slices);
    }
    return slices;
  }

  #sendSingle(delivery: ResultChannel, work: WorkItem): boolean | Promise<boolean> {
    const outcome = publishSingle(delivery, work.replySubject, this.#slab.finish());
    return outcome instanceof Promise ? outcome.then((late) => this.#report(work, late)) : this.#report(work, outcome);
  }

  /** Waits until no other large result is being sent, then makes this one and sends it. */
  #sendLarge(delivery: ResultChannel, work: WorkItem, make: () => LargeResult): Promise<boolean> {
    const sent = this.#large.then(async () => {
      const outcome = await publishLarge(delivery, work.replySubject, work.acceptsResultChunks, make());
      return this.#report(work, outcome);
    });
    // A failure is the caller's to see; the next one in the queue goes on.
    this.#large = sent.catch(() => undefined);
    return sent;
  }

  #largeOutcome(composition: Composition, stamp: ResultStamp): () => LargeResult {
    return () => {
      const { answer, outcome } = composition;
      const writer = new GatheringWriter();
      writeOutcome(writer, composition, stamp);
      return {
        pieces: writer.pieces(),
        identity: {
          workItemId: answer.bytes.subarray(outcome.workItemIdAt, outcome.workItemIdAt + outcome.workItemIdLength),
          requestId: answer.bytes.subarray(outcome.requestIdAt, outcome.requestIdAt + outcome.requestIdLength),
          itemIndex: outcome.itemIndex,
        },
        compact(error) {
          const compact = new MsgpackWriter();
          writeOutcome(compact, { ...composition, error, raw: undefined, payloadLength: 0 }, stamp);
          return compact.take();
        },
      };
    };
  }

  #report(work: WorkItem, outcome: PublishOutcome): boolean {
    this.#onPublished?.(outcome);
    if ("published" in outcome) return true;
    logger.warn("the result of {workItemId} could not be published ({stage}): {error}", {
      workItemId: work.workItemId,
      stage: outcome.failed,
      error: errorText(outcome.error),
    });
    return false;
  }
}

/** Fire and forget (spec/queue.md 5.1). Local ingest answers its caller whatever the subject says (spec/local-ingest.md 6). */
function wantsNoReply(delivery: ResultChannel, work: WorkItem): boolean {
  return delivery.source !== "local" && work.replySubject.trim() === "";
}

function writeOutcome(writer: MsgpackWriter, composition: Composition, stamp: ResultStamp): void {
  const { answer, outcome, error, raw, payloadLength } = composition;
  beginOutcomeResult(writer, answer.bytes, outcome, error === undefined, stamp);
  if (error !== undefined) writer.binHeader(0);
  else if (raw === undefined) writer.bin(answer.bytes, outcome.resultAt, outcome.resultLength);
  else {
    writer.binHeader(payloadLength);
    writeFramed(writer, raw, composition.callerId);
  }
  endOutcomeResult(writer, answer.bytes, outcome, error, stamp);
}

function largeRefusal(work: WorkItem, refusal: RefusedWith, stamp: ResultStamp): () => LargeResult {
  const F = WorkItemField;
  const written = (error: ResultError) => {
    const writer = new MsgpackWriter();
    writeErrorResult(writer, work, error, refusal.retryAfterS, stamp);
    return writer.take();
  };
  return () => ({
    pieces: [written(refusal)],
    identity: {
      workItemId: work.bytes.subarray(work.at(F.workItemId), work.at(F.workItemId) + work.size(F.workItemId)),
      requestId: work.bytes.subarray(work.at(F.requestId), work.at(F.requestId) + work.size(F.requestId)),
      itemIndex: work.itemIndex,
    },
    compact: written,
  });
}

/** The id to echo in a framed result: only encode items have one. */
function callerIdOf(unit: FinishedItem): Uint8Array | undefined {
  const { work, input } = unit;
  if (work.operation !== "encode") return undefined;
  if (input.item !== undefined) return callerItemId(new MsgpackReader(input.item));
  return work.has(WorkItemField.item) ? callerItemId(work.reader(WorkItemField.item)) : undefined;
}
