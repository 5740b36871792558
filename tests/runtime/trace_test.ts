/** The event trace: lines, order, bounds, and what happens when the disk does not keep up or fails. */
import assert from "node:assert/strict";
import { openTraceFile, type TraceEvent, type TraceOutput, TraceWriter } from "../../src/runtime/trace.ts";
import { TestFolder } from "../harness/process.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";

/** An output that keeps what it gets, holds writes back while `gate` is set, and counts how many run at once. */
class Recorder implements TraceOutput {
  text = "";
  closed = false;
  writes = 0;
  gate: PromiseWithResolvers<void> | undefined;
  #running = 0;

  async write(bytes: Uint8Array): Promise<void> {
    assert.equal(this.closed, false);
    assert.equal(++this.#running, 1, "two writes at once");
    this.writes++;
    await this.gate?.promise;
    this.text += new TextDecoder().decode(bytes);
    this.#running--;
  }

  close(): void {
    this.closed = true;
  }

  lines(): Record<string, unknown>[] {
    return this.text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
  }
}

function refused(delivery: number, at = 0): TraceEvent {
  return { kind: "refused", at, delivery, reason: "test" };
}

Deno.test("events are lines in their order, after a header that ties the clocks together", async () => {
  const clock = new VirtualClock(5, 1000);
  const output = new Recorder();
  const trace = new TraceWriter({ clock, output });
  const events: TraceEvent[] = [
    {
      kind: "arrival",
      at: 5,
      delivery: 1,
      source: "nats_pool",
      operation: "encode",
      model: "m\n",
      bytes: 10,
      attempt: 1,
      workItemId: "r.0",
    },
    { kind: "cost", at: 6, delivery: 1, key: "k", cost: 3 },
    { kind: "batch", at: 7, batch: 1, key: "k", reason: "timeout", cost: 3, deliveries: [1] },
    { kind: "outcome", at: 8, delivery: 1, batch: 1, outcome: "success" },
    { kind: "settlement", at: 9, delivery: 1, action: "ack", reason: "completed" },
  ];
  for (const event of events) trace.emit(event);
  await trace.close();
  assert.deepEqual(output.lines(), [{ kind: "header", version: 1, at: 5, unixMs: 1000 }, ...events]);
  assert.equal(output.closed, true);
});

Deno.test("events are written after a while without anybody waiting for them, one write at a time", async () => {
  const clock = new VirtualClock();
  const output = new Recorder();
  const trace = new TraceWriter({ clock, output, flushAfterMs: 200 });
  trace.emit(refused(1));
  await clock.advance(199);
  assert.equal(output.writes, 0);
  output.gate = Promise.withResolvers();
  await clock.advance(1);
  assert.equal(output.writes, 1);
  trace.emit(refused(2));
  await clock.advance(1000);
  assert.equal(output.writes, 1);
  output.gate.resolve();
  await clock.advance(0);
  assert.deepEqual(output.lines().map((line) => line["delivery"]), [undefined, 1, 2]);
  await trace.close();
  assert.equal(clock.timerCount, 0);
});

Deno.test("an event that comes just as the last ones have been written waits for no other", async () => {
  for (let turns = 0; turns < 20; turns++) {
    const clock = new VirtualClock();
    const output = new Recorder();
    const trace = new TraceWriter({ clock, output, flushAfterMs: 200 });
    output.gate = Promise.withResolvers();
    await clock.advance(200);
    output.gate.resolve();
    for (let turn = 0; turn < turns; turn++) await undefined;
    trace.emit(refused(1));
    await clock.advance(200);
    assert.equal(output.lines().at(-1)?.["delivery"], 1, `after ${turns} turns`);
    await trace.close();
  }
});

Deno.test("what does not fit is dropped, counted, and leaves a gap that says so", async () => {
  const clock = new VirtualClock();
  const output = new Recorder();
  output.gate = Promise.withResolvers();
  const trace = new TraceWriter({ clock, output, maxBuffered: 200, flushAfterMs: 0 });
  for (let i = 1; i <= 100; i++) trace.emit(refused(i));
  assert.ok(trace.dropped > 90);
  await clock.advance(0);
  trace.emit(refused(101));
  assert.equal(trace.dropped % 100 > 90, true, "bytes in flight count too");
  output.gate.resolve();
  await clock.advance(0);
  trace.emit(refused(102, 7));
  await trace.close();
  const lines = output.lines();
  const kept = lines.filter((line) => line["kind"] === "refused").length;
  const gaps = lines.filter((line) => line["kind"] === "gap");
  assert.equal(kept + trace.dropped, 102);
  assert.deepEqual(gaps, [{ kind: "gap", at: 7, dropped: trace.dropped }]);
});

Deno.test("a trailing gap is written at the end", async () => {
  const output = new Recorder();
  const trace = new TraceWriter({ clock: new VirtualClock(), output, maxBuffered: 10 });
  trace.emit(refused(1));
  await trace.close();
  assert.deepEqual(output.lines().at(-1), { kind: "gap", at: 0, dropped: 1 });
});

Deno.test("a failing disk is told once and then left alone", async () => {
  const clock = new VirtualClock();
  const failures: string[] = [];
  let closed = 0;
  const trace = new TraceWriter({
    clock,
    output: { write: () => Promise.reject(new Error("no space")), close: () => closed++ },
    onFailure: (text) => failures.push(text),
  });
  trace.emit(refused(1));
  await clock.advance(200);
  trace.emit(refused(2));
  await clock.advance(200);
  await trace.close();
  await trace.close();
  assert.deepEqual(failures, ["no space"]);
  assert.deepEqual([trace.dropped, closed], [1, 1]);
});

Deno.test("a trace file is appended to and private", async () => {
  using folder = new TestFolder();
  const path = folder.file("trace.jsonl");
  for (const delivery of [1, 2]) {
    const trace = new TraceWriter({ clock: new VirtualClock(), output: await openTraceFile(path) });
    trace.emit(refused(delivery));
    await trace.close();
  }
  const lines = (await Deno.readTextFile(path)).trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.map((line) => line.kind), ["header", "refused", "header", "refused"]);
  assert.equal(((await Deno.stat(path)).mode ?? 0) & 0o777, 0o600);
  await assert.rejects(openTraceFile(folder.file("missing/trace")), Deno.errors.NotFound);
});
