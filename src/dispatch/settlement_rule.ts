/** The form of a row of the settlement table. */
import type { LeaveReason, SettleReason } from "./delivery.ts";

/** How long the broker is told to wait before it delivers again. */
export type DelayRule =
  /** `SIE_NAK_DELAY_S`. */
  | "base"
  /** 100 ms: another worker should take it now. */
  | "hand_over"
  /** Twice the base, at most half of the pool consumer's ack wait. */
  | "double_base"
  /** What the backend asked for, else the base. */
  | "hint_or_base";

/** What is done with a delivery. */
export type SettlementAction =
  | { readonly kind: "ack"; readonly reason: SettleReason }
  | { readonly kind: "nak"; readonly delay: DelayRule; readonly reason: SettleReason }
  /** Something is published first; the ACK follows only when that succeeded. */
  | { readonly kind: "ack_published"; readonly reason: SettleReason; readonly otherwise: DelayRule | "leave" }
  /** The broker is told that the work is alive. */
  | { readonly kind: "progress" }
  | { readonly kind: "leave"; readonly reason: LeaveReason };

/** Part of the path in which a situation comes about. */
export type SettlementStage = "intake" | "model group" | "execution" | "generation";

/** One row. */
export interface SettlementRule {
  readonly stage: SettlementStage;
  /** The situation, in words. */
  readonly when: string;
  readonly action: SettlementAction;
  /** What the caller gets; "nothing" when no message is sent. */
  readonly published: string;
  /** What an operator can do about it; empty where nothing is wrong. */
  readonly advice: string;
}
