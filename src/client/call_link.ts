/** Calls with one answer each, over one connection: their answers come in any order and are told apart by their ids. */
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { IngestBody, OperationId } from "../wire/ingest/request.ts";
import type { ResponseBody } from "../wire/ingest/response.ts";
import { LocalIngestError } from "./errors.ts";
import type { Link } from "./link.ts";

interface PendingCall {
  resolve(body: ResponseBody): void;
  reject(error: LocalIngestError): void;
}

/** Shares a connection between calls. Once it has failed every call fails; its owner makes a new one. */
export class CallLink {
  readonly #link: Link;
  readonly #clock: Clock;
  readonly #pending = new Map<OperationId, PendingCall>();
  /** Calls that were given up; their answers may still come. */
  readonly #givenUp = new Set<OperationId>();
  #nextId = 1n;

  constructor(link: Link, clock: Clock) {
    this.#link = link;
    this.#clock = clock;
    this.#read();
  }

  /** True when no call can be made any more. */
  get closed(): boolean {
    return this.#link.closed;
  }

  /**
   * Makes one call.
   *
   * @param limitMs longest wait for the answer, in milliseconds
   * @throws LocalIngestError (rejection)
   */
  async call(
    op: string,
    body: IngestBody | undefined,
    limitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<ResponseBody> {
    if (signal?.aborted) throw abortError(signal);
    const id = this.#nextId++;
    const { promise, resolve, reject } = Promise.withResolvers<ResponseBody>();
    this.#pending.set(id, { resolve, reject });
    const giveUp = (error: LocalIngestError) => {
      if (!this.#pending.delete(id)) return;
      this.#givenUp.add(id);
      reject(error);
    };
    const cancelTimer: CancelTimer = this.#clock.after(limitMs, () => {
      giveUp(new LocalIngestError("timeout", `no answer to ${op} within ${limitMs} ms`));
    });
    const onAbort = () => signal !== undefined && giveUp(abortError(signal));
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      this.#send(id, op, body);
      return await promise;
    } finally {
      cancelTimer();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Closes the connection; calls that wait fail. */
  close(): void {
    this.#link.close();
    this.#failAll(new LocalIngestError("closed", "the client was closed"));
  }

  async #send(id: OperationId, op: string, body: IngestBody | undefined): Promise<void> {
    try {
      await this.#link.request(id, op, body);
    } catch (thrown) {
      const error = thrown as LocalIngestError;
      // One that was never sent harms no other.
      if (error.fault === "too_large") this.#take(id)?.reject(error);
      else this.#failAll(error);
    }
  }

  /** Reads also while no call waits, so that a lost connection is known before the next call. */
  async #read(): Promise<void> {
    try {
      for (;;) {
        const response = await this.#link.response(undefined);
        if (this.#givenUp.delete(response.id)) continue;
        const call = this.#take(response.id);
        if (call === undefined) throw new LocalIngestError("protocol", `an answer with the unknown id ${response.id}`);
        if (response.ok) call.resolve(response.body);
        else call.reject(new LocalIngestError("refused", response.error));
      }
    } catch (thrown) {
      this.#link.close();
      this.#failAll(thrown as LocalIngestError);
    }
  }

  #take(id: OperationId): PendingCall | undefined {
    const call = this.#pending.get(id);
    this.#pending.delete(id);
    return call;
  }

  #failAll(error: LocalIngestError): void {
    const calls = [...this.#pending.values()];
    this.#pending.clear();
    for (const call of calls) call.reject(error);
  }
}

function abortError(signal: AbortSignal): LocalIngestError {
  return new LocalIngestError("aborted", `the caller gave up: ${errorText(signal.reason)}`);
}
