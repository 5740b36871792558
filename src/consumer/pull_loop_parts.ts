/** What a pull loop is made of. */
import type { SettlementLedger } from "../dispatch/delivery.ts";
import type { WorkIntake } from "../dispatch/intake.ts";
import type { ByteBudget } from "../runtime/byte_budget.ts";
import type { Clock } from "../runtime/clock.ts";
import type { PullSettings } from "../settings/settings.ts";
import type { BrokerConnection } from "./broker_connection.ts";
import type { ConsumerMetrics } from "./consumer_metrics.ts";
import type { KeepingRules } from "./progress_keeper.ts";
import type { LaneFacts, LanePlan } from "./provisioning.ts";

/** Whether work may be asked for; a closed gate says why, and for how long the loop need not look again. */
export type PullGate = () => { readonly why: string; readonly pauseMs: number } | undefined;

/** What a loop needs. */
export interface PullLoopParts {
  readonly plan: LanePlan;
  readonly facts: LaneFacts;
  readonly connection: BrokerConnection;
  readonly intake: WorkIntake;
  readonly clock: Clock;
  readonly ledger: SettlementLedger;
  readonly budget: ByteBudget;
  readonly metrics: ConsumerMetrics;
  readonly pull: PullSettings;
  readonly nakDelayMs: number;
  /** `SIE_COMPAT=reference`. */
  readonly reference: boolean;
  readonly quantumMs: () => number;
  readonly keeping: KeepingRules;
  readonly gate: PullGate;
  /** See {@link LaneHealerParts}. */
  readonly ensure: () => Promise<LaneFacts>;
  readonly lookUp: () => Promise<LaneFacts | undefined>;
  /** See {@link LaneSettlementsParts}. */
  readonly streamCreated: () => Promise<string | undefined>;
  /** As `ensure`, with more patience. */
  readonly reconcile: () => Promise<LaneFacts>;
}
