/**
 * Asks the gateway at intervals which pools this worker serves (spec/queue.md 8), and holds the answer for the gates: one for the
 * pull loops, one per item.
 */
import { getLogger } from "@logtape/logtape";
import type { AdmissionView } from "../dispatch/views.ts";
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { redactUrl } from "../runtime/redact.ts";
import { isReported } from "../runtime/repeated.ts";
import type { AdmissionSettings, LaneSettings } from "../settings/settings.ts";
import {
  type AdmissionState,
  admitsItem,
  admitsPull,
  decidePool,
  findPool,
  isDefaultPool,
  logicalPools,
  poolsOfAnswer,
} from "./pool_admission.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

const REQUEST_TIMEOUT_MS = 5_000;
/** No list of pools is as long as this; anything longer is not one. */
const LONGEST_ANSWER_BYTES = 16 * 1024 * 1024;

/** What asking needs. */
export interface AdmissionPollerParts {
  readonly settings: AdmissionSettings & { readonly gatewayUrl: string };
  readonly lane: LaneSettings;
  readonly clock: Clock;
  /** Told of each good answer: the list of pools. */
  readonly onPools?: (pools: readonly unknown[]) => void;
}

/** The poller; until its first answer only the pool `default` is open. */
export class AdmissionPoller implements AdmissionView {
  readonly #parts: AdmissionPollerParts;
  readonly #stopped = new AbortController();
  #state: AdmissionState;
  #answeredAt: number | undefined;
  /** In a row. */
  #failures = 0;
  #task: Promise<void> | undefined;

  constructor(parts: AdmissionPollerParts) {
    this.#parts = parts;
    this.#state = { admitted: isDefaultPool(parts.lane.pool), logical: new Set(), reason: "starting" };
  }

  /** Makes a poller when the settings ask for one; undefined: everything is admitted. */
  static of(settings: AdmissionSettings, parts: Omit<AdmissionPollerParts, "settings">): AdmissionPoller | undefined {
    const { gatewayUrl, enabled } = settings;
    if (!enabled || gatewayUrl === undefined) return undefined;
    return new AdmissionPoller({ ...parts, settings: { ...settings, gatewayUrl } });
  }

  get state(): AdmissionState {
    return this.#state;
  }

  /** Pause of a pull loop that finds the gate closed, in milliseconds. */
  get pauseMs(): number {
    return this.#parts.settings.pauseMs;
  }

  /** Whether the pull loops may ask for work. */
  admitsPull(): boolean {
    return admitsPull(this.#state);
  }

  admits(admissionPool: string): boolean {
    return admitsItem(this.#state, this.#parts.lane.pool, admissionPool);
  }

  /** Begins to ask, at once and then at intervals. */
  start(): void {
    this.#task ??= this.#run();
  }

  /** Ends that and waits for the end. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#task;
  }

  /** Asks once. Never rejects. */
  async poll(): Promise<void> {
    const { clock, lane } = this.#parts;
    try {
      const pools = await this.#ask();
      this.#answeredAt = clock.now();
      this.#failures = 0;
      const { admitted, reason } = decidePool(findPool(pools, lane.pool), lane);
      this.#take({ admitted, reason, logical: new Set(logicalPools(pools, lane.pool, lane.workerId)) });
      this.#parts.onPools?.(pools);
    } catch (thrown) {
      if (this.#stopped.signal.aborted) return;
      this.#onFailure(this.#withoutKey(failureText(thrown, this.#parts.settings.gatewayUrl)));
    }
  }

  async #run(): Promise<void> {
    const { clock, settings } = this.#parts;
    do await this.poll(); while (await sleep(clock, settings.checkIntervalMs, this.#stopped.signal));
  }

  #onFailure(text: string): void {
    const { clock, settings, lane } = this.#parts;
    this.#failures++;
    if (isReported(this.#failures)) {
      logger.warn("the gateway cannot be asked for its pools ({count} failures in a row): {error}", {
        count: this.#failures,
        error: text,
      });
    }
    const fresh = this.#answeredAt !== undefined && clock.now() - this.#answeredAt <= settings.staleAfterMs;
    if (fresh) return;
    this.#take({ admitted: isDefaultPool(lane.pool), logical: new Set(), reason: `status_error:${text}` });
  }

  /** A key that is no header value is quoted by the error that says so. */
  #withoutKey(text: string): string {
    const key = this.#parts.settings.gatewayApiKey ?? "";
    return key === "" ? text : text.replaceAll(key, "<redacted>");
  }

  #take(state: AdmissionState): void {
    const before = this.#state;
    this.#state = state;
    const same = before.admitted === state.admitted && kindOf(before.reason) === kindOf(state.reason) &&
      [...before.logical].join() === [...state.logical].join();
    if (same) return;
    logger.info("pool admission: pool {pool} is {open} ({reason}); logical pools: {logical}", {
      pool: this.#parts.lane.pool,
      open: state.admitted ? "open" : "closed",
      reason: state.reason,
      logical: [...state.logical].join(", ") || "none",
    });
  }

  async #ask(): Promise<readonly unknown[]> {
    const { settings, clock } = this.#parts;
    const abort = new AbortController();
    const cancel = clock.after(REQUEST_TIMEOUT_MS, () => {
      abort.abort(new Error(`no answer within ${REQUEST_TIMEOUT_MS} ms`));
    });
    const onStop = () => abort.abort(new Error("stopped"));
    this.#stopped.signal.addEventListener("abort", onStop, { once: true });
    try {
      const key = settings.gatewayApiKey ?? "";
      const response = await fetch(`${settings.gatewayUrl.replace(/\/+$/, "")}/v1/pools`, {
        headers: { accept: "application/json", ...(key === "" ? {} : { authorization: `Bearer ${key}` }) },
        // A redirect would carry the key to another place.
        redirect: "error",
        signal: abort.signal,
      });
      if (!response.ok) {
        await response.body?.cancel();
        throw new Error(`status ${response.status}`);
      }
      const pools = poolsOfAnswer(JSON.parse(await boundedText(response)));
      if (pools === undefined) throw new Error("the answer holds no list of pools");
      return pools;
    } finally {
      cancel();
      this.#stopped.signal.removeEventListener("abort", onStop);
    }
  }
}

/** Why asking failed. The reason of a failed fetch is its cause; a URL that cannot be read is part of the message as it came. */
function failureText(thrown: unknown, url: string): string {
  const cause = thrown instanceof Error && thrown.cause !== undefined ? `: ${errorText(thrown.cause)}` : "";
  return `${errorText(thrown)}${cause}`.replaceAll(url.replace(/\/+$/, ""), redactUrl(url));
}

/** A failure's text changes from one to the next; that is no change of the state. */
function kindOf(reason: string): string {
  return reason.split(":", 1)[0] ?? "";
}

async function boundedText(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "", bytes = 0;
  for await (const part of response.body ?? []) {
    bytes += part.length;
    if (bytes > LONGEST_ANSWER_BYTES) throw new Error(`the answer is longer than ${LONGEST_ANSWER_BYTES} bytes`);
    text += decoder.decode(part, { stream: true });
  }
  return text + decoder.decode();
}
