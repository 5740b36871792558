/** A backend that does one thing after the other, so many items a second, and counts how often it has run each. */
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import { msgpack } from "../harness/work_items.ts";
import { okAnswer, pingAnswer } from "../ipc/frames.ts";
import { type ReceivedRequest, ScriptedBackend, type ServerConnection } from "../ipc/scripted_backend.ts";
import { stubResult } from "./rig.ts";

interface BatchItem {
  readonly op: string;
  readonly work_item_id: string;
  readonly request_id: string;
  readonly item_index: number;
}

/** See the file's comment. Use it with `await using`. */
export class PacedBackend implements AsyncDisposable {
  /** Runs per work item id. */
  readonly runs = new Map<string, number>();
  readonly #backend: ScriptedBackend;
  readonly #itemMs: number;
  /** Ends when the work taken so far is done. */
  #busy: Promise<void> = Promise.resolve();
  #attempts = 0;

  constructor(itemsPerSecond: number) {
    this.#itemMs = 1000 / itemsPerSecond;
    this.#backend = new ScriptedBackend((connection) => this.#serve(connection));
  }

  get path(): string {
    return this.#backend.path;
  }

  /** Runs beyond the first of each item. */
  get repeats(): number {
    return [...this.runs.values()].reduce((sum, count) => sum + count - 1, 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#backend[Symbol.asyncDispose]();
  }

  async #serve(connection: ServerConnection): Promise<void> {
    for (;;) {
      const request = await connection.request();
      if (request === undefined) return;
      if (request.method === "ProcessGenerate") return await this.#generate(connection, request);
      await connection.send(await this.#answer(request));
    }
  }

  async #answer({ method, requestId, body }: ReceivedRequest): Promise<Uint8Array> {
    switch (method) {
      case "Ping":
        return pingAnswer(requestId);
      case "EnsureModelReady":
        return okAnswer(requestId, { state: "ready", batch_budget: null, descriptor: { supports_run_batch: true } });
      case "WorkerCapabilities":
        return okAnswer(requestId, { has_generation_models: true });
      case "Drain":
        return okAnswer(requestId, { acknowledged: true });
      case "RunBatch": {
        const { items } = body as { items: BatchItem[] };
        await this.#run(items.map(({ work_item_id }) => work_item_id));
        return okAnswer(requestId, {
          outcomes: items.map(({ op, work_item_id, request_id, item_index }) => ({
            work_item_id,
            request_id,
            item_index,
            disposition: "publish_and_ack",
            result_msgpack: { $bin: toHex(stubResult(work_item_id, op)) },
          })),
        });
      }
      default:
        throw new Error(`the paced backend does not know ${method}`);
    }
  }

  /** One chunk, which is also the last. */
  async #generate(connection: ServerConnection, { requestId, body }: ReceivedRequest): Promise<void> {
    const { work_item_msgpack } = body as { work_item_msgpack: { $bin: string } };
    const work = decodeWorkItem(fromHex(work_item_msgpack.$bin));
    await this.#run([work.workItemId]);
    const payload = msgpack({
      kind: "chunk",
      request_id: work.requestId,
      attempt_id: `attempt-${++this.#attempts}`,
      seq: 0,
      text_delta: "x",
      done: true,
      finish_reason: "stop",
    });
    const nothing = { reply_subject: "", payload: { $bin: "" }, delay_ms: null, error: null };
    for (
      const event of [
        { ...nothing, kind: "publish", reply_subject: work.replySubject, payload: { $bin: toHex(payload) } },
        { ...nothing, kind: "ack" },
        { ...nothing, kind: "done" },
      ]
    ) await connection.send(okAnswer(requestId, event));
    await connection.request();
  }

  async #run(workItemIds: readonly string[]): Promise<void> {
    const before = this.#busy;
    const own = Promise.withResolvers<void>();
    this.#busy = own.promise;
    await before;
    await new Promise((resolve) => setTimeout(resolve, this.#itemMs * workItemIds.length));
    for (const id of workItemIds) this.runs.set(id, (this.runs.get(id) ?? 0) + 1);
    own.resolve();
  }
}
