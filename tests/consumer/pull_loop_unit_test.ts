/** The pull loop on virtual time and a connection that is only played: what would take hours, or cannot be provoked. */
import assert from "node:assert/strict";
import { ManagedProcess } from "../harness/process.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { settle } from "../sim/virtual_clock.ts";
import { FACTS, Played } from "./played_loop.ts";

Deno.test("100,000 empty pulls: each is followed by the next, and nothing grows", async () => {
  const path = (name: string) => fromFileUrl(new URL(name, import.meta.url));
  await using counting = ManagedProcess.start({
    name: "empty pulls",
    command: [
      Deno.execPath(),
      "run",
      "--quiet",
      `--config=${path("../../deno.json")}`,
      "--allow-env",
      "--allow-sys",
      "--allow-read",
      "--v8-flags=--expose-gc",
      path("empty_pulls.ts"),
    ],
  });
  const status = await counting.end();
  assert.equal(status.code, 0, counting.output());
  const { pulls, asked, grownBytes } = JSON.parse(counting.lines.at(-1) ?? "") as Record<string, number>;
  assert.equal(pulls, 100_000);
  assert.equal(asked, 100_001);
  // Five bytes a pull would be more.
  assert.ok((grownBytes ?? Infinity) < 500_000, `the heap grew by ${grownBytes} bytes`);
});

Deno.test("silence: asked again, looked at, and then another connection, within seconds", async () => {
  const played = new Played();
  await played.clock.advance(3_500);
  assert.equal(played.asked.length, 1);
  await played.clock.advance(500);
  assert.equal(played.loop.report().state, "stalled");
  assert.equal(played.loop.report().repulls, 1);
  assert.equal(played.asked.length, 2);
  await played.clock.advance(4_000);
  assert.equal(played.ensures, 1);
  assert.equal(played.loop.report().rebuilds, 1);
  await played.clock.advance(4_000);
  assert.equal(played.reconnects, 1);
  played.disconnect();
  played.reconnect();
  assert.equal(played.loop.report().state, "pulling");
  assert.ok(played.clock.now() < 13_000);
  played.loop.close();
});

Deno.test("heartbeats keep a quiet lane from being healed", async () => {
  const played = new Played();
  for (let i = 0; i < 60; i++) {
    await played.clock.advance(1_250);
    played.status(100, "Idle Heartbeat");
    if (i % 4 === 3) played.status(408, "Request Timeout", played.last.batch);
  }
  const { state, repulls, rebuilds } = played.loop.report();
  assert.deepEqual({ state, repulls, rebuilds }, { state: "pulling", repulls: 0, rebuilds: 0 });
  played.loop.close();
});

Deno.test("work that waits at a broker that is alive and sends none: asked again, then looked at as a whole", async () => {
  const played = new Played();
  played.lookUp = () => Promise.resolve({ ...FACTS, pending: 7 });
  for (let i = 0; i < 40 && played.ensures === 0; i++) {
    await played.clock.advance(1_250);
    played.status(100, "Idle Heartbeat");
    if (i % 4 === 3) played.status(408, "Request Timeout", played.last.batch);
  }
  assert.equal(played.loop.report().repulls, 1);
  assert.equal(played.ensures, 1);
  played.work();
  await played.clock.advance(2);
  assert.equal(played.loop.report().state, "pulling");
  played.loop.close();
});

Deno.test("a deleted consumer is rebuilt until it stands, with every failure said", async () => {
  const played = new Played();
  let failures = 3;
  played.lookUp = () => Promise.resolve(undefined);
  played.ensure = () =>
    failures-- > 0 ? Promise.reject(new Error("the cluster has no leader")) : Promise.resolve(FACTS);
  played.status(409, "Consumer Deleted");
  await settle();
  assert.equal(played.loop.report().state, "rebuilding");
  assert.equal(played.loop.report().detail, "the cluster has no leader");
  assert.equal(played.loop.report().credit, 0);
  await played.clock.advance(5_000);
  assert.equal(played.loop.report().state, "pulling");
  assert.equal(played.ensures, 4);
  assert.equal(played.asked.length, 2);
  played.loop.close();
});

Deno.test("a limit of the consumer is learned: smaller batches, shorter waits", async () => {
  const played = new Played();
  assert.equal(played.last.batch, 64);
  played.status(409, "Exceeded MaxRequestBatch of 20");
  await settle();
  assert.equal(played.last.batch, 32);
  played.status(409, "Exceeded MaxRequestBatch of 20");
  await settle();
  assert.equal(played.last.batch, 16);
  played.status(409, "Exceeded MaxRequestExpires of 3s");
  await settle();
  assert.equal(played.loop.heartbeatMs, 625);
  played.loop.close();
});

Deno.test("a request turned down for the moment is repeated after a pause", async () => {
  const played = new Played();
  played.status(409, "Exceeded MaxWaiting");
  await played.clock.advance(400);
  assert.equal(played.asked.length, 1);
  await played.clock.advance(400);
  assert.equal(played.asked.length, 2);
  played.loop.close();
});

Deno.test("credit is asked for at half, within the permits, and once per burst", async () => {
  const played = new Played({ SIE_NATS_FETCH_BUDGET: "8", SIE_PULL_LOOP_MAX_OUTSTANDING: "10" });
  const free: (() => void)[] = [];
  played.intake.script = async ({ delivery }) => {
    await new Promise<void>((resolve) => free.push(resolve));
    delivery.ack("completed");
  };
  for (let i = 0; i < 3; i++) played.work();
  await settle();
  assert.deepEqual(played.asked.map(({ batch }) => batch), [8]);
  played.work();
  await settle();
  // Four held and four owed: two permits are left.
  assert.deepEqual(played.asked.map(({ batch }) => batch), [8, 2]);
  for (let i = 0; i < 6; i++) played.work();
  await played.clock.advance(2);
  assert.equal(played.loop.report().credit, 0);
  assert.equal(played.asked.length, 2);
  free.splice(0, 5).forEach((resolve) => resolve());
  await settle();
  assert.deepEqual(played.asked.map(({ batch }) => batch), [8, 2, 5]);
  free.splice(0).forEach((resolve) => resolve());
  await settle();
  played.loop.close();
});

Deno.test("an intake that fails against its promise costs no permits: what it had is left to redelivery", async () => {
  const played = new Played();
  played.intake.accept = (arrivals) => {
    // One of them had been settled before.
    arrivals[0]?.delivery.ack("completed");
    return Promise.reject(new Error("a bug"));
  };
  for (let i = 0; i < 3; i++) played.work();
  await played.clock.advance(10);
  const { held, kept } = played.loop.report();
  assert.deepEqual({ held, kept }, { held: 0, kept: 0 });
  const { acked, left, refused } = played.loop.ledger.counts;
  assert.deepEqual({ acked, left, refused }, { acked: 1, left: 2, refused: 0 });
  played.loop.close();
});
