/** A NATS client that says what the test wants, however wrong. Use it with `using`. */

export class RawClient implements Disposable {
  readonly #connection: Deno.TcpConn;

  private constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
  }

  /** Connects to a server of the loopback interface and introduces itself. */
  static async connect(port: number): Promise<RawClient> {
    const client = new RawClient(await Deno.connect({ hostname: "127.0.0.1", port }));
    await client.write('CONNECT {"verbose":false,"headers":true}\r\n');
    return client;
  }

  /** Sends bytes as they are. */
  async write(part: string | Uint8Array): Promise<void> {
    const bytes = typeof part === "string" ? new TextEncoder().encode(part) : part;
    for (let done = 0; done < bytes.length;) done += await this.#connection.write(bytes.subarray(done));
  }

  [Symbol.dispose](): void {
    this.#connection.close();
  }
}
