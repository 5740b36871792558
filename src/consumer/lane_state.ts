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

  set(state: PullState, detail = ""): void {
    if (state === this.#state && detail === this.#detail) return;
    const changed = state !== this.#state;
    this.#state = state;
    this.#detail = detail;
    if (!changed) return;
    this.#metrics.pullState(this.#lane, state);
    const message = detail === "" ? "the {lane} lane is {state}" : "the {lane} lane is {state}: {detail}";
    const bad = state === "stalled" || state === "rebuilding" || state === "refused";
    logger[bad ? "warn" : "info"](message, { lane: this.#lane, state, detail });
  }
}
