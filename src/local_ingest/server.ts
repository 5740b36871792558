/** The local-ingest socket (spec/local-ingest.md 2): listening, accepting, ending. */
import type { SettlementLedger } from "../dispatch/delivery.ts";
import type { WorkIntake } from "../dispatch/intake.ts";
import type { ResultSender } from "../dispatch/result_sender.ts";
import type { GenerationRunner } from "../generate/local_runner.ts";
import type { ByteBudget } from "../runtime/byte_budget.ts";
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";
import { bindOwnerOnly, type OwnedSocket } from "../runtime/socket_node.ts";
import { type ClientStream, type ConnectionParts, IngestConnection } from "./connection.ts";
import { GenerationClaims } from "./generation_claims.ts";

const logger = logFor("local_ingest");

/** Pause after a failed accept, so that a lack of file descriptors does not become a busy loop. */
const ACCEPT_PAUSE_MS = 100;

/** What local ingest works with. */
export interface LocalIngestOptions {
  /** Path of the socket (`SIE_SIDECAR_LOCAL_SOCKET`). */
  readonly path: string;
  /** Pool of this worker's lane (`SIE_POOL`): the only one whose items are taken. */
  readonly pool: string;
  readonly intake: WorkIntake;
  /** Makes the results of items that are refused here. */
  readonly sender: Pick<ResultSender, "refusal">;
  readonly generation: GenerationRunner;
  readonly ledger: SettlementLedger;
  readonly clock: Clock;
  /** The process-wide byte budget: requests count until their work is settled, and while it is pressed none is read. */
  readonly budget?: ByteBudget;
  /** `SIE_COMPAT=reference`: an exhausted operation budget is answered instead of pausing the reader. */
  readonly referenceCompatible: boolean;
}

/** A listening local-ingest socket. */
export interface LocalIngestServer {
  /** Connections that are open. */
  readonly connections: number;
  /** Generations that are running, over all connections. */
  readonly generations: number;
  /**
   * Stops accepting, removes the socket if it is still ours, answers running calls with `cancelled`, cancels running streams, closes
   * all connections. Resolves when nothing of it is left, at most about 15 s later. A second call joins the first.
   */
  close(): Promise<void>;
}

/**
 * Binds the socket and serves until {@link LocalIngestServer.close}.
 *
 * @throws SocketPathError when the path cannot be used: a live listener, something that is no socket, no permission
 */
export async function startLocalIngest(options: LocalIngestOptions): Promise<LocalIngestServer> {
  return new Server(await bindOwnerOnly(options.path), options);
}

class Server implements LocalIngestServer {
  readonly #socket: OwnedSocket;
  readonly #clock: Clock;
  readonly #parts: ConnectionParts;
  readonly #connections = new Map<IngestConnection, Promise<unknown>>();
  readonly #closing = new AbortController();
  readonly #accepting: Promise<void>;
  #closed: Promise<void> | undefined;

  constructor(socket: OwnedSocket, options: LocalIngestOptions) {
    this.#socket = socket;
    this.#clock = options.clock;
    this.#parts = { ...options, budget: options.budget, claims: new GenerationClaims() };
    this.#accepting = this.#accept();
  }

  get connections(): number {
    return this.#connections.size;
  }

  get generations(): number {
    return this.#parts.claims.size;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #accept(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      try {
        this.#serve(await this.#socket.listener.accept());
      } catch (thrown) {
        if (this.#closing.signal.aborted) return;
        logger.error("accepting a connection failed: {error}", { error: errorText(thrown) });
        await sleep(this.#clock, ACCEPT_PAUSE_MS, this.#closing.signal);
      }
    }
  }

  #serve(stream: ClientStream): void {
    const connection = new IngestConnection(stream, this.#parts);
    const served = connection.serve().finally(() => this.#connections.delete(connection));
    this.#connections.set(connection, served);
    // Accepted in the moment of closing.
    if (this.#closing.signal.aborted) connection.shutdown();
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    await this.#socket.close();
    await this.#accepting;
    const served = [...this.#connections].map(([connection, ended]) => Promise.all([connection.shutdown(), ended]));
    await Promise.all(served);
  }
}
