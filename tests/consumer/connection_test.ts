/** The connection by itself: what hangs has a limit, what is refused comes back, and nothing grows or floods. */
import assert from "node:assert/strict";
import { eventually } from "../harness/process.ts";
import { TcpProxy } from "../harness/tcp_proxy.ts";
import { Rig } from "./support.ts";

Deno.test("a flush that will never be answered ends with the connection", async () => {
  let proxy: TcpProxy | undefined;
  try {
    await using rig = await Rig.start({
      through: (server) => `nats://127.0.0.1:${(proxy = new TcpProxy(server.port)).port}`,
    });
    proxy?.silence();
    const flushed = assert.rejects(rig.connection.flush(), /connection to the broker/);
    await rig.connection.nats.close();
    await flushed;
    assert.equal(rig.connection.state, "closed");
  } finally {
    await proxy?.[Symbol.asyncDispose]();
  }
});

Deno.test("messages that are refused at arrival are counted as received, like all others", async () => {
  await using rig = await Rig.start({ environment: { SIE_NAK_DELAY_S: "60" } });
  await rig.gateway.sendRaw("sie.work.default.l4.default.test__model", Uint8Array.of(0xc1));
  await eventually("it is sent back", () => rig.metrics.counts["nak pool success retry"] === 1);
  assert.equal(rig.metrics.counts["receive pool first"], 1);
  await rig.stop();
});
