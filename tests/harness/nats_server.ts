/** A real nats-server with JetStream, on a port of its own and in a folder of its own. */
import assert from "node:assert/strict";
import { eventually, GaveUp, ManagedProcess } from "./process.ts";

/** How to start the server. */
export interface NatsOptions {
  /** Folder for configuration and store; the caller removes it. */
  readonly folder: string;
  /** More configuration, in nats-server's own language: users, limits, clusters. */
  readonly config?: string;
  /** The port; one that the server chooses when absent. Needed to start again at the same address. */
  readonly port?: number;
  /** False for a server without JetStream. */
  readonly jetStream?: boolean;
}

/** A running nats-server. Use it with `await using`. */
export class NatsServer implements AsyncDisposable {
  readonly port: number;
  readonly process: ManagedProcess;
  readonly #options: NatsOptions;

  private constructor(process: ManagedProcess, port: number, options: NatsOptions) {
    this.process = process;
    this.port = port;
    this.#options = options;
  }

  /** `nats://127.0.0.1:PORT` */
  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  /** Starts a server and waits until it accepts clients. */
  static async start(options: NatsOptions): Promise<NatsServer> {
    const { folder } = options;
    const config = `${folder}/nats-server.conf`;
    await Deno.writeTextFile(config, configText(options));
    const process = ManagedProcess.start({ name: "nats-server", command: ["nats-server", "-c", config] });
    try {
      const port = await eventually("nats-server has chosen its port", async () => {
        const ports = await readPorts(folder, process.pid);
        if (ports === undefined && !process.running) throw new GaveUp(`nats-server ended:\n${process.output()}`);
        return ports;
      });
      await process.line("nats-server accepts clients", (line) => line.includes("Server is ready"));
      return new NatsServer(process, port, options);
    } catch (thrown) {
      await process[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  /** Stops the server and starts another one at the same address with the same store. */
  async restart(signal: Deno.Signal = "SIGTERM"): Promise<NatsServer> {
    await this.process.stop(signal);
    return await NatsServer.start({ ...this.#options, port: this.port });
  }

  /** Changes the configuration beside the address and the store, and lets the running server read it. */
  async reload(config: string): Promise<void> {
    const seen = this.process.lines.filter((line) => line.includes("Reloaded server configuration")).length;
    await Deno.writeTextFile(
      `${this.#options.folder}/nats-server.conf`,
      configText({ ...this.#options, port: this.#options.port ?? -1, config }),
    );
    this.process.signal("SIGHUP");
    await eventually("nats-server has read its configuration", () => {
      const lines = this.process.lines;
      const failed = lines.find((line) => line.includes("Failed to reload"));
      if (failed !== undefined) throw new GaveUp(failed);
      return Promise.resolve(
        lines.filter((line) => line.includes("Reloaded server configuration")).length > seen,
      );
    });
  }

  /** Stops the server in order. */
  async stop(): Promise<void> {
    const status = await this.process.stop("SIGTERM");
    // nats-server exits with 1 after SIGTERM in some versions and with 0 in others; a crash has a signal or another code.
    assert.ok(status.code <= 1, `nats-server ended with ${status.code}:\n${this.process.output()}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process[Symbol.asyncDispose]();
  }
}

function configText(options: NatsOptions): string {
  const lines = [
    `listen: "127.0.0.1:${options.port ?? -1}"`,
    `ports_file_dir: ${JSON.stringify(options.folder)}`,
    `max_payload: 8MB`,
  ];
  if (options.jetStream !== false) lines.push(`jetstream { store_dir: ${JSON.stringify(`${options.folder}/store`)} }`);
  if (options.config !== undefined) lines.push(options.config);
  return `${lines.join("\n")}\n`;
}

/** The port that the server wrote down, as soon as it has. */
async function readPorts(folder: string, pid: number): Promise<number | undefined> {
  let text: string;
  try {
    text = await Deno.readTextFile(`${folder}/nats-server_${pid}.ports`);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return undefined;
    throw thrown;
  }
  const match = /"(?:nats|tls):\/\/[^"]*:(\d+)"/.exec(text);
  return match?.[1] === undefined ? undefined : Number(match[1]);
}
