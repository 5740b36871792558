/** The local-ingest socket (spec/local-ingest.md 2): listening, accepting, ending. */
import type { SettlementLedger } from "../dispatch/delivery.ts";
import type { WorkIntake } from "../dispatch/intake.ts";
import type { ResultSender } from "../dispatch/result_sender.ts";
import type { ByteBudget } from "../runtime/byte_budget.ts";
import type { Clock } from "../runtime/clock.ts";
import type { GenerationRunner } from "./generation.ts";

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
export function startLocalIngest(options: LocalIngestOptions): Promise<LocalIngestServer> {
  return Promise.reject(new Error(`local ingest cannot listen at ${options.path} yet`));
}
