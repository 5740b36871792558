/** The collector beyond the vectors: refusals, sending to the pool again, and what comes after the end. */
import assert from "node:assert/strict";
import { StreamCollector } from "../../src/gateway/stream_collector.ts";

function chunk(attemptId: string, seq: number, done = false) {
  return { attemptId, seq, done };
}

Deno.test("after the end nothing is taken, whichever way it ended", () => {
  const whole = new StreamCollector();
  assert.deepEqual([whole.takeChunk(chunk("a", 0)), whole.takeChunk(chunk("a", 1, true))], ["delta", "terminal"]);
  assert.ok(whole.ended);
  assert.equal(whole.takeChunk(chunk("a", 2)), "late");
  assert.equal(whole.takeChunk(chunk("a", 1, true)), "late");
  assert.equal(whole.takeNak("a"), "late");
  assert.equal(whole.takeChunk(chunk("b", 0)), "stale", "a copy that another worker ran");
  assert.equal(whole.republish(), false);

  const torn = new StreamCollector();
  assert.deepEqual([torn.takeChunk(chunk("a", 0)), torn.takeChunk(chunk("a", 2))], ["delta", "seq_gap"]);
  assert.ok(torn.ended);
  assert.equal(torn.takeChunk(chunk("a", 1)), "late");
});

Deno.test("a refusal sends the work to the pool once; the refused attempt is not heard again", () => {
  const collector = new StreamCollector();
  assert.equal(collector.takeNak("a"), "republish");
  assert.ok(collector.republished);
  assert.equal(collector.takeNak("a"), "stale");
  assert.equal(collector.takeChunk(chunk("a", 0)), "stale");
  assert.equal(collector.takeChunk(chunk("b", 0)), "delta");
  assert.equal(collector.takeChunk(chunk("b", 1, true)), "terminal");
});

Deno.test("a second refusal, after the work went to the pool, is the client's", () => {
  const collector = new StreamCollector();
  assert.equal(collector.takeNak("a"), "republish");
  assert.equal(collector.takeNak("b"), "rate_limited");
  assert.ok(collector.ended);
});

Deno.test("another attempt's refusal changes nothing", () => {
  const collector = new StreamCollector();
  assert.equal(collector.takeChunk(chunk("a", 0)), "delta");
  assert.equal(collector.takeNak("b"), "stale");
  assert.equal(collector.takeChunk(chunk("a", 1, true)), "terminal");
});

Deno.test("sent to the pool for silence: the first attempt that speaks is heard, from any number on", () => {
  const silent = new StreamCollector();
  assert.equal(silent.republish(), true);
  assert.equal(silent.republish(), false, "once");
  assert.equal(silent.takeChunk(chunk("b", 0)), "delta");

  const begun = new StreamCollector();
  assert.equal(begun.takeChunk(chunk("a", 5)), "delta");
  assert.equal(begun.republish(), true);
  assert.equal(begun.takeChunk(chunk("a", 6)), "stale");
  assert.equal(begun.takeChunk(chunk("b", 0)), "delta", "its numbers begin anew");
});
