/** The JetStream generation lane with a scripted backend: one situation, and what came of it. */
import { Settler } from "../../src/dispatch/settle.ts";
import { type SettlementLedger } from "../../src/dispatch/delivery.ts";
import { SettlementLedger as Ledger } from "../../src/dispatch/delivery.ts";
import type { PayloadResolver } from "../../src/dispatch/views.ts";
import { NatsGeneration } from "../../src/generate/nats_generation.ts";
import type { GenerateEvent } from "../../src/ipc/backend.ts";
import { AppliedConfig } from "../../src/live_config/applied_config.ts";
import { ExecutionLock } from "../../src/live_config/execution_lock.ts";
import { ResultPublisher } from "../../src/publish/result_sender.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { RecordingDelivery, ScriptedBackend } from "../dispatch/doubles.ts";
import { type Value, workItemBytes } from "../harness/work_items.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

/** Choices that differ from the defaults. */
export interface GenerationRigOptions {
  readonly hash?: string;
  readonly payloads?: PayloadResolver;
  readonly referenceCompatible?: boolean;
}

/** Everything a test looks at or moves. */
export class GenerationRig {
  readonly clock = new VirtualClock();
  readonly backend = new ScriptedBackend();
  readonly ledger: SettlementLedger = new Ledger();
  readonly config: AppliedConfig;
  readonly barrier = new ExecutionLock();
  readonly lane: NatsGeneration;

  constructor(options: GenerationRigOptions = {}) {
    this.config = new AppliedConfig(options.hash ?? "");
    this.lane = new NatsGeneration({
      backend: this.backend,
      settler: new Settler(this.clock, 5000, undefined),
      config: this.config,
      barrier: this.barrier,
      clock: this.clock,
      payloads: options.payloads,
      sender: new ResultPublisher({ workerId: "worker-0", clock: this.clock }),
      referenceCompatible: options.referenceCompatible ?? false,
    });
  }

  /** Starts one item; `fields` are those of the work item. */
  start(
    fields: { readonly [key: string]: Value } = {},
    before: (delivery: RecordingDelivery) => void = () => {},
  ): RecordingDelivery {
    const delivery = new RecordingDelivery(this.ledger);
    before(delivery);
    const bytes = workItemBytes({
      operation: "generate",
      item: null,
      generate: { prompt: "Once", max_new_tokens: 4 },
      ...fields,
    });
    this.lane.start({ delivery, work: decodeWorkItem(bytes) });
    return delivery;
  }

  /** Runs one item to its end. */
  async run(
    fields: { readonly [key: string]: Value } = {},
    before: (delivery: RecordingDelivery) => void = () => {},
  ): Promise<RecordingDelivery> {
    const delivery = this.start(fields, before);
    await this.lane.idle();
    return delivery;
  }
}

/** A stream that yields these events, then fails with `failure` if there is one. */
export function events(list: readonly GenerateEvent[], failure?: Error): ScriptedBackend["stream"] {
  return async function* () {
    yield* list;
    if (failure !== undefined) throw failure;
    await Promise.resolve();
  };
}
