/** Generation from JetStream: one task and one backend connection per item (spec/generation.md 3 to 5, 8). */
import { getLogger } from "@logtape/logtape";
import type { Arrival } from "../dispatch/intake.ts";
import { PayloadTooLargeError } from "../dispatch/payload_error.ts";
import type { Refusal } from "../dispatch/refusals.ts";
import { PAYLOAD_OVER_LIMIT } from "../dispatch/refusals.ts";
import type { ResultSender } from "../dispatch/result_sender.ts";
import type { Settler } from "../dispatch/settle.ts";
import type { FinalSituation } from "../dispatch/settle_by.ts";
import type { ConfigView, ExecutionBarrier, GenerationLane, PayloadResolver } from "../dispatch/views.ts";
import { WorkUnit } from "../dispatch/work_unit.ts";
import type { Backend, GenerateEvent } from "../ipc/backend.ts";
import { IpcError } from "../ipc/errors.ts";
import { ABORTED, unlessAborted } from "../runtime/abort.ts";
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { stampExecutedHash, terminalErrorChunk } from "../wire/generate_chunk.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { type WorkItem, WorkItemField } from "../wire/work_item.ts";
import { encodeWorkItemForBackend } from "../wire/work_item_writer.ts";
import { afterTurn, generateInput } from "./generate_input.ts";
import { modelFailed, modelLoading, modelStillLoading, UNDECODABLE_PAYLOAD, UNENCODABLE } from "./generate_refusals.ts";

const logger = getLogger(["worker-sidecar", "generate"]);

/** What the lane needs. */
export interface NatsGenerationParts {
  readonly backend: Backend;
  readonly settler: Settler;
  readonly config: ConfigView;
  readonly barrier: ExecutionBarrier;
  readonly clock: Clock;
  readonly payloads: PayloadResolver | undefined;
  /** With `SIE_COMPAT=reference` two refusals are sent as WorkResults, which the gateway drops (spec/generation.md 8). */
  readonly sender: ResultSender;
  readonly referenceCompatible: boolean;
}

/** A refusal that ends an item before its stream. */
class RefusedError extends Error {
  readonly situation: FinalSituation;
  /** What the caller gets; undefined when the item is sent back without a word. */
  readonly refusal: Refusal | undefined;

  constructor(situation: FinalSituation, refusal?: Refusal) {
    super(refusal?.message ?? situation);
    this.situation = situation;
    this.refusal = refusal;
  }
}

/** The item was abandoned before its stream began: another worker may have it at once. */
const ABANDONED = new RefusedError("shutdown_starting");

/** Runs generation items; each holds its pull permit until its stream has ended. */
export class NatsGeneration implements GenerationLane {
  readonly #parts: NatsGenerationParts;
  readonly #tasks = new Map<WorkUnit, { readonly done: Promise<void>; readonly abort: AbortController }>();

  constructor(parts: NatsGenerationParts) {
    this.#parts = parts;
  }

  /** Streams that are running. */
  get running(): number {
    return this.#tasks.size;
  }

  start(arrival: Arrival): void {
    const unit = new WorkUnit(arrival);
    const abort = new AbortController();
    const done = this.#run(unit, abort.signal).finally(() => this.#tasks.delete(unit));
    this.#tasks.set(unit, { done, abort });
  }

  /** Waits for the running streams; resolves when there are none. */
  async idle(): Promise<void> {
    while (this.#tasks.size > 0) await Promise.all([...this.#tasks.values()].map(({ done }) => done));
  }

  /**
   * Closes the streams that are still running and leaves their items to redelivery (spec/generation.md 12). What has not begun is
   * handed over.
   */
  async abandon(): Promise<void> {
    const running = [...this.#tasks.values()];
    for (const { abort } of running) abort.abort();
    await Promise.all(running.map(({ done }) => done));
  }

  async #run(unit: WorkUnit, signal: AbortSignal): Promise<void> {
    const { settler } = this.#parts;
    try {
      const generate = await this.#prepare(unit.work, signal);
      await this.#execute(unit, generate, signal);
    } catch (thrown) {
      if (thrown instanceof RefusedError) return await this.#refuse(unit, thrown);
      if (unit.settled !== undefined) return this.#log(unit, "ended badly after its settlement", thrown);
      if (signal.aborted) return settler.settle(unit, "shutdown_running");
      this.#log(unit, "failed and is sent back", thrown);
      settler.settle(unit, "generate_failed");
    }
  }

  /** Readiness, payload and media. Returns the parameters for the backend, undefined when they stay as they came. */
  async #prepare(work: WorkItem, signal: AbortSignal): Promise<Uint8Array | undefined> {
    await this.#requireModel(work.modelId, signal);
    const input = generateInput(work, await this.#fetch(work, signal));
    if ("refusal" in input) throw new RefusedError("generate_invalid_media", input.refusal);
    await afterTurn(input.bytes, this.#parts.clock);
    return input.bytes;
  }

  /** A model that is not ready is refused at once: the gateway wants a quick answer, not a held stream (9). */
  async #requireModel(modelId: string, signal: AbortSignal): Promise<void> {
    let answer;
    try {
      answer = await unlessAborted(this.#parts.backend.ensureModelReady(modelId), signal);
    } catch (thrown) {
      logger.warn("asking for {model} failed: {error}", { model: modelId, error: errorText(thrown) });
      const draining = thrown instanceof IpcError && thrown.draining;
      throw new RefusedError(draining ? "generate_ready_draining" : "generate_ready_failed");
    }
    if (answer === ABORTED) throw ABANDONED;
    switch (answer.state) {
      case "ready":
        return;
      case "loading_started":
        throw new RefusedError("generate_loading_started", modelLoading(modelId));
      case "loading_in_progress":
        throw new RefusedError("generate_loading", modelStillLoading(modelId));
      case "retry_later":
        throw new RefusedError("generate_retry_later");
      case "failed":
        throw new RefusedError("generate_model_failed", modelFailed(modelId));
    }
  }

  async #fetch(work: WorkItem, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const reference = work.text(WorkItemField.payloadRef);
    if (reference === undefined) return undefined;
    let payload: Uint8Array | typeof ABORTED;
    try {
      if (this.#parts.payloads === undefined) throw new Error("no payload store is configured");
      payload = await unlessAborted(this.#parts.payloads.fetch(reference), signal);
    } catch (thrown) {
      if (thrown instanceof PayloadTooLargeError) {
        throw new RefusedError("generate_payload_too_large", PAYLOAD_OVER_LIMIT);
      }
      logger.warn("the parameters of {item} cannot be fetched: {error}", {
        item: work.workItemId,
        error: errorText(thrown),
      });
      throw new RefusedError("generate_payload_failed");
    }
    if (payload === ABORTED) throw ABANDONED;
    const reader = new MsgpackReader(payload);
    try {
      reader.skip();
    } catch (thrown) {
      logger.warn("the parameters of {item} are not MessagePack: {error}", {
        item: work.workItemId,
        error: errorText(thrown),
      });
      throw new RefusedError("generate_undecodable", UNDECODABLE_PAYLOAD);
    }
    return payload.subarray(0, reader.pos);
  }

  /** Runs the stream under the shared side of the execution barrier, held to its end (4, step 5). */
  async #execute(unit: WorkUnit, generate: Uint8Array | undefined, signal: AbortSignal): Promise<void> {
    const { barrier, config, backend } = this.#parts;
    if (!barrier.tryEnterShared()) {
      const entered = await unlessAborted(barrier.enterShared(), signal, { late: () => barrier.leaveShared() });
      if (entered === ABORTED) throw ABANDONED;
    }
    try {
      const { work } = unit;
      if (!config.accepts(work.bundleConfigHash) || config.isUnsupported(work.modelId)) {
        throw new RefusedError("generate_hash_refused");
      }
      let encoded: Uint8Array;
      try {
        encoded = encodeWorkItemForBackend(work, generate === undefined ? {} : { generate });
      } catch (thrown) {
        this.#log(unit, "cannot be encoded for the backend", thrown);
        throw new RefusedError("generate_undecodable", UNENCODABLE);
      }
      for await (const event of backend.generate(work.modelId, encoded, signal)) {
        await this.#handle(unit, event);
        if (event.kind === "done") break;
      }
      if (unit.settled === undefined) this.#parts.settler.settle(unit, "generate_unsettled");
    } finally {
      barrier.leaveShared();
    }
  }

  async #handle(unit: WorkUnit, event: GenerateEvent): Promise<void> {
    const { settler } = this.#parts;
    const { work, delivery } = unit;
    switch (event.kind) {
      case "publish": {
        if (event.replySubject !== work.replySubject) {
          throw new Error("the backend published to a reply subject that is not the item's");
        }
        const hash = work.bundleConfigHash;
        // The event's bytes are good only until the next one is read, and a transport may send later.
        const payload = hash === "" ? event.payload.slice() : stampExecutedHash(event.payload, hash);
        const published = delivery.publish(work.replySubject, payload);
        if (published !== undefined) await published;
        return;
      }
      case "ack":
        if (unit.settled === undefined) settler.settle(unit, "generate_ack");
        return;
      case "nak":
        if (unit.settled === undefined) settler.settle(unit, "generate_nak", true, event.delayMs);
        return;
      case "in_progress":
        if (unit.settled === undefined) delivery.progress();
        return;
      case "unknown":
        logger.warn("{item}: unknown generation event '{name}' is ignored", {
          item: work.workItemId,
          name: event.name,
        });
        return;
      case "done":
        return;
    }
  }

  /** Answers with a terminal chunk where there is something to say, then settles. */
  async #refuse(unit: WorkUnit, { situation, refusal }: RefusedError): Promise<void> {
    const { settler } = this.#parts;
    if (refusal === undefined) return settler.settle(unit, situation);
    let published = true;
    try {
      await this.#publishRefusal(unit, situation, refusal);
    } catch (thrown) {
      published = false;
      this.#log(unit, "its refusal could not be published", thrown);
    }
    settler.settle(unit, situation, published);
  }

  async #publishRefusal(unit: WorkUnit, situation: FinalSituation, refusal: Refusal): Promise<void> {
    const { work, delivery } = unit;
    if (situation === "generate_undecodable" && this.#parts.referenceCompatible) {
      if (!(await this.#parts.sender.refusal(delivery, work, refusal))) throw new Error("the result was not published");
      return;
    }
    if (work.replySubject.trim() === "") return;
    await delivery.publish(work.replySubject, terminalErrorChunk(work, refusal));
  }

  #log(unit: WorkUnit, what: string, thrown: unknown): void {
    logger.warn("generation {item} {what}: {error}", { item: unit.work.workItemId, what, error: errorText(thrown) });
  }
}
