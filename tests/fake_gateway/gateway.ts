/**
 * A gateway for tests: publishes work as the real one does, cancels, calls direct copies back, and collects results by the real
 * one's rules (spec/queue.md 2 to 4, 7, 9).
 */
import assert from "node:assert/strict";
import { jetstream, type JetStreamClient } from "@nats-io/jetstream";
import { type ConnectionOptions, headers as newHeaders, type NatsConnection } from "@nats-io/nats-core";
import { errorText } from "../../src/runtime/errors.ts";
import { directSubject, type LaneIdentity, poolSubject, subjectToken } from "../../src/consumer/names.ts";
import { PROCESS_REASSEMBLY_BYTES, ReassemblyBudget } from "../../src/gateway/chunk_receiver.ts";
import { pickWorker, type WorkerLoad } from "../../src/gateway/rendezvous.ts";
import { routingHash, type RoutingTexts } from "../../src/gateway/routing_key.ts";
import { connectNats } from "../harness/nats_client.ts";
import { eventually, PATIENCE_MS } from "../harness/process.ts";
import { msgpack, type Value, workItemFields } from "../harness/work_items.ts";
import { RequestCollector } from "./request_collector.ts";

/** How to connect. */
export interface GatewayOptions {
  readonly url: string;
  readonly lane: LaneIdentity;
  readonly routerId?: string;
  readonly connection?: Partial<ConnectionOptions>;
}

/** One request to send. */
export interface GatewayRequest {
  /** Number of items; 1 by default. */
  readonly items?: number;
  /** Fields of every item, beside those of the request. */
  readonly fields?: { readonly [key: string]: Value };
  /** Fields of one item. */
  readonly item?: (index: number) => { readonly [key: string]: Value };
  /** To this worker alone, by its id. */
  readonly worker?: string;
  /** To the worker that these texts choose among {@link FakeGateway.workers}; to the pool where they choose none. */
  readonly routing?: RoutingTexts;
  readonly requestId?: string;
}

/** How long the real gateway waits for the broker's confirmation of a publication. */
const PUBLISH_TIMEOUT_MS = 6_000;
const CONCURRENT_PUBLISHES = 64;

/** A running gateway. Use it with `await using`. */
export class FakeGateway implements AsyncDisposable {
  readonly nats: NatsConnection;
  readonly routerId: string;
  readonly requests = new Map<string, RequestCollector>();
  /** Eligible workers, as their heartbeats would tell. */
  workers: readonly WorkerLoad[] = [];
  /** Messages for requests that this gateway does not know, or no longer. */
  strays = 0;
  readonly #js: JetStreamClient;
  readonly #lane: LaneIdentity;
  readonly #budget = new ReassemblyBudget(PROCESS_REASSEMBLY_BYTES);
  #nextRequest = 0;

  private constructor(nats: NatsConnection, options: GatewayOptions) {
    this.nats = nats;
    this.routerId = options.routerId ?? "gw-1";
    this.#lane = options.lane;
    this.#js = jetstream(nats, { timeout: PUBLISH_TIMEOUT_MS });
    nats.subscribe(`_INBOX.${this.routerId}.>`, {
      callback: (error, message) => {
        if (error !== null) return;
        const requestId = message.subject.slice(`_INBOX.${this.routerId}.`.length);
        const request = this.requests.get(requestId);
        if (request === undefined) this.strays++;
        else request.take(message.data);
      },
    });
  }

  /** Connects. */
  static async connect(options: GatewayOptions): Promise<FakeGateway> {
    const nats = await connectNats({ servers: options.url, ...options.connection });
    const gateway = new FakeGateway(nats, options);
    await nats.flush();
    return gateway;
  }

  /** Publishes a request and returns its collector once the broker has all of its items. */
  async send(request: GatewayRequest = {}): Promise<RequestCollector> {
    const requestId = request.requestId ?? `0197-${this.#nextRequest++}`;
    const total = request.items ?? 1;
    const collector = new RequestCollector(requestId, total, this.#budget, () => {
      // A refused generation goes to the pool, once; the collector sees to that.
      this.#publish(request, requestId, total, 0, undefined, "#1").catch((thrown) =>
        collector.violation(`the pool does not take the refused generation: ${errorText(thrown)}`)
      );
    });
    const chosen = request.routing === undefined ? undefined : pickWorker(this.workers, routingHash(request.routing));
    this.requests.set(requestId, collector);
    const running = new Set<Promise<void>>();
    for (let index = 0; index < total; index++) {
      if (running.size >= CONCURRENT_PUBLISHES) await Promise.race(running);
      const sent = chosen === undefined
        ? this.#publish(request, requestId, total, index, request.worker)
        // A worker that cannot be reached is passed over at once.
        : this.#publish(request, requestId, total, index, chosen.name)
          .catch(() => this.#publish(request, requestId, total, index));
      const task = sent.finally(() => running.delete(task));
      running.add(task);
    }
    await Promise.all(running);
    return collector;
  }

  /** Publishes raw bytes to a work subject, as no gateway would. */
  async sendRaw(subject: string, payload: Uint8Array, headers?: Record<string, string>): Promise<void> {
    const set = newHeaders();
    for (const [name, value] of Object.entries(headers ?? {})) set.set(name, value);
    await this.#js.publish(subject, payload, headers === undefined ? {} : { headers: set });
  }

  /** Sends items of a request to the pool again, as after a failed direct dispatch, and then calls the direct copies back. */
  async republishToPool(
    request: GatewayRequest & { readonly requestId: string; readonly worker: string },
  ): Promise<void> {
    const collector = this.requests.get(request.requestId);
    assert.ok(collector !== undefined, `unknown request ${request.requestId}`);
    for (let index = 0; index < collector.totalItems; index++) {
      if (collector.results.has(index)) continue;
      collector.republished.add(index);
      await this.#publish(request, request.requestId, collector.totalItems, index, undefined, "#1");
    }
    this.nats.publish(`batch_cancel.${this.routerId}.${subjectToken(request.worker)}.${request.requestId}`);
    await this.nats.flush();
  }

  /** The caller has gone: removes the collector and cancels what is left. */
  async cancel(requestId: string): Promise<void> {
    this.requests.get(requestId)?.close();
    this.requests.delete(requestId);
    this.nats.publish(`work_cancel.${this.routerId}.${requestId}`);
    await this.nats.flush();
  }

  /** Stops a generation. */
  async cancelGeneration(requestId: string): Promise<void> {
    this.nats.publish(`cancel.${this.routerId}.${requestId}`);
    await this.nats.flush();
  }

  /** Subject of work for a model, to the pool or to one worker. */
  subject(model: string, worker?: string): string {
    return worker === undefined
      ? poolSubject(this.#lane, model)
      : directSubject({ ...this.#lane, workerId: worker }, model);
  }

  /** Waits until every item of every request has its result. */
  async answered(limitMs = PATIENCE_MS): Promise<void> {
    const missing = () => [...this.requests.values()].filter((request) => !request.complete);
    await eventually("every item is answered", () => Promise.resolve(missing().length === 0), limitMs, () => {
      const left = missing();
      const items = left.reduce((sum, { results, totalItems }) => sum + totalItems - results.size, 0);
      return `${items} items of ${left.length} requests are missing; ${this.violations().join("; ")}`;
    });
  }

  /** Waits until the broker answers: subscriptions are there again. */
  async back(): Promise<void> {
    await eventually("the gateway is connected", async () => {
      await this.nats.flush();
      return true;
    });
  }

  /** Rules that were broken in any request. */
  violations(): string[] {
    return [...this.requests.values()].flatMap(({ violations }) => violations);
  }

  /** Items sent, answered and answered more than once, over all requests. */
  totals(): { readonly sent: number; readonly answered: number; readonly duplicated: number } {
    let sent = 0, answered = 0, duplicated = 0;
    for (const request of this.requests.values()) {
      sent += request.totalItems;
      answered += request.results.size;
      for (const count of request.answers.values()) duplicated += count - 1;
    }
    return { sent, answered, duplicated };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.nats.close();
  }

  async #publish(
    request: GatewayRequest,
    requestId: string,
    total: number,
    index: number,
    worker?: string,
    generation = "",
  ): Promise<void> {
    const fields = workItemFields({
      request_id: requestId,
      item_index: index,
      total_items: total,
      router_id: this.routerId,
      reply_subject: `_INBOX.${this.routerId}.${requestId}`,
      timestamp: Date.now() / 1000,
      pool_name: this.#lane.pool,
      machine_profile: this.#lane.machineProfile,
      ...request.fields,
      ...request.item?.(index),
    });
    const isGeneration = fields["operation"] === "generate";
    const subject = this.subject(String(fields["model_id"]), worker);
    const options = isGeneration ? { msgID: `${requestId}${generation}` } : {};
    await this.#js.publish(subject, msgpack(fields), options);
  }
}
