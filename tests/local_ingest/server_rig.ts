/** A local-ingest server on a real socket, in real time, with the whole dispatch and a strict backend behind it. */
import { LocalIngestClient, type LocalIngestClientOptions } from "../../src/client/client.ts";
import { type LocalIngestServer, startLocalIngest } from "../../src/local_ingest/server.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { TestFolder } from "../harness/process.ts";
import { ingestParts, type IngestRigOptions, POOL } from "./rig.ts";
import { TalkingBackend } from "./talking_backend.ts";

/** Use it with `await using`. */
export class ServerRig implements AsyncDisposable {
  readonly folder: TestFolder;
  readonly path: string;
  readonly backend: TalkingBackend;
  readonly parts: ReturnType<typeof ingestParts>;
  readonly server: LocalIngestServer;

  private constructor(folder: TestFolder, path: string, rig: RigParts, server: LocalIngestServer) {
    this.folder = folder;
    this.path = path;
    this.backend = rig.backend;
    this.parts = rig.parts;
    this.server = server;
  }

  /** Starts a server. */
  static async start(options: IngestRigOptions = {}): Promise<ServerRig> {
    const folder = new TestFolder();
    const path = folder.file("ingest.sock");
    const backend = new TalkingBackend();
    const parts = ingestParts({ ...options, clock: systemClock, backend });
    const { budget, ...others } = parts;
    const server = await startLocalIngest({ path, ...others, ...(budget === undefined ? {} : { budget }) });
    return new ServerRig(folder, path, { backend, parts }, server);
  }

  /** A client of the server. */
  client(options: Partial<LocalIngestClientOptions> = {}): LocalIngestClient {
    return new LocalIngestClient({
      socketPath: this.path,
      route: { pool: POOL, machineProfile: "cpu", bundle: "test" },
      ...options,
    });
  }

  /** A bare connection to the server. */
  connect(): Promise<Deno.UnixConn> {
    return Deno.connect({ transport: "unix", path: this.path });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.close();
    this.folder[Symbol.dispose]();
  }
}

interface RigParts {
  readonly backend: TalkingBackend;
  readonly parts: ReturnType<typeof ingestParts>;
}
