/** Local ingest on virtual time: connections in memory, the whole dispatch behind them, a scripted backend at the end. */
import { SettlementLedger } from "../../src/dispatch/delivery.ts";
import { Dispatcher } from "../../src/dispatch/dispatcher.ts";
import type { WorkIntake } from "../../src/dispatch/intake.ts";
import { UnitPreparer } from "../../src/dispatch/prepare_unit.ts";
import { BatchRunner } from "../../src/dispatch/run_formed_batch.ts";
import { Settler } from "../../src/dispatch/settle.ts";
import type { DropView } from "../../src/dispatch/views.ts";
import type { WorkUnit } from "../../src/dispatch/work_unit.ts";
import { LocalGeneration } from "../../src/generate/local_generation.ts";
import { AppliedConfig } from "../../src/live_config/applied_config.ts";
import { ExecutionLock } from "../../src/live_config/execution_lock.ts";
import { type ConnectionEnd, type ConnectionParts, IngestConnection } from "../../src/local_ingest/connection.ts";
import { GenerationClaims } from "../../src/local_ingest/generation_claims.ts";
import { ResultPublisher } from "../../src/publish/result_sender.ts";
import type { ByteBudget } from "../../src/runtime/byte_budget.ts";
import type { Clock } from "../../src/runtime/clock.ts";
import { DEFAULT_BATCH_CONFIG } from "../../src/scheduler/batch_config.ts";
import { SchedulerRegistry } from "../../src/scheduler/registry.ts";
import { payloadDigest } from "../../src/wire/ingest/digest.ts";
import { EMPTY_BODY, type IngestBody, writeRequest } from "../../src/wire/ingest/request.ts";
import { decodeResponse, type IngestResponse } from "../../src/wire/ingest/response.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { ScriptedBackend } from "../dispatch/doubles.ts";
import { msgpack, type Value, workItemFields } from "../harness/work_items.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";
import { MemoryStream } from "./memory_stream.ts";

/** The pool of the rig's lane. */
export const POOL = "default";

/** Choices that differ from the defaults. */
export interface IngestRigOptions {
  readonly referenceCompatible?: boolean;
  readonly hash?: string;
  readonly fetchBudget?: number;
  readonly budget?: ByteBudget;
  /** In place of dispatch. */
  readonly intake?: WorkIntake;
  readonly clock?: Clock;
  readonly backend?: ScriptedBackend;
}

const KEEP_ALL: DropView = { dropReason: () => undefined, remainingMs: () => undefined };

/** Dispatch and generation behind local ingest, as `serve` wires them. */
export function ingestParts(
  options: IngestRigOptions & { readonly clock: Clock; readonly backend: ScriptedBackend },
): ConnectionParts & { readonly config: AppliedConfig; readonly barrier: ExecutionLock } {
  const { clock, backend } = options;
  const config = new AppliedConfig(options.hash ?? "");
  const barrier = new ExecutionLock();
  const settler = new Settler(clock, 5000, undefined);
  const sender = new ResultPublisher({ workerId: "worker-0", clock });
  const referenceCompatible = options.referenceCompatible ?? false;
  const shared = { backend, sender, settler, drops: KEEP_ALL, config, clock, trace: undefined, referenceCompatible };
  const runner = new BatchRunner({ ...shared, barrier, wantsFeedback: false, onSuccess: undefined });
  const schedulers = new SchedulerRegistry<WorkUnit>({
    clock,
    config: DEFAULT_BATCH_CONFIG,
    pipelineDepth: 2,
    idleBypass: true,
    waveCadence: true,
    run: (batch) => runner.run(batch),
    onFault: (_batch, thrown) => {
      throw thrown;
    },
  });
  const preparer = new UnitPreparer({
    drops: KEEP_ALL,
    settler,
    clock,
    payloads: undefined,
    tokens: undefined,
    audio: undefined,
  });
  const intake = options.intake ?? new Dispatcher({
    ...shared,
    schedulers,
    preparer,
    admission: { admits: () => true },
    generation: {
      start: () => {
        throw new Error("generation does not come this way");
      },
    },
    maxConcurrentGroups: 4,
    fetchBudget: options.fetchBudget ?? 64,
    longestHoldMs: 1_800_000,
    shutdown: new AbortController().signal,
  });
  return {
    pool: POOL,
    intake,
    sender,
    ledger: new SettlementLedger(),
    clock,
    generation: new LocalGeneration({ backend, config, barrier, clock }),
    claims: new GenerationClaims(),
    budget: options.budget,
    referenceCompatible,
    config,
    barrier,
  };
}

/** Everything a test looks at or moves. */
export class IngestRig {
  readonly clock = new VirtualClock();
  readonly backend: ScriptedBackend;
  readonly parts: ReturnType<typeof ingestParts>;

  constructor(options: IngestRigOptions = {}) {
    this.backend = options.backend ?? new ScriptedBackend();
    this.parts = ingestParts({ ...options, clock: this.clock, backend: this.backend });
  }

  /** A client that has connected. */
  connect(): RigClient {
    return new RigClient(this);
  }
}

/** One client of a rig. */
export class RigClient {
  readonly stream = new MemoryStream();
  readonly connection: IngestConnection;
  readonly ended: Promise<ConnectionEnd>;
  /** Set when the connection has ended. */
  end: ConnectionEnd | undefined;
  readonly #clock: VirtualClock;

  constructor(rig: IngestRig) {
    this.#clock = rig.clock;
    this.connection = new IngestConnection(this.stream, rig.parts);
    this.ended = this.connection.serve().then((end) => this.end = end);
  }

  /** Sends requests and lets everything happen that needs no time. */
  async send(...frames: readonly Uint8Array[]): Promise<void> {
    this.stream.feed(...frames);
    await this.#clock.advance(0);
  }

  /** The answers so far. */
  responses(): IngestResponse[] {
    return this.stream.frames().map(decodeResponse);
  }

  /** The answers with this id so far. */
  answersTo(id: number): IngestResponse[] {
    return this.responses().filter((response) => response.id === BigInt(id));
  }

  /** The error texts of the answers with this id so far. */
  errorsOf(id: number): string[] {
    return this.answersTo(id).flatMap((response) => response.ok ? [] : [response.error]);
  }
}

/** A frame: length in front. */
export function framed(body: Uint8Array): Uint8Array {
  const frame = new Uint8Array(4 + body.length);
  new DataView(frame.buffer).setUint32(0, body.length, true);
  frame.set(body, 4);
  return frame;
}

/** The frame of a request; the digest is made to fit unless one is given. */
export function requestFrame(id: number | bigint, op: string, fields: Partial<IngestBody> = {}): Uint8Array {
  const body: IngestBody = { ...EMPTY_BODY, ...fields };
  const writer = new MsgpackWriter();
  const payload = fields.payloadDigest ?? payloadDigest(body);
  writeRequest(writer, BigInt(id), op, { ...body, payloadDigest: payload });
  return framed(writer.take());
}

type Fields = { readonly [key: string]: Value };

/** The body of a call with these items, each with its own differing fields. */
export function callBody(requestId: string, endpoint: string, items: readonly Fields[]): Partial<IngestBody> {
  const maps = items.map((fields, index) =>
    workItemFields({
      request_id: requestId,
      item_index: index,
      total_items: items.length,
      operation: endpoint,
      engine: "",
      reply_subject: "",
      ...fields,
    })
  );
  return {
    lane: "default|cpu|test/model",
    endpoint,
    model: "test/model",
    requestId,
    params: Uint8Array.of(0x80),
    items: msgpack(maps),
    dispatchContext: Uint8Array.of(1),
    timeoutMs: 1000n,
  };
}

/** The frame of a `publish_work` call with `count` items. */
export function workFrame(id: number, requestId: string, count = 1, fields: Partial<IngestBody> = {}): Uint8Array {
  const items = Array.from({ length: count }, () => ({}));
  return requestFrame(id, "publish_work", { ...callBody(requestId, "encode", items), ...fields });
}

/** The frame of a `publish_generate_stream` call. */
export function generateFrame(
  id: number,
  requestId: string,
  fields: Partial<IngestBody> = {},
  item: Fields = {},
): Uint8Array {
  const generate = { prompt: "Once", max_new_tokens: 4 };
  const body = callBody(requestId, "generate", [{ item: null, generate, ...item }]);
  return requestFrame(id, "publish_generate_stream", { ...body, timeoutMs: 0n, ...fields });
}

/** The frame of a `cancel`. */
export function cancelFrame(id: number, requestId: string): Uint8Array {
  return framed(msgpack({ id, op: "cancel", body: { request_id: requestId } }));
}

/** The frame of a `ping`. */
export function pingFrame(id: number): Uint8Array {
  return framed(msgpack({ id, op: "ping", body: {} }));
}

/** A chunk map as a backend makes it. */
export function chunk(requestId: string, seq: number, fields: Fields = {}): Uint8Array {
  return msgpack({
    kind: "chunk",
    request_id: requestId,
    attempt_id: "attempt-1",
    seq,
    text_delta: `word ${seq} `,
    done: false,
    ...fields,
  });
}
