/** Acting on the settlement table. */
import type { Delivery, Settled } from "./delivery.ts";
import type { DelayRule } from "./settlement_rule.ts";
import { SETTLEMENT_RULES, type Situation } from "./settlement_rules.ts";

/** Delay of a NAK that hands work to another worker at once. */
const HAND_OVER_MS = 100;

/** Half of the pool consumer's ack wait: no wait between two progress acknowledgements may be longer (spec/queue.md 5.2). */
export const HALF_ACK_WAIT_MS = 15_000;

/**
 * Longest delay: what backends and settings ask for is not ours to judge, but it has to fit a timer, and a count of nanoseconds
 * in JSON.
 */
const LONGEST_DELAY_MS = 2_147_483_647;

/** Numbers that the delay rules need. */
export interface SettlementDelays {
  /** `SIE_NAK_DELAY_S`, in milliseconds. */
  readonly baseMs: number;
  /** What the backend asked for, in milliseconds. */
  readonly hintMs?: number | undefined;
}

/** The delay that a rule comes to, in milliseconds. */
export function delayOf(rule: DelayRule, delays: SettlementDelays): number {
  return Math.min(wantedDelay(rule, delays), LONGEST_DELAY_MS);
}

function wantedDelay(rule: DelayRule, delays: SettlementDelays): number {
  switch (rule) {
    case "base":
      return delays.baseMs;
    case "hand_over":
      return HAND_OVER_MS;
    case "double_base":
      return Math.min(2 * delays.baseMs, HALF_ACK_WAIT_MS);
    case "hint_or_base":
      return delays.hintMs ?? delays.baseMs;
  }
}

/** Situations that end a delivery; the others only send progress. */
export type FinalSituation = {
  [S in Situation]: (typeof SETTLEMENT_RULES)[S]["action"]["kind"] extends "progress" ? never : S;
}[Situation];

/**
 * Ends a delivery as the table says.
 *
 * @param published whether what the rule publishes was handed over; looked at only where the rule publishes something first
 */
export function settleBy(
  delivery: Delivery,
  situation: FinalSituation,
  delays: SettlementDelays,
  published = true,
): Settled {
  const { action } = SETTLEMENT_RULES[situation];
  switch (action.kind) {
    case "ack":
      return delivery.ack(action.reason);
    case "nak":
      return delivery.nak(delayOf(action.delay, delays), action.reason);
    case "leave":
      return delivery.leave(action.reason);
    case "ack_published":
      if (published) return delivery.ack(action.reason);
      if (action.otherwise === "leave") return delivery.leave("publish_failed");
      return delivery.nak(delayOf(action.otherwise, delays), "retry");
  }
}
