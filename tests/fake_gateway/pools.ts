/** The gateway's `/v1/pools`, as far as workers look at it (spec/queue.md 8). */

/** One pool. */
export interface FakePool {
  readonly name: string;
  readonly queuePool?: string;
  readonly gpuCaps?: Readonly<Record<string, unknown>>;
  readonly workers?: readonly string[];
}

/** Answers `/v1/pools`. Use it with `await using`. */
export class FakePools implements AsyncDisposable {
  /** What is answered from now on. */
  pools: readonly FakePool[] = [];
  /** Instead of an answer: this status, or this text. */
  failure: { readonly status: number; readonly text: string } | undefined;
  requests = 0;
  /** `authorization` of the last request. */
  authorization: string | undefined;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  constructor() {
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      (request) => this.#answer(request),
    );
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.addr.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }

  #answer(request: Request): Response {
    this.requests++;
    this.authorization = request.headers.get("authorization") ?? undefined;
    if (new URL(request.url).pathname !== "/v1/pools") return new Response("not found", { status: 404 });
    if (this.failure !== undefined) return new Response(this.failure.text, { status: this.failure.status });
    return Response.json({
      pools: this.pools.map((pool) => ({
        spec: {
          name: pool.name,
          ...(pool.queuePool === undefined ? {} : { queue_pool: pool.queuePool }),
          ...(pool.gpuCaps === undefined ? {} : { gpu_caps: pool.gpuCaps }),
          bundle: "default",
          minimum_worker_count: 0,
          pinned_models: [],
        },
        status: {
          state: "active",
          assigned_workers: (pool.workers ?? []).map((name) => ({ name, url: `http://${name}:8080`, gpu: "l4" })),
        },
      })),
    });
  }
}
