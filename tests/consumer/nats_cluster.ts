/** Three nats-servers that form a JetStream cluster. */
import { jetstreamManager } from "@nats-io/jetstream";
import { connectNats } from "../harness/nats_client.ts";
import { NatsServer } from "../harness/nats_server.ts";
import { eventually, freePort, TestFolder } from "../harness/process.ts";

/** A running cluster. Use it with `await using`. */
export class NatsCluster implements AsyncDisposable {
  readonly #folder: TestFolder;
  /** By server name. */
  readonly servers: Map<string, NatsServer>;

  private constructor(folder: TestFolder, servers: Map<string, NatsServer>) {
    this.#folder = folder;
    this.servers = servers;
  }

  /** Starts it and waits until it can hold replicated streams. */
  static async start(): Promise<NatsCluster> {
    const folder = new TestFolder();
    const ports = [freePort(), freePort(), freePort()];
    const routes = ports.map((port) => `nats://127.0.0.1:${port}`).join(", ");
    const servers = new Map<string, NatsServer>();
    const starting = ports.map(async (port, i) => {
      const name = `n${i + 1}`;
      const own = folder.file(name);
      await Deno.mkdir(own);
      const config = `server_name: ${name}\ncluster { name: test, listen: "127.0.0.1:${port}", routes: [${routes}] }`;
      servers.set(name, await NatsServer.start({ folder: own, config }));
    });
    await Promise.all(starting);
    const cluster = new NatsCluster(folder, servers);
    const nats = await connectNats({ servers: cluster.urls() });
    await eventually("the cluster holds replicated streams", async () => {
      const manager = await jetstreamManager(nats);
      await manager.streams.add({ name: "PROBE", subjects: ["probe"], num_replicas: 3 });
      return await manager.streams.delete("PROBE");
    });
    await nats.close();
    return cluster;
  }

  /** Addresses, those of `first` in front. */
  urls(...first: string[]): string[] {
    const names = [...first, ...[...this.servers.keys()].filter((name) => !first.includes(name))];
    return names.flatMap((name) => this.servers.get(name)?.url ?? []);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.servers.values()) await server[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }
}
