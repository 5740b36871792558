/** A NATS client for tests, over the transport that the product uses: the client has one transport for the whole process. */
import type { ConnectionOptions, NatsConnection } from "@nats-io/nats-core";
import { NatsConnectionImpl, setTransportFactory } from "@nats-io/nats-core/internal";
import { NatsTransport } from "../../src/consumer/nats_transport.ts";

/** Connects in the clear. Comes back after every loss. */
export function connectNats(options: ConnectionOptions): Promise<NatsConnection> {
  setTransportFactory({ factory: () => new NatsTransport({ ca: undefined, client: undefined }) });
  return NatsConnectionImpl.connect({
    resolve: false,
    ignoreClusterUpdates: true,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    reconnectJitter: 0,
    ...options,
  });
}
