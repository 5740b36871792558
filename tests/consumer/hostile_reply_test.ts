/**
 * Reply subjects come from outside and end up in lines of the broker's protocol that this program writes itself. Whatever one says,
 * the broker gets no other command, keeps the connection, and hears nothing but on that subject.
 */
import assert from "node:assert/strict";
import { eventually } from "../harness/process.ts";
import { workItemBytes } from "../harness/work_items.ts";
import { Rig } from "./support.ts";

const SUBJECT = "sie.work.default.l4.default.test__model";
const INJECTED = "sie.work.default.l4.default.injected";

/** Refused at arrival: nothing runs, nothing is published. */
const REFUSED = [
  `_INBOX.a\r\nPUB ${INJECTED} 1\r\nx\r\n`,
  `_INBOX.a 1\r\nx\r\nPUB ${INJECTED}`,
  `_INBOX.a\nPUB ${INJECTED} 0`,
  `_INBOX.a\rPUB ${INJECTED} 0`,
  `_INBOX.a ${INJECTED}`,
  "_INBOX.a\tb",
  "_INBOX.a\u0000b",
  "_INBOX.a\u007fb",
  "_INBOX.>",
  "_INBOX.*",
  "_INBOX.gw-1.*",
  "_INBOX.",
  "_INBOX..a",
  "_INBOX.a.",
  `_INBOX.${"a".repeat(1_018)}`,
  `_INBOX.${"a".repeat(5_000)}`,
  `_INBOX.${"é".repeat(510)}`,
  `_INBOX.${"a".repeat(60_000)}`,
  "$JS.ACK.WORK_POOL_default.default_l4_default.1.1.1.1.0",
];

/** Odd, and harmless: run and answered there. */
const ANSWERED = [
  "_INBOX.é",
  "_INBOX.a\u2028b",
  "_INBOX.a>b",
  "_INBOX.a*",
  `_INBOX.${"a".repeat(1_017)}`,
  "_INBOX.PUB",
  "_INBOX.$JS.API",
];

Deno.test("no reply subject says anything to the broker but where a result goes", async () => {
  await using rig = await Rig.start({ environment: { SIE_NATS_FETCH_BUDGET: "4" } });
  const heard: string[] = [];
  let broken = 0;
  rig.admin.subscribe("_INBOX.>", { callback: (_, message) => void heard.push(message.subject) });
  rig.admin.subscribe(INJECTED, { callback: (_, message) => void heard.push(message.subject) });
  rig.connection.listen({ disconnected: () => broken++ });
  await rig.admin.flush();
  const send = (reply: string, index: number) =>
    rig.gateway.sendRaw(SUBJECT, workItemBytes({ request_id: `r-${index}`, reply_subject: reply }));
  for (const [index, reply] of REFUSED.entries()) await send(reply, index);
  await rig.settled();
  assert.deepEqual(rig.intake.arrivals.map(({ work }) => work.replySubject.slice(0, 40)), []);
  for (const [index, reply] of ANSWERED.entries()) await send(reply, index);
  await rig.settled();
  await rig.connection.flush();
  await rig.admin.flush();
  // Publications of the gateway itself are confirmed in an inbox of its own, which has another form.
  const ours = heard.filter((subject) => ANSWERED.includes(subject) || !/^_INBOX\.[A-Za-z0-9]{22}\.\w+$/.test(subject));
  assert.deepEqual(ours.sort(), [...ANSWERED].sort());
  assert.equal(broken, 0, "the broker broke the connection");
  assert.equal(rig.metrics.counts["ack pool success completed"], REFUSED.length + ANSWERED.length);
  await eventually("all is settled", () => rig.ledger.outstanding === 0);
  await rig.stop();
});
