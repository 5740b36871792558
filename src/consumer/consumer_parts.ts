/** What the consumer is made of and what it offers to `serve`. */
import type { SettlementLedger } from "../dispatch/delivery.ts";
import type { WorkIntake } from "../dispatch/intake.ts";
import type { ByteBudget } from "../runtime/byte_budget.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Settings } from "../settings/settings.ts";
import type { AdmissionPoller } from "./admission_poller.ts";
import type { BrokerConnection } from "./broker_connection.ts";
import type { Cancellations } from "./cancellations.ts";
import type { ConsumerMetrics, LaneKind, PullState } from "./consumer_metrics.ts";

/** Everything that `startConsumer` needs. */
export interface ConsumerParts {
  readonly settings: Settings;
  readonly connection: BrokerConnection;
  /** Where decoded work goes. */
  readonly intake: WorkIntake;
  readonly clock: Clock;
  readonly ledger: SettlementLedger;
  /** Counts the bytes of pulled messages until they are settled; above its high mark nothing is pulled. */
  readonly budget: ByteBudget;
  /** The same object that dispatch asks before it runs something. */
  readonly cancellations: Cancellations;
  /** The same object that dispatch asks for the gate of logical pools; undefined: everything is admitted. */
  readonly admission: AdmissionPoller | undefined;
  readonly metrics?: ConsumerMetrics;
  /** How long a pull loop collects after the first message of a batch, in milliseconds; asked for each batch. */
  readonly quantumMs: () => number;
  /** False while deliveries must not be kept alive: while draining, or when the backend's heartbeat went stale (2.4). */
  readonly mayProgress?: () => boolean;
  /** Told of each generation that a gateway cancels; passes it on to the backend. */
  readonly onGenerateCancel?: (requestId: string) => void;
}

/** State of one pull loop, for `/debug/ready`. */
export interface LaneReport {
  readonly lane: LaneKind;
  readonly stream: string;
  readonly durable: string;
  readonly state: PullState;
  /** Why it is in that state, in words; empty while all is well. */
  readonly detail: string;
  /** Deliveries that are not settled, and those of them that are kept alive by progress. */
  readonly held: number;
  readonly kept: number;
  /** Messages that the broker has been asked for and has not sent yet. */
  readonly credit: number;
  /** Pull requests asked again and consumers looked up anew since the start. */
  readonly repulls: number;
  readonly rebuilds: number;
}

/** State of the consumer, for `/debug/ready`. */
export interface ConsumerReport {
  readonly connection: "connected" | "reconnecting" | "closed";
  readonly lanes: readonly LaneReport[];
  readonly admission: { readonly admitted: boolean; readonly logical: readonly string[]; readonly reason: string };
}

/** A consumer that has its streams, consumers and cancel subscriptions. */
export interface ConsumerHandle {
  /** Begins to pull, both lanes. Call once, when everything behind the intake stands. */
  startPulling(): void;
  /** Takes no more work. Deliveries that came but did not reach the intake are handed to other workers. Returns at once. */
  stopPulling(): void;
  /** Looks at streams and consumers of both lanes now, and corrects them; never rejects. The reconciler does so at intervals. */
  reconcile(): Promise<void>;
  /** Resolves when the running calls of `intake.accept` have ended: true, or false after `limitMs`. */
  joinTasks(limitMs: number): Promise<boolean>;
  /** Ends cancel subscriptions, reconciler and progress. Deliveries can still be settled; the connection stays open. */
  close(): Promise<void>;
  report(): ConsumerReport;
}
