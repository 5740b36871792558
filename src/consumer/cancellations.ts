/**
 * What dispatch asks at each checkpoint (spec/queue.md 2.4, 7.2 to 7.4): has this item's deadline passed, has its request been
 * cancelled, has this direct copy been called back? Asked several times per item, so that the usual answer costs next to nothing.
 */
import { getLogger } from "@logtape/logtape";
import type { Delivery, SettleReason } from "../dispatch/delivery.ts";
import type { Checkpoint, DropView } from "../dispatch/views.ts";
import type { Clock } from "../runtime/clock.ts";
import type { DeadlineSettings } from "../settings/settings.ts";
import type { WorkItem } from "../wire/work_item.ts";
import { type DeadlineLimits, type DeadlineStatus, deadlineStatus } from "./deadline.ts";
import type { RequestKey } from "./guards.ts";
import { JetStreamDelivery } from "./jetstream_delivery.ts";
import { Tombstones } from "./tombstones.ts";
import { WarningLimiter } from "./warning_limiter.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** Life of a called-back direct copy. */
const BATCH_TTL_MS = 120_000;

/** What is needed. */
export interface CancellationsParts {
  readonly clock: Clock;
  readonly deadlines: DeadlineSettings;
  /** Called after each cancellation. */
  readonly onCancelled?: () => void;
  /** Told of each item that runs although its deadline has passed (not enforcing), once. */
  readonly onExpiredRun?: (work: WorkItem) => void;
}

/** See the file's comment. */
export class Cancellations implements DropView {
  readonly #clock: Clock;
  readonly #settings: DeadlineSettings;
  readonly #limits: DeadlineLimits;
  readonly #requests: Tombstones;
  readonly #batches = new Tombstones(BATCH_TTL_MS);
  readonly #warnings: WarningLimiter<"implausible" | "ahead" | "born_expired">;
  readonly #onCancelled: (() => void) | undefined;
  readonly #onExpiredRun: ((work: WorkItem) => void) | undefined;
  /** Counts additions: what was not cancelled at a version cannot have become so without another one. */
  #version = 0;

  constructor(parts: CancellationsParts) {
    this.#clock = parts.clock;
    this.#settings = parts.deadlines;
    this.#limits = {
      skewToleranceS: parts.deadlines.skewToleranceMs / 1000,
      maxBudgetS: parts.deadlines.maxBudgetMs / 1000,
    };
    this.#requests = new Tombstones(parts.deadlines.tombstoneTtlMs);
    this.#warnings = new WarningLimiter(parts.clock);
    this.#onCancelled = parts.onCancelled;
    this.#onExpiredRun = parts.onExpiredRun;
  }

  /** Limits within which deadlines are believed. */
  get limits(): DeadlineLimits {
    return this.#limits;
  }

  /** Remembers that a request was cancelled. */
  cancelRequest(key: RequestKey): void {
    this.#version++;
    this.#requests.add(nameOf(key.routerId, key.requestId), this.#clock.now());
    this.#onCancelled?.();
  }

  /** Remembers that the direct copies of a request were called back. */
  cancelBatch(requestId: string): void {
    this.#version++;
    this.#batches.add(requestId, this.#clock.now());
    this.#onCancelled?.();
  }

  /** Cancelled requests and called-back direct copies remembered. */
  get size(): { readonly requests: number; readonly batches: number } {
    return { requests: this.#requests.size, batches: this.#batches.size };
  }

  dropReason(work: WorkItem, delivery: Delivery, checkpoint: Checkpoint): SettleReason | undefined {
    if (work.operation === "generate") return undefined;
    if (work.deadline !== undefined && delivery.source !== "local") {
      if (this.#judgeDeadline(work, delivery, checkpoint)) return "deadline_exceeded";
    }
    return this.#version > 0 && this.#isCancelled(work, delivery) ? "completed" : undefined;
  }

  remainingMs(work: WorkItem, delivery: Delivery): number | undefined {
    if (work.deadline === undefined || work.operation === "generate" || delivery.source === "local") return undefined;
    const status = this.#status(work);
    return status.kind === "live" ? status.seconds * 1000 : undefined;
  }

  #isCancelled(work: WorkItem, delivery: Delivery): boolean {
    const known = delivery instanceof JetStreamDelivery ? delivery : undefined;
    if (known !== undefined && known.clearAtVersion === this.#version) return false;
    const now = this.#clock.now();
    const { requestId } = work;
    if (work.routerId !== "" && this.#requests.has(nameOf(work.routerId, requestId), now)) return true;
    if (delivery.workerDirect && this.#batches.has(requestId, now)) return true;
    if (known !== undefined) known.clearAtVersion = this.#version;
    return false;
  }

  /** Whether the item is to be dropped for its deadline. */
  #judgeDeadline(work: WorkItem, delivery: Delivery, checkpoint: Checkpoint): boolean {
    const atIntake = checkpoint === "intake";
    if (!this.#settings.enforce && !atIntake && checkpoint !== "before_ipc") return false;
    const status = this.#status(work);
    if (atIntake) this.#warnOfClocks(work, delivery, status);
    if (status.kind !== "expired") return false;
    if (this.#settings.enforce) return true;
    if (checkpoint === "before_ipc") this.#onExpiredRun?.(work);
    return false;
  }

  #status(work: WorkItem): DeadlineStatus {
    return deadlineStatus(work.deadline, work.timestamp, this.#clock.unixMs() / 1000, this.#limits);
  }

  #warnOfClocks(work: WorkItem, delivery: Delivery, status: DeadlineStatus): void {
    if (status.kind === "unbounded") {
      this.#warnings.warn(
        "implausible",
        (heldBack) =>
          logger.warn(
            "{item}: its deadline {deadline} is not believed (published at {timestamp}); {more} more like it",
            {
              item: work.workItemId,
              deadline: work.deadline,
              timestamp: work.timestamp,
              more: heldBack,
            },
          ),
      );
      return;
    }
    const aheadS = work.timestamp - this.#clock.unixMs() / 1000;
    if (aheadS > this.#limits.skewToleranceS) {
      this.#warnings.warn(
        "ahead",
        (heldBack) =>
          logger.warn("{item} was published {seconds} s in the future: the clocks differ; {more} more like it", {
            item: work.workItemId,
            seconds: aheadS.toFixed(1),
            more: heldBack,
          }),
      );
    }
    if (status.kind === "expired" && delivery.attempt === 1) {
      this.#warnings.warn(
        "born_expired",
        (heldBack) =>
          logger.warn("{item} came {seconds} s after its deadline on its first delivery; {more} more like it", {
            item: work.workItemId,
            seconds: status.seconds.toFixed(1),
            more: heldBack,
          }),
      );
    }
  }
}

/** Requests of different gateways are different requests. Neither part can hold the separator: it came in a subject. */
function nameOf(routerId: string, requestId: string): string {
  return `${routerId} ${requestId}`;
}
