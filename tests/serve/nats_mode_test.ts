/** What `serve` does about a broker connection that ends. */
import assert from "node:assert/strict";
import { endOf } from "../../src/serve/nats_mode.ts";
import { Rig } from "../consumer/support.ts";

Deno.test("a connection that is closed for good ends the mode: a worker that can never pull again must not look alive", async () => {
  await using rig = await Rig.start();
  const end = endOf(rig.connection);
  rig.server = await rig.server.restart("SIGKILL");
  await rig.connection.untilConnected(60_000);
  await rig.connection.nats.close();
  await assert.rejects(end, /the connection to the broker is closed for good/);
});
