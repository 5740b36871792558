/** What end-to-end tests stand on: a backend that answers at once, and callers of both kinds. */
import assert from "node:assert/strict";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { FrameReader, LOCAL_FRAMES, writeAll } from "../../src/wire/frames.ts";
import { payloadDigest } from "../../src/wire/ingest/digest.ts";
import { EMPTY_BODY, writeRequest } from "../../src/wire/ingest/request.ts";
import { decodeResponse, type IngestResponse } from "../../src/wire/ingest/response.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeNotation } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";
import { PATIENCE_MS } from "../harness/process.ts";
import { msgpack, type Value, workItemFields } from "../harness/work_items.ts";
import { okAnswer, pingAnswer } from "../ipc/frames.ts";
import { answering, type ReceivedRequest, ScriptedBackend } from "../ipc/scripted_backend.ts";

/** Lane and limits of every sidecar here. */
export const LANE = {
  SIE_POOL: "default",
  SIE_BUNDLE: "default",
  SIE_MACHINE_PROFILE: "l4",
  SIE_WORKER_ID: "worker-e2e",
};

/** A work item as it arrives in a batch. */
interface BatchItem {
  readonly op: string;
  readonly work_item_id: string;
  readonly request_id: string;
  readonly item_index: number;
}

/** The result that the stub backend gives an item: it names the item and how it came. */
export function stubResult(workItemId: string, operation: string): Uint8Array {
  return msgpack({ item: workItemId, operation });
}

/** A backend for which every model is ready. Use it with `await using`. */
export function stubBackend(path?: string): ScriptedBackend {
  return new ScriptedBackend(answering(answerOf), path);
}

function answerOf({ method, requestId, body }: ReceivedRequest): Uint8Array {
  switch (method) {
    case "Ping":
      return pingAnswer(requestId);
    case "EnsureModelReady":
      return okAnswer(requestId, { state: "ready", batch_budget: null, descriptor: { supports_run_batch: true } });
    case "WorkerCapabilities":
      return okAnswer(requestId, { has_generation_models: false });
    case "Drain":
      return okAnswer(requestId, { acknowledged: true });
    case "RunBatch":
      return okAnswer(requestId, { outcomes: (body as { items: BatchItem[] }).items.map(outcomeOf) });
    default:
      throw new Error(`the stub backend does not know ${method}`);
  }
}

function outcomeOf({ op, work_item_id, request_id, item_index }: BatchItem) {
  const result = { $bin: toHex(stubResult(work_item_id, op)) };
  return { work_item_id, request_id, item_index, disposition: "publish_and_ack", result_msgpack: result };
}

/** Fields of one item of each operation. */
export function itemFields(operation: "encode" | "score" | "extract", requestId: string, index = 0, total = 1) {
  const content: { [key: string]: Value } = operation === "score"
    ? { query_item: { text: "question" }, score_items: [{ id: "a", text: "one" }, { id: "b", text: "two" }] }
    : { item: { id: `doc-${index}`, text: "hello" } };
  if (operation !== "score") {
    return workItemFields({ operation, request_id: requestId, item_index: index, total_items: total, ...content });
  }
  const { item: _, ...fields } = workItemFields({
    operation,
    request_id: requestId,
    item_index: index,
    total_items: total,
    ...content,
  });
  return fields;
}

/** A WorkResult, in plain values. */
export interface PlainResult {
  readonly work_item_id: string;
  readonly success: boolean;
  readonly result_msgpack?: { readonly $bin: string };
  readonly error?: string;
  readonly error_code?: string;
  readonly worker_id?: string;
}

/** Requires a successful result with the stub backend's bytes. */
export function assertStubResult(result: PlainResult, workItemId: string, operation: string): void {
  assert.equal(result.work_item_id, workItemId);
  assert.equal(result.success, true, JSON.stringify(result));
  assert.equal(result.result_msgpack?.$bin, toHex(stubResult(workItemId, operation)));
  assert.equal(result.worker_id, LANE.SIE_WORKER_ID);
}

/** A caller on the local socket. Use it with `using`. */
export class LocalCaller implements Disposable {
  readonly #connection: Deno.UnixConn;
  readonly #reader: FrameReader;
  #nextId = 1n;

  private constructor(connection: Deno.UnixConn) {
    this.#connection = connection;
    this.#reader = new FrameReader(connection, LOCAL_FRAMES);
  }

  static async connect(path: string): Promise<LocalCaller> {
    return new LocalCaller(await Deno.connect({ transport: "unix", path }));
  }

  async ping(): Promise<IngestResponse> {
    return await this.#call((writer, id) => writeRequest(writer, id, "ping"));
  }

  /** Sends items of one request, given by their fields, and returns the results in order. */
  async publishWork(items: readonly { [key: string]: Value }[]): Promise<PlainResult[]> {
    const [first = {}] = items;
    const text = (name: string) => `${first[name]}`;
    const content = {
      ...EMPTY_BODY,
      lane: "default|l4|default",
      endpoint: text("operation"),
      model: text("model_id"),
      engine: text("engine"),
      admissionPool: text("pool_name"),
      bundleConfigHash: text("bundle_config_hash"),
      requestId: text("request_id"),
      params: msgpack({}),
      items: msgpack(items),
      dispatchContext: msgpack({ caller: "e2e" }),
    };
    const body = { ...content, payloadDigest: payloadDigest(content) };
    const response = await this.#call((writer, id) => writeRequest(writer, id, "publish_work", body));
    assert.ok(response.ok, JSON.stringify(response, (_, value) => typeof value === "bigint" ? `${value}` : value));
    assert.equal(response.body.kind, "results");
    return decodeNotation(response.body.results) as PlainResult[];
  }

  [Symbol.dispose](): void {
    this.#connection.close();
  }

  async #call(write: (writer: MsgpackWriter, id: bigint) => void): Promise<IngestResponse> {
    const writer = new MsgpackWriter();
    const id = this.#nextId++;
    write(writer, id);
    const body = writer.take();
    const frame = new Uint8Array(4 + body.length);
    new DataView(frame.buffer).setUint32(0, body.length, true);
    frame.set(body, 4);
    await writeAll(this.#connection, frame);
    const answer = await this.#reader.readFrame();
    assert.ok(answer !== undefined, "the sidecar closed the connection");
    const response = decodeResponse(answer);
    assert.equal(response.id, id);
    return response;
  }
}

/** A model's token in a subject. */
function modelToken(model: string): string {
  return model.replaceAll("/", "__").replaceAll(".", "_dot_");
}

/** A gateway's two ends on NATS. Use it with `await using`. */
export class NatsCaller implements AsyncDisposable {
  readonly connection: NatsConnection;

  private constructor(connection: NatsConnection) {
    this.connection = connection;
  }

  static async connect(url: string): Promise<NatsCaller> {
    return new NatsCaller(await connect({ servers: url }));
  }

  /** Publishes items, given by their fields, and waits for as many results; by work item id. */
  async publishWork(items: readonly { [key: string]: Value }[]): Promise<Map<string, PlainResult>> {
    const inbox = `_INBOX.e2e-${crypto.randomUUID()}`;
    const subscription = this.connection.subscribe(`${inbox}.>`, { max: items.length });
    await this.connection.flush();
    for (const [index, fields] of items.entries()) {
      const item = msgpack({ ...fields, reply_subject: `${inbox}.${index}` });
      this.connection.publish(`sie.work.default.l4.default.${modelToken(`${fields["model_id"]}`)}`, item);
    }
    const results = new Map<string, PlainResult>();
    const patience = setTimeout(() => subscription.unsubscribe(), PATIENCE_MS);
    for await (const message of subscription) {
      const result = decodeNotation(message.data) as PlainResult;
      assert.ok(!results.has(result.work_item_id), `two results for ${result.work_item_id}`);
      results.set(result.work_item_id, result);
    }
    clearTimeout(patience);
    assert.equal(results.size, items.length, `results came for ${[...results.keys()]} alone`);
    return results;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.connection.close();
  }
}
