/** HTTP of the trainer: status, probes, metrics, predictions, the plot (online-training.md, section 6.6). */
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { readBounded, withinTime } from "./bounded_body.ts";
import { TrainingError, type TrainingErrorCode } from "./errors.ts";
import type { TrainingLog } from "./log.ts";
import { parsePredictRequest } from "./predict_request.ts";
import type { Scores } from "./scorer.ts";
import { type HttpAddress, TRAINING_SETTINGS } from "./settings.ts";
import { breathe } from "./step_runner.ts";

/** What the routes show and do. */
export interface HttpRoutes {
  readonly nFeatures: number;
  /** JSON body of `/status`. */
  status(): unknown;
  metrics(): string;
  /** HTML of `/`. */
  page(): Promise<string>;
  /** Whether the feedback socket is or was listening. */
  started(): boolean;
  /** Whether the socket is bound and the folder of versions can be written. */
  ready(): Promise<boolean>;
  score(features: Float32Array, count: number): Promise<Scores>;
  setPaused(paused: boolean): void;
}

/** Largest body of a request, in bytes: its parsing must not hold the event loop for long. */
export const MAX_BODY_BYTES = 1_048_576;
/** Bytes of request bodies that may be held at once. */
const MAX_BODIES_BYTES = 64 * MAX_BODY_BYTES;
/** Longest time for a body to arrive, in milliseconds. */
export const BODY_MS = 10_000;
/** What a prediction can fail of, with the status of the answer. */
const PREDICT_FAULTS: ReadonlyMap<TrainingErrorCode, number> = new Map([
  ["closed", 408],
  ["non_finite_score", 500],
  ["no_model", 503],
]);
/** Numbers of an answer that are written at a time; a few milliseconds. */
const NUMBERS_AT_A_TIME = 20_000;
/** Longest wait for running requests at the stop, in milliseconds. */
const SHUTDOWN_MS = 500;

/** A listening server. */
export class TrainingHttpServer {
  readonly #routes: HttpRoutes;
  readonly #clock: Clock;
  readonly #log: TrainingLog;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #abort = new AbortController();
  /** Aborted when the last request has ended during the stop. */
  readonly #idle = new AbortController();
  #closing = false;
  #running = 0;
  #bodies = 0;

  /** @throws TrainingError `address_in_use` when the address cannot be bound. */
  constructor(address: HttpAddress, routes: HttpRoutes, clock: Clock, log: TrainingLog) {
    this.#routes = routes;
    this.#clock = clock;
    this.#log = log;
    this.#server = this.#listen(address);
  }

  #listen({ hostname, port }: HttpAddress): Deno.HttpServer<Deno.NetAddr> {
    try {
      return Deno.serve({
        hostname,
        port,
        signal: this.#abort.signal,
        onListen: (bound) => this.#log.info(`HTTP on ${bound.hostname}:${bound.port}`),
        onError: (thrown) => this.#failed(thrown),
      }, (request) => this.#handle(request));
    } catch (thrown) {
      const what = `${TRAINING_SETTINGS.httpAddr.name}: cannot listen on ${hostname}:${port}: ${errorText(thrown)}`;
      throw new TrainingError("address_in_use", what, { cause: thrown });
    }
  }

  /** Port that is listened on. */
  get port(): number {
    return this.#server.addr.port;
  }

  /** Lets running requests finish for a moment, then ends every connection. */
  async close(): Promise<void> {
    this.#closing = true;
    if (this.#running > 0) await sleep(this.#clock, SHUTDOWN_MS, this.#idle.signal);
    this.#abort.abort();
    await this.#server.finished;
  }

  async #handle(request: Request): Promise<Response> {
    this.#running++;
    try {
      return this.#closing ? text("stopping\n", 503) : await this.#answer(request);
    } finally {
      this.#running--;
      if (this.#closing && this.#running === 0) this.#idle.abort();
    }
  }

  async #answer(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    const route = this.#route(pathname);
    if (route === undefined) return text("not found\n", 404);
    const method = request.method === "HEAD" ? "GET" : request.method;
    if (method !== route.method) {
      return text("method not allowed\n", 405, { allow: route.method === "GET" ? "GET, HEAD" : route.method });
    }
    // A page of another origin must not pause the training by way of somebody's browser.
    if (method === "POST" && isForeign(request)) return text("cross-origin request refused\n", 403);
    const response = await route.answer(request);
    if (request.method !== "HEAD") return response;
    await response.body?.cancel();
    return new Response(null, { status: response.status, headers: response.headers });
  }

  #route(path: string): { method: "GET" | "POST"; answer(request: Request): Response | Promise<Response> } | undefined {
    const routes = this.#routes;
    const probe = async (good: boolean | Promise<boolean>) => await good ? text("ok\n") : text("not ready\n", 503);
    switch (path) {
      case "/":
        return { method: "GET", answer: async () => html(await routes.page()) };
      case "/status":
        return { method: "GET", answer: () => json(routes.status()) };
      case "/metrics":
        return {
          method: "GET",
          answer: () => text(routes.metrics(), 200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" }),
        };
      case "/livez":
      case "/healthz":
        return { method: "GET", answer: () => text("ok\n") };
      case "/readyz":
        return { method: "GET", answer: () => probe(routes.ready()) };
      case "/startupz":
        return { method: "GET", answer: () => probe(routes.started()) };
      case "/predict":
        return { method: "POST", answer: (request) => this.#predict(request) };
      case "/pause":
      case "/resume":
        return {
          method: "POST",
          answer: () => {
            routes.setPaused(path === "/pause");
            return json({ paused: path === "/pause" });
          },
        };
      default:
        return undefined;
    }
  }

  async #predict(request: Request): Promise<Response> {
    if (this.#bodies >= MAX_BODIES_BYTES) return json({ error: "too many requests at once" }, 503);
    this.#bodies += MAX_BODY_BYTES;
    try {
      const body = await readBody(request, this.#clock);
      if (body === undefined) return json({ error: `the body exceeds ${MAX_BODY_BYTES} bytes` }, 413);
      const parsed = parsePredictRequest(body, this.#routes.nFeatures);
      if (parsed.kind === "invalid") return json({ error: parsed.error }, 400);
      const { scores, model } = await this.#routes.score(parsed.features, parsed.count);
      const name = `"model_version":${JSON.stringify(model.modelVersion)},"version":${model.version}`;
      return jsonText(`{"scores":[${await numbersText(scores, this.#clock)}],${name}}\n`);
    } catch (thrown) {
      const status = thrown instanceof TrainingError ? PREDICT_FAULTS.get(thrown.code) : undefined;
      if (status === undefined) throw thrown;
      return json({ error: errorText(thrown) }, status);
    } finally {
      this.#bodies -= MAX_BODY_BYTES;
    }
  }

  #failed(thrown: unknown): Response {
    this.#log.error(`an HTTP request failed: ${errorText(thrown)}`);
    return text("internal error\n", 500);
  }
}

/** The whole body; undefined when it is too large. */
async function readBody(request: Request, clock: Clock): Promise<Uint8Array | undefined> {
  if (Number(request.headers.get("content-length") ?? 0) > MAX_BODY_BYTES) return undefined;
  const late = new TrainingError("closed", `the body did not arrive within ${BODY_MS} ms`);
  return await withinTime(clock, BODY_MS, late, (signal) => readBounded(request.body, MAX_BODY_BYTES, signal));
}

function isForeign(request: Request): boolean {
  const origin = request.headers.get("origin");
  if (origin === null) return false;
  return !URL.canParse(origin) || new URL(origin).host !== request.headers.get("host");
}

const SAFE = { "x-content-type-options": "nosniff", "cache-control": "no-store" };

function text(body: string, status = 200, headers: Record<string, string> = {}): Response {
  return new Response(body, { status, headers: { "content-type": "text/plain; charset=utf-8", ...SAFE, ...headers } });
}

function json(body: unknown, status = 200): Response {
  return jsonText(`${JSON.stringify(body)}\n`, status);
}

function jsonText(body: string, status = 200): Response {
  return text(body, status, { "content-type": "application/json" });
}

/** Finite numbers with commas between them, written in slices that leave the event loop free. */
async function numbersText(values: Float32Array, clock: Clock): Promise<string> {
  let all = "";
  for (let from = 0; from < values.length; from += NUMBERS_AT_A_TIME) {
    if (from > 0) await breathe(clock);
    all += (from > 0 ? "," : "") + values.subarray(from, from + NUMBERS_AT_A_TIME).join();
  }
  return all;
}

function html(body: string): Response {
  return text(body, 200, {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
  });
}
