/** Settling units by the table of settlement_rules.ts, and telling the trace: the one place where dispatch settles. */
import type { Clock } from "../runtime/clock.ts";
import type { TraceSink } from "../runtime/trace.ts";
import { delayOf, type FinalSituation, settleBy, type SettlementDelays } from "./settle_by.ts";
import { SETTLEMENT_RULES } from "./settlement_rules.ts";
import type { WorkUnit } from "./work_unit.ts";

/** Settles units. */
export class Settler {
  readonly #clock: Clock;
  readonly #trace: TraceSink | undefined;
  readonly #delays: SettlementDelays;

  /** @param baseDelayMs delay of an ordinary NAK (`SIE_NAK_DELAY_S`) */
  constructor(clock: Clock, baseDelayMs: number, trace: TraceSink | undefined) {
    this.#clock = clock;
    this.#delays = { baseMs: baseDelayMs };
    this.#trace = trace;
  }

  /** Delay of an ordinary NAK, milliseconds. */
  get baseDelayMs(): number {
    return this.#delays.baseMs;
  }

  /**
   * Settles a unit as the table says.
   *
   * @param published whether what the rule publishes was handed over
   * @param hintMs delay that the backend asked for
   */
  settle(unit: WorkUnit, situation: FinalSituation, published = true, hintMs?: number): void {
    const delays = hintMs === undefined ? this.#delays : { baseMs: this.#delays.baseMs, hintMs };
    unit.settled = settleBy(unit.delivery, situation, delays, published);
    if (this.#trace !== undefined) this.#tell(unit, situation, delays);
  }

  /** Settles all units that are not settled yet. */
  settleAll(units: readonly WorkUnit[], situation: FinalSituation): void {
    for (const unit of units) if (unit.settled === undefined) this.settle(unit, situation);
  }

  #tell(unit: WorkUnit, situation: FinalSituation, delays: SettlementDelays): void {
    const { action } = SETTLEMENT_RULES[situation];
    const done = unit.settled?.action ?? "left";
    const rule = action.kind === "nak" ? action.delay : action.kind === "ack_published" ? action.otherwise : undefined;
    const delayMs = done === "nak" && rule !== undefined && rule !== "leave" ? delayOf(rule, delays) : undefined;
    this.#trace?.emit({
      kind: "settlement",
      at: this.#clock.now(),
      delivery: unit.delivery.number,
      action: done === "left" ? "none" : done,
      reason: situation,
      ...(delayMs === undefined ? {} : { delayMs }),
    });
  }
}
