/** State of a pull loop as people and metrics see it. Says each change once. */
import { getLogger } from "@logtape/logtape";
import type { ConsumerMetrics, LaneKind, PullState } from "./consumer_metrics.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** Holds the state and its reason. */
export class LaneState {
  readonly #lane: LaneKind;
  readonly #metrics: ConsumerMetrics;
  #state: PullState = "paused";
  #detail = "not started";
  #unwell = false;
  repulls = 0;
  rebuilds = 0;

  constructor(lane: LaneKind, metrics: ConsumerMetrics) {
    this.#lane = lane;
    this.#metrics = metrics;
  }

  get state(): PullState {
    return this.#state;
  }

  get detail(): string {
    return this.#detail;
  }

  /** Whether a sign of life from the broker would be news. */
  get unwell(): boolean {
    return this.#unwell;
  }

  set(state: PullState, detail = ""): void {
    if (state === this.#state && detail === this.#detail) return;
    const changed = state !== this.#state;
    this.#state = state;
    this.#detail = detail;
    this.#unwell = state === "stalled" || state === "refused";
    if (!changed) return;
    this.#metrics.pullState(this.#lane, state);
    const message = detail === "" ? "the {lane} lane is {state}" : "the {lane} lane is {state}: {detail}";
    logger[this.#unwell || state === "rebuilding" ? "warn" : "info"](message, { lane: this.#lane, state, detail });
  }
}
