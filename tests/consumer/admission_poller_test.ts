/** Asking the gateway for its pools, and what the gates make of the answers (spec/queue.md 8). */
import assert from "node:assert/strict";
import { AdmissionPoller } from "../../src/consumer/admission_poller.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { FakePools } from "../fake_gateway/pools.ts";
import { CapturedLog } from "../harness/captured_log.ts";
import { eventually, freePort } from "../harness/process.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";
import { Rig, settingsFor } from "./support.ts";

function poller(url: string, environment: Record<string, string> = {}, clock = new VirtualClock()) {
  const settings = settingsFor({ SIE_GATEWAY_URL: url, SIE_POOL: "eval", ...environment });
  const made = AdmissionPoller.of(settings.admission, { lane: settings.lane, clock });
  return { clock, poller: made ?? assert.fail("no poller") };
}

Deno.test("without a gateway, or switched off, everything is admitted", () => {
  for (
    const environment of [
      {},
      { SIE_GATEWAY_URL: "  " },
      { SIE_GATEWAY_URL: "http://gw", SIE_POOL_ADMISSION_ENABLED: " Off " },
      { SIE_GATEWAY_URL: "http://gw", SIE_POOL_ADMISSION_ENABLED: "0" },
    ]
  ) {
    const settings = settingsFor(environment);
    assert.equal(AdmissionPoller.of(settings.admission, { lane: settings.lane, clock: systemClock }), undefined);
  }
});

Deno.test("before the first answer only the pool default is open", () => {
  assert.equal(poller("http://gw").poller.admitsPull(), false);
  assert.equal(poller("http://gw", { SIE_POOL: "Default" }).poller.admitsPull(), true);
});

Deno.test("the state follows the answers; the key is sent", async () => {
  await using gateway = new FakePools();
  const { poller: ours } = poller(`${gateway.url}///`, { SIE_GATEWAY_API_KEY: "k-1" });
  await ours.poll();
  assert.equal(gateway.authorization, "Bearer k-1");
  assert.deepEqual([ours.state.admitted, ours.state.reason], [false, "pool_missing"]);
  gateway.pools = [
    { name: "EVAL", gpuCaps: { L4: 1 }, workers: ["worker-1"] },
    { name: "tenant-a", queuePool: "eval", workers: ["worker-1"] },
    { name: "tenant-b", queuePool: "eval", workers: ["worker-2"] },
  ];
  await ours.poll();
  assert.deepEqual([ours.state.admitted, ours.state.reason], [true, "assigned"]);
  assert.deepEqual([...ours.state.logical], ["eval", "tenant-a"]);
  assert.equal(ours.admits(" Tenant-A "), true);
  assert.equal(ours.admits("tenant-b"), false);
  gateway.pools = [{ name: "eval", gpuCaps: { l4: 1 }, workers: [] }];
  await ours.poll();
  assert.equal(ours.admitsPull(), false);
  assert.equal(gateway.requests, 3);
});

Deno.test("a failure says why, and shows no password of the URL, not even of one that cannot be read", async () => {
  const refused = poller(`http://user:s3cret@127.0.0.1:${freePort()}`).poller;
  await refused.poll();
  assert.match(refused.state.reason, /^status_error:.*refused/i);
  assert.doesNotMatch(refused.state.reason, /s3cret/);
  const unreadable = poller("http://user:s3cret@gateway:99999").poller;
  await unreadable.poll();
  assert.match(unreadable.state.reason, /^status_error:.*invalid url.*<redacted>@gateway:99999/i);
  assert.doesNotMatch(unreadable.state.reason, /s3cret/);
});

Deno.test("a key that cannot be sent is not told either", async () => {
  using log = new CapturedLog();
  const { poller: ours } = poller(`http://127.0.0.1:${freePort()}`, { SIE_GATEWAY_API_KEY: "key-one\nkey-two" });
  await ours.poll();
  assert.match(ours.state.reason, /^status_error:/);
  for (const text of [ours.state.reason, ...log.lines]) assert.doesNotMatch(text, /key-one|key-two/);
});

Deno.test("a gateway that stays away is said at first and now and then, not at each attempt", async () => {
  using log = new CapturedLog();
  const { poller: ours, clock } = poller(`http://127.0.0.1:${freePort()}`);
  for (let i = 0; i < 29; i++) {
    await ours.poll();
    await clock.advance(5_000);
  }
  assert.equal(log.matching(/cannot be asked for its pools/).length, 2);
});

Deno.test("no key, no header", async () => {
  await using gateway = new FakePools();
  await poller(gateway.url).poller.poll();
  assert.equal(gateway.authorization, undefined);
});

Deno.test("after an error the last answer holds for its time, then only default is open", async () => {
  await using gateway = new FakePools();
  gateway.pools = [{ name: "eval" }, { name: "tenant-a", queuePool: "eval", workers: ["worker-1"] }];
  const { poller: ours, clock } = poller(gateway.url);
  await ours.poll();
  assert.equal(ours.state.reason, "uncapped");
  for (
    const failure of [
      { status: 503, text: "no" },
      { status: 200, text: "not JSON" },
      { status: 200, text: '{"pools": {}}' },
      { status: 302, text: "elsewhere" },
    ]
  ) {
    gateway.failure = failure;
    await ours.poll();
    assert.equal(ours.state.reason, "uncapped", failure.text);
  }
  await clock.advance(30_001);
  await ours.poll();
  assert.equal(ours.admitsPull(), false);
  assert.match(ours.state.reason, /^status_error:/);
  gateway.failure = undefined;
  await ours.poll();
  assert.equal(ours.admitsPull(), true);
});

Deno.test("an answer of a bare list is taken too, and a stale time of zero forgets at once", async () => {
  await using gateway = new FakePools();
  gateway.failure = { status: 200, text: '[{"spec":{"name":"eval"}}]' };
  const { poller: ours, clock } = poller(gateway.url, { SIE_POOL_ADMISSION_STALE_AFTER_S: "0" });
  await ours.poll();
  assert.equal(ours.state.admitted, true);
  await clock.advance(1);
  gateway.failure = { status: 500, text: "" };
  await ours.poll();
  assert.equal(ours.state.admitted, false);
});

Deno.test("a gateway that is not there is an error like any other, and asking ends when it is told to", async () => {
  const { poller: ours } = poller(`http://127.0.0.1:${freePort()}`, { SIE_POOL: "default" }, undefined);
  await ours.poll();
  assert.match(ours.state.reason, /^status_error:/);
  assert.equal(ours.admitsPull(), true);
  ours.start();
  await ours.stop();
});

Deno.test("a closed gate pauses both lanes; an open one lets them go on; items of foreign pools wait for theirs", async () => {
  await using gateway = new FakePools();
  gateway.pools = [{ name: "default", gpuCaps: { l4: 0 } }];
  const settings = settingsFor({
    SIE_GATEWAY_URL: gateway.url,
    SIE_POOL_ADMISSION_CHECK_INTERVAL_S: "1",
    SIE_POOL_ADMISSION_PAUSE_S: "0.1",
  });
  const admission = AdmissionPoller.of(settings.admission, { lane: settings.lane, clock: systemClock }) ??
    assert.fail();
  await admission.poll();
  await using rig = await Rig.start({ admission });
  const states = () => rig.consumer.report().lanes.map(({ state }) => state);
  await eventually("both lanes are paused", () => states().every((state) => state === "paused"));
  assert.match(rig.consumer.report().lanes[0]?.detail ?? "", /pool admission: cap_exhausted/);
  const request = await rig.gateway.send({ items: 10 });
  assert.equal((await rig.consumerInfo()).num_pending, 10, "something was pulled through a closed gate");
  gateway.pools = [{ name: "default", gpuCaps: { l4: 1 }, workers: ["worker-1"] }];
  await admission.poll();
  await rig.gateway.answered();
  assert.ok(request.complete);
  assert.deepEqual(rig.consumer.report().admission, { admitted: true, logical: ["default"], reason: "assigned" });
  await rig.settled();
  await rig.stop();
});
