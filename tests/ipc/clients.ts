/** Transports of both kinds over a scripted backend, with everything observable. */
import { ByteBudget } from "../../src/runtime/byte_budget.ts";
import { type Clock, systemClock } from "../../src/runtime/clock.ts";
import {
  CHUNK_BUDGET_BYTES,
  CHUNK_LIMITS,
  type ChunkLimits,
  type ChunkObserver,
} from "../../src/ipc/chunk_transfer.ts";
import { type Connect, connectUnix } from "../../src/ipc/connection.ts";
import { MuxTransport } from "../../src/ipc/mux_transport.ts";
import { PoolTransport } from "../../src/ipc/pool_transport.ts";
import type { CallObserver, Transport, TransportOptions } from "../../src/ipc/transport.ts";

/** The two transports. */
export type Mode = "pool" | "mux";
export const MODES: readonly Mode[] = ["pool", "mux"];

/** A limit that no test reaches. */
export const NO_LIMIT_MS = 60_000;

/** What a test may set. */
export interface ClientSetup {
  readonly mode: Mode;
  /** Socket of a scripted backend; not needed with `connect`. */
  readonly path?: string;
  readonly connect?: Connect;
  readonly clock?: Clock;
  readonly poolSize?: number;
  readonly limits?: Partial<ChunkLimits>;
  readonly budget?: ByteBudget;
  readonly chunks?: ChunkObserver;
  readonly calls?: CallObserver;
}

/** A transport that is closed at the end of its block. */
export interface TestClient extends Disposable {
  readonly transport: Transport;
  readonly budget: ByteBudget;
}

/** A client as `createBackend` makes it, for one process. */
export function client(setup: ClientSetup): TestClient {
  const budget = setup.budget ?? new ByteBudget({ limit: CHUNK_BUDGET_BYTES });
  const options: TransportOptions = {
    path: setup.path ?? "backend.sock",
    clock: setup.clock ?? systemClock,
    connect: setup.connect ?? connectUnix,
    chunks: { limits: { ...CHUNK_LIMITS, ...setup.limits }, budget, observer: setup.chunks },
    observer: setup.calls,
  };
  const transport = setup.mode === "pool" ? new PoolTransport(options, setup.poolSize ?? 1) : new MuxTransport(options);
  return { transport, budget, [Symbol.dispose]: () => transport.close() };
}

/** The error of a call, or a failed assertion when it succeeds. */
export async function failureOf(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
  } catch (thrown) {
    return thrown;
  }
  throw new Error("the call succeeded");
}
