/** Sees every settlement message on the wire, as the broker does. */
import type { NatsConnection } from "@nats-io/nats-core";
import { parseAckSubject } from "../../src/consumer/ack_subject.ts";

/** One message to an ACK subject. */
export interface SeenSettlement {
  readonly subject: string;
  readonly body: string;
  readonly at: number;
}

/** Listens to `$JS.ACK.>`. */
export class AckWatcher {
  readonly seen: SeenSettlement[] = [];

  /** Begins to listen; resolves when the broker has the subscription. */
  static async start(nats: NatsConnection): Promise<AckWatcher> {
    const watcher = new AckWatcher();
    nats.subscribe("$JS.ACK.>", {
      callback: (error, message) => {
        if (error !== null) return;
        watcher.seen.push({ subject: message.subject, body: message.string(), at: performance.now() });
      },
    });
    await nats.flush();
    return watcher;
  }

  /** Bodies for one message of a stream, in order. */
  of(streamSequence: number): string[] {
    return this.seen.filter(({ subject }) => parseAckSubject(subject)?.streamSequence === streamSequence)
      .map(({ body }) => body);
  }

  /** Number of messages with this body. */
  count(body: string): number {
    return this.seen.filter((settlement) => settlement.body === body).length;
  }
}
