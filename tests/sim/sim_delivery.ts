/** A delivery whose transport fails now and then, in virtual time. */
import type { DeliverySource, SettlementLedger } from "../../src/dispatch/delivery.ts";
import type { Clock } from "../../src/runtime/clock.ts";
import { sleep } from "../../src/runtime/clock.ts";
import { RecordingDelivery } from "../dispatch/doubles.ts";
import type { SeededRandom } from "./seeded_random.ts";

/** What a transport is like. */
export interface Transport {
  readonly random: SeededRandom;
  readonly clock: Clock;
  /** Share of the publications, flushes and progress messages that fail. */
  readonly failureRate: number;
}

/** See the file's comment. Payloads that failed on the way are not among those published. */
export class SimDelivery extends RecordingDelivery {
  readonly #transport: Transport;

  constructor(ledger: SettlementLedger, source: DeliverySource, transport: Transport) {
    super(ledger, source);
    this.#transport = transport;
    this.maxPayload = source === "local" ? Number.MAX_SAFE_INTEGER : 2000;
  }

  override publish(replySubject: string, payload: Uint8Array): void | Promise<void> {
    const { random } = this.#transport;
    if (random.chance(0.7)) return this.#publishNow(replySubject, payload);
    const copy = payload.slice();
    return this.#delayed().then(() => this.#publishNow(replySubject, copy));
  }

  override async flush(): Promise<void> {
    if (this.#transport.random.chance(0.5)) await this.#delayed();
    this.#mayFail("flush");
    await super.flush();
  }

  override progress(): boolean {
    this.progressWorks = !this.#transport.random.chance(this.#transport.failureRate);
    return super.progress();
  }

  #publishNow(replySubject: string, payload: Uint8Array): void {
    this.#mayFail("publication");
    super.publish(replySubject, payload);
  }

  #delayed(): Promise<boolean> {
    return sleep(this.#transport.clock, this.#transport.random.integer(0, 300));
  }

  #mayFail(what: string): void {
    if (this.#transport.random.chance(this.#transport.failureRate)) throw new Error(`the ${what} failed`);
  }
}
