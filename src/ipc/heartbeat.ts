/** The ping rounds (spec/ipc.md 1.12, spec/health-telemetry.md 3): what a round says about all children together. */
import { type CancelTimer, type Clock } from "../runtime/clock.ts";
import { sortedUnion } from "../runtime/sorted_union.ts";
import type { PingAnswer, WorkerCapabilities } from "../wire/ipc/heartbeat.ts";
import { mergeCapabilities } from "./merge.ts";
import type { IpcError } from "./errors.ts";

/** What one child said in a round. */
export interface ChildPing {
  /** Undefined when the call failed. */
  readonly answer: PingAnswer | undefined;
  readonly error: IpcError | undefined;
  /** Undefined when it was not asked or did not answer in time. */
  readonly capabilities: WorkerCapabilities | undefined;
}

/** A round's outcome. */
export interface PingRound {
  readonly children: readonly ChildPing[];
  /** Whether the round counts as a successful ping: at least one child is ready. */
  readonly successful: boolean;
  readonly readyChildren: number;
  /** First non-empty hash of a ready child, "" when there is none. */
  readonly bundleConfigHash: string;
  /** Sorted union over the ready children; undefined in a round without one: the last list stays. */
  readonly loadedModels: readonly string[] | undefined;
  /** Every child supports it and said so in this round. */
  readonly supportsExecutionAuthorityV1: boolean;
  readonly supportsNumericalAdmissionV1: boolean;
  /** Models that generate, over the children that answered. */
  readonly generationModels: readonly string[];
}

/**
 * Judges a round. A child is ready when its call succeeded, its answer says so and the pool is not quarantined; while it is, its
 * capabilities are not taken as support either.
 */
export function judgeRound(children: readonly ChildPing[], quarantined: boolean): PingRound {
  const ready = quarantined ? [] : children.filter((child) => child.answer?.ready === true);
  const answers = ready.flatMap((child) => child.answer ?? []);
  const capabilities = ready.flatMap((child) => child.capabilities ?? []);
  const merged = mergeCapabilities(capabilities);
  const all = children.length > 0 && capabilities.length === children.length;
  return {
    children,
    successful: ready.length > 0,
    readyChildren: ready.length,
    bundleConfigHash: answers.find((answer) => answer.bundleConfigHash !== "")?.bundleConfigHash ?? "",
    loadedModels: ready.length > 0 ? sortedUnion(answers.map((answer) => answer.loadedModels)) : undefined,
    supportsExecutionAuthorityV1: all && merged.supportsExecutionAuthorityV1,
    supportsNumericalAdmissionV1: all && merged.supportsNumericalAdmissionV1,
    generationModels: merged.generationModels,
  };
}

/** What the rounds are made of. */
export interface HeartbeatOptions {
  readonly clock: Clock;
  /** Time between the starts of two rounds, milliseconds, at least 1. */
  readonly intervalMs: number;
  readonly round: () => Promise<PingRound>;
  /** Takes each outcome. */
  readonly onRound: (round: PingRound) => void;
  /** Called when a round or `onRound` throws: a bug, to be logged. The rounds go on. */
  readonly onFault: (thrown: unknown) => void;
}

/** Rounds at a fixed interval, the first at once. A round that takes longer than the interval makes the ticks it covers fall out. */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  #cancel: CancelTimer | undefined;
  #running: Promise<void> | undefined;
  #stopped = false;

  constructor(options: HeartbeatOptions) {
    if (!(options.intervalMs >= 1)) {
      throw new RangeError(`ping interval of ${options.intervalMs} ms: at least 1 is needed`);
    }
    this.#options = options;
  }

  /** Starts the first round. */
  start(): void {
    if (this.#stopped || this.#running !== undefined || this.#cancel !== undefined) return;
    this.#tick(this.#options.clock.now());
  }

  /** No more rounds; resolves when a running one has ended. Its outcome is still told. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    this.#cancel = undefined;
    await this.#running;
  }

  #tick(due: number): void {
    const { clock, intervalMs, round, onRound, onFault } = this.#options;
    this.#cancel = undefined;
    this.#running = round().then(onRound).catch(onFault).finally(() => {
      this.#running = undefined;
      if (this.#stopped) return;
      const missed = Math.max(0, Math.floor((clock.now() - due) / intervalMs));
      const next = due + (missed + 1) * intervalMs;
      this.#cancel = clock.after(next - clock.now(), () => this.#tick(next));
    });
  }
}
