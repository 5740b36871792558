/** Doubles for dispatch tests: a recording delivery that refuses a second settlement, and a backend that answers from a script. */
import {
  type Delivery,
  type DeliverySource,
  type LeaveReason,
  type Settled,
  settledBy,
  SettlementLedger,
  type SettleReason,
} from "../../src/dispatch/delivery.ts";
import type { Backend, BatchCallOptions, GenerateEvent, ModelReadiness } from "../../src/ipc/backend.ts";
import { type BatchOutcome, readBatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import type { RunBatchBody } from "../../src/wire/ipc/batch_requests.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { msgpack, type Value } from "../harness/work_items.ts";

/** What happened to a delivery, in order. */
export type DeliveryEvent =
  | { readonly did: "publish"; readonly to: string; readonly payload: Uint8Array }
  | { readonly did: "flush" | "progress" | "release" }
  | { readonly did: "ack"; readonly reason: SettleReason }
  | { readonly did: "nak"; readonly delayMs: number; readonly reason: SettleReason }
  | { readonly did: "leave"; readonly reason: LeaveReason };

/** A delivery that records, fails a test on a second settlement, and can be told to fail. */
export class RecordingDelivery implements Delivery {
  readonly events: DeliveryEvent[] = [];
  readonly number: number;
  readonly workerDirect: boolean;
  readonly attempt = 1;
  maxPayload = 1_048_576;
  /** Set to make publications fail. */
  publishFailure: Error | undefined;
  progressWorks = true;
  readonly source: DeliverySource;
  readonly #ledger: SettlementLedger;
  #settled = false;

  constructor(ledger: SettlementLedger, source: DeliverySource = "pool") {
    this.#ledger = ledger;
    this.source = source;
    this.workerDirect = source !== "pool";
    this.number = ledger.opened();
  }

  publish(replySubject: string, payload: Uint8Array): void {
    if (this.publishFailure !== undefined) throw this.publishFailure;
    this.events.push({ did: "publish", to: replySubject, payload: payload.slice() });
  }

  flush(): Promise<void> {
    this.events.push({ did: "flush" });
    return Promise.resolve();
  }

  releasePermit(): void {
    this.events.push({ did: "release" });
  }

  progress(): boolean {
    if (this.#settled) throw new Error("progress after the settlement");
    this.events.push({ did: "progress" });
    return this.progressWorks;
  }

  ack(reason: SettleReason): Settled {
    return this.#settle("ack", { did: "ack", reason });
  }

  nak(delayMs: number, reason: SettleReason): Settled {
    return this.#settle("nak", { did: "nak", delayMs, reason });
  }

  leave(reason: LeaveReason): Settled {
    return this.#settle("left", { did: "leave", reason });
  }

  /** The settlement, or undefined while there is none. */
  get settlement(): DeliveryEvent | undefined {
    return this.events.find(({ did }) => did === "ack" || did === "nak" || did === "leave");
  }

  /** Payloads that were published. */
  get published(): Uint8Array[] {
    return this.events.flatMap((event) => event.did === "publish" ? [event.payload] : []);
  }

  #settle(action: Settled["action"], event: DeliveryEvent): Settled {
    this.#ledger.settle(action, !this.#settled);
    if (this.#settled) throw new Error(`second settlement: ${event.did}`);
    this.#settled = true;
    this.events.push(event);
    return settledBy(action);
  }
}

/** One outcome as a plain value. */
export interface OutcomeFields {
  readonly [key: string]: Value;
}

/** A BatchOutcome made of plain values. */
export function batchAnswer(outcomes: readonly OutcomeFields[]): BatchOutcome {
  return readBatchOutcome(new MsgpackReader(msgpack({ outcomes, batched_f16_multivectors: [] })));
}

/** A success of one item. */
export function success(workItemId: string, fields: OutcomeFields = {}): OutcomeFields {
  const [requestId, index] = splitId(workItemId);
  return {
    work_item_id: workItemId,
    request_id: requestId,
    item_index: index,
    disposition: "publish_and_ack",
    result_msgpack: msgpack({ answer: workItemId }),
    inference_ms: 1.5,
    ...fields,
  };
}

function splitId(workItemId: string): [string, number] {
  const dot = workItemId.lastIndexOf(".");
  return [workItemId.slice(0, dot), Number(workItemId.slice(dot + 1))];
}

/** A backend whose answers a test sets. */
export class ScriptedBackend implements Backend {
  /** Models asked for, in order. */
  readonly asked: string[] = [];
  /** Batches run, in order. */
  readonly batches: RunBatchBody[] = [];
  readonly callOptions: (BatchCallOptions | undefined)[] = [];
  readonly cancelled: string[] = [];
  readiness: (modelId: string) => ModelReadiness | Promise<ModelReadiness> = () => ({
    state: "ready",
    batchBudget: undefined,
    descriptor: undefined,
  });
  answer: (body: RunBatchBody) => BatchOutcome | Promise<BatchOutcome> = (body) =>
    batchAnswer(body.entries.map(({ work }) => success(work.workItemId)));
  stream: (modelId: string, workItem: Uint8Array, signal?: AbortSignal) => AsyncIterable<GenerateEvent> = () => {
    throw new Error("no generation in this script");
  };

  async ensureModelReady(modelId: string): Promise<ModelReadiness> {
    this.asked.push(modelId);
    return await this.readiness(modelId);
  }

  async runBatch(body: RunBatchBody, options?: BatchCallOptions): Promise<BatchOutcome> {
    this.batches.push(body);
    this.callOptions.push(options);
    return await this.answer(body);
  }

  generate(modelId: string, workItem: Uint8Array, signal?: AbortSignal): AsyncIterable<GenerateEvent> {
    return this.stream(modelId, workItem, signal);
  }

  signalGenerateCancel(requestId: string): Promise<boolean> {
    this.cancelled.push(requestId);
    return Promise.resolve(true);
  }
}
