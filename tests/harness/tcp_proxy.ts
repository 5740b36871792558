/** A TCP proxy that can go silent: connections stay open and nothing passes any more, as when a network path dies without a word. */

interface Pair {
  readonly client: Deno.TcpConn;
  readonly server: Deno.TcpConn;
}

/** Forwards to one port of the loopback interface. Use it with `await using`. */
export class TcpProxy implements AsyncDisposable {
  readonly #target: number;
  readonly #listener: Deno.TcpListener;
  readonly #pairs = new Set<Pair>();
  readonly #silenced = new Set<Pair>();
  readonly #tasks = new Set<Promise<void>>();
  readonly #accepting: Promise<void>;

  constructor(target: number) {
    this.#target = target;
    this.#listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    this.#accepting = this.#accept();
  }

  get port(): number {
    return this.#listener.addr.port;
  }

  /** Number of connections that are forwarded. */
  get live(): number {
    return this.#pairs.size - this.#silenced.size;
  }

  /** Lets nothing more through on the present connections, and closes none of them. New ones work. */
  silence(): void {
    for (const pair of this.#pairs) this.#silenced.add(pair);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    for (const pair of [...this.#pairs]) this.#close(pair);
    await this.#accepting;
    await Promise.all(this.#tasks);
  }

  async #accept(): Promise<void> {
    for await (const client of this.#listener) {
      const server = await Deno.connect({ hostname: "127.0.0.1", port: this.#target }).catch(() => undefined);
      if (server === undefined) {
        client.close();
        continue;
      }
      const pair = { client, server };
      this.#pairs.add(pair);
      for (const [from, to] of [[client, server], [server, client]] as const) {
        const task = this.#forward(pair, from, to).finally(() => this.#tasks.delete(task));
        this.#tasks.add(task);
      }
    }
  }

  async #forward(pair: Pair, from: Deno.TcpConn, to: Deno.TcpConn): Promise<void> {
    const buffer = new Uint8Array(64 * 1024);
    try {
      for (;;) {
        const count = await from.read(buffer);
        if (this.#silenced.has(pair)) {
          if (count === null) break;
          continue;
        }
        if (count === null) break;
        for (let done = 0; done < count;) done += await to.write(buffer.subarray(done, count));
      }
    } catch {
      // One of the two was closed.
    }
    this.#close(pair);
  }

  #close(pair: Pair): void {
    if (!this.#pairs.delete(pair)) return;
    this.#silenced.delete(pair);
    for (const connection of [pair.client, pair.server]) {
      try {
        connection.close();
      } catch {
        // It is closed already.
      }
    }
  }
}
