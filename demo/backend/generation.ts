/** Generation: one attempt's events (spec/ipc.md 5), its chunks coalesced, and cancelling. */
import { type Clock, sleep } from "../../src/runtime/clock.ts";
import { errorText } from "../../src/runtime/errors.ts";
import { GenerateEventFrame } from "../../src/wire/ipc/schema.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { characters } from "./extract.ts";
import { type MarkovChain, seedOf } from "./markov.ts";
import { MODELS, type ModelStore } from "./models.ts";
import { decodePlain, encodePlain, filled, Float, mapOf, type Plain, type Read } from "./plain.ts";
import { words } from "./text.ts";

/** Sends one event; resolves when it has been written, rejects when the client is gone. */
export type SendEvent = (event: Plain) => Promise<void>;

/** What generation runs with. */
export interface GenerationContext {
  readonly models: ModelStore;
  readonly clock: Clock;
  readonly configHash: string;
  /** Pause between two words, milliseconds. */
  readonly wordMs: number;
  /** Longest time without an event, milliseconds. */
  readonly inProgressMs: number;
  readonly attempts: Attempts;
  /** 32 hexadecimal digits, new each time. */
  readonly newAttemptId: () => string;
}

/** A text is sent on when it has this many characters, or when it has waited this long. */
const COALESCED_CHARACTERS = 32;
const COALESCED_MS = 50;
const MOST_NEW_TOKENS = 4096;
const TOMBSTONE_MS = 120_000;
const MOST_TOMBSTONES = 1024;
const RETRY_MS = 5000;

/** The live attempts by request id, and the cancels that came before their request (3.8). */
export class Attempts {
  readonly #clock: Clock;
  readonly #live = new Map<string, Set<AbortController>>();
  readonly #tombstones = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Registers an attempt; undefined when its request was cancelled before. */
  begin(requestId: string): AbortController | undefined {
    const buried = this.#tombstones.get(requestId);
    if (buried !== undefined && this.#clock.now() - buried < TOMBSTONE_MS) return undefined;
    const controller = new AbortController();
    const live = this.#live.get(requestId) ?? new Set();
    this.#live.set(requestId, live.add(controller));
    return controller;
  }

  end(requestId: string, controller: AbortController): void {
    const live = this.#live.get(requestId);
    live?.delete(controller);
    if (live?.size === 0) this.#live.delete(requestId);
  }

  /** Stops all attempts of a request. @returns whether there was one; if not, the next one will not run */
  cancel(requestId: string): boolean {
    if (requestId === "") return false;
    const live = this.#live.get(requestId);
    if (live !== undefined) {
      for (const controller of live) controller.abort();
      return true;
    }
    this.#tombstones.delete(requestId);
    this.#tombstones.set(requestId, this.#clock.now());
    for (const oldest of this.#tombstones.keys()) {
      if (this.#tombstones.size <= MOST_TOMBSTONES) break;
      this.#tombstones.delete(oldest);
    }
    return false;
  }

  /** Stops everything. */
  cancelAll(): void {
    for (const live of this.#live.values()) for (const controller of live) controller.abort();
  }
}

/** The parameters that this generator looks at. */
interface Parameters {
  readonly prompt: string;
  readonly maxNewTokens: number;
  readonly temperature: number;
  readonly seed: number;
  readonly stop: readonly string[];
}

/** The stream of one attempt. */
class Attempt {
  readonly #context: GenerationContext;
  readonly #send: SendEvent;
  readonly #replySubject: string;
  readonly #requestId: string;
  readonly #attemptId: string;
  readonly #start: number;
  #sequence = 0;
  #firstTextMs: number | undefined;
  #lastEvent: number;

  constructor(context: GenerationContext, send: SendEvent, requestId: string, replySubject: string) {
    this.#context = context;
    this.#send = send;
    this.#requestId = requestId;
    this.#replySubject = replySubject;
    this.#attemptId = context.newAttemptId();
    this.#start = this.#lastEvent = context.clock.now();
  }

  async event(kind: string, fields: { readonly [key: string]: Plain } = {}): Promise<void> {
    this.#lastEvent = this.#context.clock.now();
    await this.#send(filled(GenerateEventFrame, { kind, reply_subject: "", payload: new Uint8Array(0), ...fields }));
  }

  /** Says that the work is alive when nothing has been said for a while. */
  async heartbeat(): Promise<void> {
    if (this.#context.clock.now() - this.#lastEvent >= this.#context.inProgressMs) await this.event("in_progress");
  }

  async publish(envelope: { readonly [key: string]: Plain }): Promise<void> {
    await this.event("publish", { reply_subject: this.#replySubject, payload: encodePlain(envelope) });
  }

  /** Publishes the next chunk; the keys that are not set are absent. */
  async chunk(text: string, last: { readonly [key: string]: Plain } = {}): Promise<void> {
    const first = text !== "" && this.#firstTextMs === undefined;
    if (first) this.#firstTextMs = this.#context.clock.now() - this.#start;
    const done = Object.keys(last).length > 0;
    await this.publish({
      kind: "chunk",
      request_id: this.#requestId,
      attempt_id: this.#attemptId,
      seq: this.#sequence++,
      text_delta: text,
      done,
      ...(first ? { is_first: true } : {}),
      ...last,
      ...(done && this.#firstTextMs !== undefined ? { ttft_ms: new Float(this.#firstTextMs) } : {}),
    });
  }

  async nak(reason: string): Promise<void> {
    await this.publish({ kind: "nak", request_id: this.#requestId, attempt_id: this.#attemptId, reason });
  }

  /** A terminal chunk that carries an error. */
  async fail(code: string, message: string): Promise<void> {
    const finish = code === "cancelled" ? "cancelled" : "error";
    await this.chunk("", { finish_reason: finish, error: { code, message } });
  }
}

/**
 * Runs `ProcessGenerate`: sends the events of the stream, `done` included.
 *
 * @throws Error when the work item is no map (an error answer without events), or when the client is gone
 */
export async function generate(
  context: GenerationContext,
  body: { [key: string]: Read },
  send: SendEvent,
): Promise<void> {
  const work = workItemOf(body.work_item_msgpack);
  const model = String(body.model_id);
  const requestId = typeof work.request_id === "string" ? work.request_id : "";
  const replySubject = typeof work.reply_subject === "string" ? work.reply_subject : "";
  const attempt = new Attempt(context, send, requestId, replySubject);
  const hash = work.bundle_config_hash;
  if (typeof hash === "string" && hash !== "" && (hash !== context.configHash || work.model_id !== model)) {
    await attempt.event("nak", { delay_ms: RETRY_MS });
    return await attempt.event("done");
  }
  await attempt.event("in_progress");
  if (replySubject !== "") await runAttempt(context, attempt, model, requestId, work);
  await attempt.event("ack");
  await attempt.event("done");
}

function workItemOf(bytes: Read | undefined): { [key: string]: Read } {
  const packed = typeof bytes === "string" ? Uint8Array.from(atob(bytes), (unit) => unit.charCodeAt(0)) : bytes;
  if (!(packed instanceof Uint8Array)) throw new Error("IpcServerError: generation work item must be a mapping");
  let isMap: boolean;
  try {
    const reader = new MsgpackReader(packed);
    isMap = reader.kind() === "map";
    reader.skip();
    reader.expectEnd();
  } catch (thrown) {
    throw new Error(`IpcServerError: malformed generation work item: ${errorText(thrown)}`);
  }
  if (!isMap) throw new Error("IpcServerError: generation work item must be a mapping");
  return mapOf(decodePlain(packed));
}

/** Everything between the first event and the settlement. */
async function runAttempt(
  context: GenerationContext,
  attempt: Attempt,
  model: string,
  requestId: string,
  work: { [key: string]: Read },
): Promise<void> {
  if (!MODELS.has(model)) return await attempt.nak("model_not_loaded");
  const controller = context.attempts.begin(requestId);
  if (controller === undefined) return await attempt.fail("transport_failure", "cancelled before it began");
  try {
    await context.models.load(model);
    const tables = context.models.tablesFor(model);
    if (!MODELS.get(model)?.includes("generate")) {
      return await attempt.fail("invalid_request", `model '${model}' does not generate`);
    }
    const parameters = parametersOf(work);
    if (typeof parameters === "string") return await attempt.fail("invalid_request", parameters);
    if (tables !== undefined) await stream(context, attempt, tables.chain, parameters, controller.signal);
  } finally {
    context.attempts.end(requestId, controller);
  }
}

/** The parameters, or what is wrong with them. */
function parametersOf(work: { [key: string]: Read }): Parameters | string {
  const given = mapOf(work.generate ?? work.options);
  const prompt = promptOf(given);
  if (prompt === undefined) return "exactly one of 'prompt' and 'messages' is needed";
  const { max_new_tokens: most, temperature = 1, seed = null, stop = null } = given;
  if (typeof most !== "number" || !Number.isInteger(most) || most <= 0) {
    return "'max_new_tokens' must be a positive integer";
  }
  if (typeof temperature !== "number" || temperature < 0) return "'temperature' must be a number of at least 0";
  if (stop !== null && !(Array.isArray(stop) && stop.every((text) => typeof text === "string"))) {
    return "'stop' must be a list of strings";
  }
  return {
    prompt,
    maxNewTokens: Math.min(most, MOST_NEW_TOKENS),
    temperature,
    seed: typeof seed === "number" ? seed : seedOf(prompt),
    stop: (stop ?? []) as string[],
  };
}

function promptOf(given: { [key: string]: Read }): string | undefined {
  const { prompt, messages } = given;
  const hasPrompt = typeof prompt === "string" && prompt !== "";
  const hasMessages = Array.isArray(messages) && messages.length > 0;
  if (hasPrompt === hasMessages) return undefined;
  if (typeof prompt === "string" && hasPrompt) return prompt;
  const last = Array.isArray(messages) ? mapOf(messages.at(-1)).content : undefined;
  return typeof last === "string" ? last : "";
}

async function stream(
  context: GenerationContext,
  attempt: Attempt,
  chain: MarkovChain,
  parameters: Parameters,
  signal: AbortSignal,
): Promise<void> {
  const { clock, wordMs } = context;
  let pending = "", text = "", made = 0;
  let pendingSince = clock.now();
  let finish = "length";
  const flush = async () => {
    if (pending !== "") await attempt.chunk(pending);
    pending = "";
    pendingSince = clock.now();
  };
  for (const word of chain.generate(parameters.prompt, parameters)) {
    if (wordMs > 0) await sleep(clock, wordMs, signal);
    if (signal.aborted) break;
    const piece = text === "" ? word : ` ${word}`;
    if (parameters.stop.some((stop) => (text + piece).includes(stop))) {
      finish = "stop";
      break;
    }
    text += piece;
    pending += piece;
    made++;
    const isFirst = made === 1;
    if (isFirst || characters(pending) >= COALESCED_CHARACTERS || clock.now() - pendingSince >= COALESCED_MS) {
      await flush();
    }
    await attempt.heartbeat();
    if (made === parameters.maxNewTokens) break;
  }
  await flush();
  if (signal.aborted) return await attempt.fail("cancelled", "the request was cancelled");
  const prompted = words(parameters.prompt).length;
  const usage = { prompt_tokens: prompted, completion_tokens: made, total_tokens: prompted + made };
  await attempt.chunk("", { finish_reason: finish, usage });
}
