/**
 * A stream that was made anew counts its messages from one again. What was pulled from the old one must not be settled in the new
 * one: the broker would take the ACK of an old message for that of a new one with the same number, and nobody would ever run it.
 */
import assert from "node:assert/strict";
import { eventually } from "../harness/process.ts";
import { reportFault } from "./fault_report.ts";
import { STREAM } from "./fault_support.ts";
import { Pace } from "./paced.ts";
import { Rig } from "./support.ts";

Deno.test("fault: the broker loses its memory; what was pulled before settles nothing that came after", async () => {
  for (const outstanding of ["8", "64"]) {
    using pace = new Pace();
    await using rig = await Rig.start({
      environment: { SIE_STREAM_STORAGE: "memory", SIE_PULL_LOOP_MAX_OUTSTANDING: outstanding },
      script: pace.script(),
    });
    const before = await rig.gateway.send({ items: 8 });
    await eventually("all are held", () => pace.waiting === 8);
    rig.server = await rig.server.restart("SIGKILL");
    const back = performance.now();
    await rig.gateway.back();
    await eventually("the stream is there again", async () => (await rig.manager.streams.info(STREAM)).config.name);
    const after = await rig.gateway.send({ items: 8 });
    pace.release(8);
    await eventually("the old items are answered", () => before.complete);
    await rig.connection.flush();
    const { messages } = (await rig.manager.streams.info(STREAM)).state;
    assert.equal(messages, 8, `${8 - messages} new items were settled by those of the lost stream`);
    pace.run(8);
    await eventually("the new items are answered", () => after.complete);
    reportFault("broker restarted without its store", rig, 8, performance.now() - back);
    await rig.settled();
    await rig.stop();
  }
});
