/**
 * A gateway as small as can be: it publishes WorkItems to the lane's subject, and collects WorkResults and generated chunks from its
 * inbox (spec/queue.md 1 to 3). A real one does more: retries, admission, results in pieces, cancelling.
 */
import { jetstream, type JetStreamClient } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/nats-core";
import { connect } from "@nats-io/transport-node";
import type { GenerateRequest, Route, WorkInput, WorkRequest } from "../src/client/requests.ts";
import { decodeValue, encodeValue, type PlainValue } from "../src/client/values.ts";
import { poolSubject } from "../src/consumer/names.ts";
import { StreamCollector } from "../src/gateway/stream_collector.ts";
import { readWorkerPublication } from "../src/gateway/worker_publication.ts";
import { systemClock } from "../src/runtime/clock.ts";
import { decodeWorkResult, inboxMessageKind, type WorkResult } from "../src/wire/work_result_reader.ts";
import type { Entrance, TextChunk } from "./entrance.ts";
import { DemoFailure } from "./failure.ts";

/** Longest wait for the answers to one request, and between two chunks, in milliseconds. */
const ANSWER_LIMIT_MS = 60_000;

type Fields = { readonly [key: string]: PlainValue | undefined };

/** Takes the messages of one request. */
type Receiver = (message: Uint8Array) => void;

/** A gateway on a connection of its own. */
export class Gateway implements Entrance {
  readonly #nats: NatsConnection;
  readonly #js: JetStreamClient;
  readonly #route: Route;
  readonly #routerId = `demo-${crypto.randomUUID()}`;
  readonly #receivers = new Map<string, Receiver>();

  private constructor(nats: NatsConnection, route: Route) {
    this.#nats = nats;
    this.#js = jetstream(nats);
    this.#route = route;
    nats.subscribe(`${this.#inbox("")}>`, {
      callback: (error, message) => {
        if (error !== null) return;
        this.#receivers.get(message.subject.slice(this.#inbox("").length))?.(message.data);
      },
    });
  }

  /** Connects and listens to its inbox. */
  static async connect(url: string, route: Route): Promise<Gateway> {
    const nats = await connect({ servers: url, name: "worker-sidecar demo" });
    const gateway = new Gateway(nats, route);
    await nats.flush();
    return gateway;
  }

  async publishWork(request: WorkRequest, signal?: AbortSignal): Promise<WorkResult[]> {
    const requestId = request.requestId ?? crypto.randomUUID();
    const results: WorkResult[] = [];
    let missing = request.inputs.length;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const forget = this.#expect(requestId, reject, signal, (message) => {
      const result = decodeWorkResult(message);
      if (results[result.itemIndex] !== undefined) return;
      results[result.itemIndex] = result;
      if (--missing === 0) resolve();
    });
    try {
      const items = request.inputs.map(inputFields);
      await Promise.all([promise, this.#publish(request.operation, request, requestId, items)]);
      return results;
    } finally {
      forget();
    }
  }

  async *generate(request: GenerateRequest, signal?: AbortSignal): AsyncGenerator<TextChunk, void, undefined> {
    const requestId = request.requestId ?? crypto.randomUUID();
    const collector = new StreamCollector();
    const arrived: TextChunk[] = [];
    let failure: { readonly reason: unknown } | undefined;
    let news = Promise.withResolvers<void>();
    const forget = this.#expect(
      requestId,
      (reason) => {
        failure ??= { reason };
        news.resolve();
      },
      signal,
      (message) => {
        const chunk = chunkOf(message, collector);
        if (chunk === undefined) return;
        arrived.push(chunk);
        news.resolve();
      },
    );
    try {
      await this.#publish("generate", request, requestId, [{ generate: request.parameters, options: request.options }]);
      for (;;) {
        await news.promise;
        news = Promise.withResolvers();
        for (const chunk of arrived.splice(0)) {
          yield chunk;
          if (chunk.done) return;
        }
        if (failure !== undefined) throw failure.reason;
      }
    } finally {
      forget();
    }
  }

  async close(): Promise<void> {
    await this.#nats.close();
  }

  #inbox(requestId: string): string {
    return `_INBOX.${this.#routerId}.${requestId}`;
  }

  /** Hands the messages for a request to `receive`; calls `fail` on silence, a message that cannot be read, and an abort. */
  #expect(
    requestId: string,
    fail: (failure: unknown) => void,
    signal: AbortSignal | undefined,
    receive: Receiver,
  ): () => void {
    const onAbort = () => fail(signal?.reason);
    const onSilence = () => fail(new DemoFailure(`no answer to ${requestId} within ${ANSWER_LIMIT_MS / 1000} s`));
    let cancel = systemClock.after(ANSWER_LIMIT_MS, onSilence);
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#receivers.set(requestId, (message) => {
      cancel();
      cancel = systemClock.after(ANSWER_LIMIT_MS, onSilence);
      try {
        receive(message);
      } catch (thrown) {
        fail(thrown);
      }
    });
    return () => {
      cancel();
      signal?.removeEventListener("abort", onAbort);
      this.#receivers.delete(requestId);
    };
  }

  async #publish(
    operation: string,
    request: { readonly model: string; readonly profile?: string },
    requestId: string,
    items: readonly Fields[],
  ): Promise<void> {
    const { pool, machineProfile, bundle, engine = "", bundleConfigHash = "" } = this.#route;
    const subject = poolSubject({ pool, machineProfile, bundle, workerId: "" }, request.model);
    // The broker recognises a generation that is published twice; a repeated batch item does no harm.
    const options = operation === "generate" ? { msgID: requestId } : {};
    await Promise.all(items.map((fields, index) =>
      this.#js.publish(
        subject,
        encodeValue({
          work_item_id: `${requestId}.${index}`,
          request_id: requestId,
          item_index: index,
          total_items: items.length,
          operation,
          model_id: request.model,
          profile_id: request.profile ?? "default",
          engine,
          pool_name: pool,
          machine_profile: machineProfile,
          bundle_config_hash: bundleConfigHash,
          router_id: this.#routerId,
          reply_subject: this.#inbox(requestId),
          timestamp: systemClock.unixMs() / 1000,
          ...fields,
        }),
        options,
      )
    ));
  }
}

function inputFields(input: WorkInput): Fields {
  return {
    item: input.item,
    query_item: input.queryItem,
    score_items: input.scoreItems,
    output_types: input.outputTypes,
    labels: input.labels,
  };
}

/** The chunk in a message; undefined when it is another attempt's, or has been here before. */
function chunkOf(message: Uint8Array, collector: StreamCollector): TextChunk | undefined {
  if (inboxMessageKind(message) === "result") {
    const { errorCode, error } = decodeWorkResult(message);
    throw new DemoFailure(`the generation was refused: ${errorCode}: ${error}`);
  }
  const publication = readWorkerPublication(message);
  if (publication.kind === "nak") {
    if (collector.takeNak(publication.attemptId) === "stale") return undefined;
    throw new DemoFailure(`the backend wants the generation again: ${publication.reason}`);
  }
  const verdict = collector.takeChunk(publication);
  if (verdict === "seq_gap") throw new DemoFailure(`a chunk is missing before chunk ${publication.seq}`);
  if (verdict !== "delta" && verdict !== "terminal") return undefined;
  const { textDelta, done, finishReason } = publication;
  return { textDelta, done, finishReason, fields: decodeValue(message) as TextChunk["fields"] };
}
