/** Faults of the broker and of the way to it: afterwards every item is answered, and few are run twice. */
import assert from "node:assert/strict";
import { eventually } from "../harness/process.ts";
import { TcpProxy } from "../harness/tcp_proxy.ts";
import { duplicateRuns, reportFault } from "./fault_report.ts";
import { answered, concluded, goesOn, impatientRig, lane } from "./fault_support.ts";
import { Pace } from "./paced.ts";

Deno.test("fault: the server is killed and started again on the same store", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({ script: pace.script() });
  await rig.gateway.send({ items: 2_000 });
  pace.run(20);
  await eventually("a quarter is answered", () => answered(rig) >= 500);
  // A result that is published before the gateway listens again is lost for everybody; the test is about ours.
  pace.halt();
  await eventually("all permits are out", () => lane(rig).held === rig.settings.pull.maxOutstanding);
  await rig.connection.flush();
  const held = lane(rig).held;
  rig.server = await rig.server.restart("SIGKILL");
  const back = performance.now();
  await rig.gateway.back();
  pace.run(20);
  await goesOn(rig);
  const recovered = performance.now() - back;
  await concluded(rig, held);
  reportFault("server killed and restarted on its store", rig, held, recovered);
});

Deno.test("fault: the server is killed while results are on their way", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({
    environment: { SIE_NATS_FETCH_BUDGET: "256", SIE_PULL_LOOP_MAX_OUTSTANDING: "256" },
    script: pace.script(),
  });
  await rig.gateway.send({ items: 2_000 });
  await eventually("all permits are out", () => pace.waiting === 256);
  await rig.server.process.stop("SIGKILL");
  // Nobody has noticed yet, or everybody has: results go into the broken connection, or wait for the next one.
  pace.release();
  await eventually("the lane has noticed", () => lane(rig).state === "stalled");
  rig.server = await rig.server.restart();
  const back = performance.now();
  pace.run(20);
  await goesOn(rig);
  const recovered = performance.now() - back;
  await eventually("the rest is run", () => rig.intake.executions().size === 2_000);
  await rig.settled();
  assert.ok(duplicateRuns(rig) <= 256, `${duplicateRuns(rig)} run twice`);
  assert.equal(rig.ledger.counts.refused, 0);
  reportFault("server killed with results on their way", rig, 256, recovered);
  // What the gateway missed while it was away itself is the at-most-once of core NATS.
  await rig.stop();
});

Deno.test("fault: the server stands still for more than three heartbeats", async () => {
  using pace = new Pace();
  await using rig = await impatientRig({ script: pace.script() });
  await rig.gateway.send({ items: 1_000 });
  pace.run(20);
  await eventually("a quarter is answered", () => answered(rig) >= 250);
  pace.halt();
  await eventually("all permits are out", () => lane(rig).held === rig.settings.pull.maxOutstanding);
  await rig.connection.flush();
  const held = lane(rig).held;
  rig.server.process.signal("SIGSTOP");
  await eventually("the lane has noticed", () => lane(rig).state === "stalled");
  assert.notEqual(lane(rig).detail, "");
  rig.server.process.signal("SIGCONT");
  const back = performance.now();
  await rig.gateway.back();
  pace.run(20);
  await goesOn(rig);
  const recovered = performance.now() - back;
  await concluded(rig, held);
  reportFault("server stopped for three heartbeats", rig, held, recovered);
});

Deno.test("fault: the network goes silent without a reset", async () => {
  using pace = new Pace();
  let proxy: TcpProxy | undefined;
  try {
    await using rig = await impatientRig({
      script: pace.script(),
      through: (server) => `nats://127.0.0.1:${(proxy = new TcpProxy(server.port)).port}`,
    });
    await rig.gateway.send({ items: 1_000 });
    pace.run(20);
    await eventually("a quarter is answered", () => answered(rig) >= 250);
    const held = rig.settings.pull.maxOutstanding;
    proxy?.silence();
    const silent = performance.now();
    await eventually("the lane has noticed", () => lane(rig).state === "stalled");
    await eventually("there is another connection", () => (proxy?.live ?? 0) > 0);
    await goesOn(rig);
    const recovered = performance.now() - silent;
    assert.ok(recovered < 15_000, `recovered after ${recovered} ms`);
    // Results that went into the silent connection are lost with their ACKs and run again: at most what was held when it broke,
    // and what was pulled and answered into it since.
    await rig.gateway.answered();
    await rig.settled();
    assert.equal(rig.ledger.counts.refused, 0);
    reportFault("network silent without a reset", rig, held, recovered);
    await rig.stop();
  } finally {
    await proxy?.[Symbol.asyncDispose]();
  }
});
