/** Signals: the latch, the second SIGINT, and what is ignored. */
import assert from "node:assert/strict";
import { listenForSignals, ShutdownLatch, type SignalSource, type StopSignal } from "../../src/runtime/signals.ts";

class FakeSignals implements SignalSource {
  readonly handlers = new Map<StopSignal, Set<() => void>>([["SIGTERM", new Set()], ["SIGINT", new Set()]]);

  add(signal: StopSignal, handler: () => void): void {
    this.handlers.get(signal)?.add(handler);
  }

  remove(signal: StopSignal, handler: () => void): void {
    assert.ok(this.handlers.get(signal)?.delete(handler), "a handler is removed that was never added");
  }

  send(...signals: StopSignal[]): void {
    for (const signal of signals) for (const handler of this.handlers.get(signal) ?? []) handler();
  }
}

function listening(withExit = true) {
  const latch = new ShutdownLatch();
  const source = new FakeSignals();
  const seen: string[] = [];
  const stop = listenForSignals(latch, {
    ...(withExit ? { onSecondInterrupt: () => seen.push("exit") } : {}),
    onIgnored: (signal) => seen.push(`ignored ${signal}`),
  }, source);
  return { latch, source, seen, stop };
}

Deno.test("the first signal sets the latch, for good", async () => {
  const { latch, source, seen } = listening();
  assert.equal(latch.reason, undefined);
  const set = latch.whenSet;
  source.send("SIGTERM");
  await set;
  await latch.whenSet;
  assert.equal(latch.reason, "SIGTERM");
  assert.equal(latch.signal.aborted, true);
  assert.equal(latch.set("later"), false);
  assert.equal(latch.reason, "SIGTERM");
  assert.deepEqual(seen, []);
});

Deno.test("a second SIGTERM changes nothing, a second SIGINT ends the process", () => {
  const rows: [StopSignal[], string[]][] = [
    [["SIGTERM", "SIGTERM", "SIGTERM"], ["ignored SIGTERM", "ignored SIGTERM"]],
    [["SIGINT", "SIGINT"], ["exit"]],
    [["SIGINT", "SIGTERM", "SIGINT"], ["ignored SIGTERM", "exit"]],
    [["SIGTERM", "SIGINT"], ["ignored SIGINT"]],
    [["SIGTERM", "SIGINT", "SIGINT"], ["ignored SIGINT", "exit"]],
  ];
  for (const [signals, expected] of rows) {
    const { source, seen } = listening();
    source.send(...signals);
    assert.deepEqual(seen, expected, signals.join());
  }
});

Deno.test("without an action for it, a second SIGINT changes nothing either", () => {
  const { source, seen } = listening(false);
  source.send("SIGINT", "SIGINT");
  assert.deepEqual(seen, ["ignored SIGINT"]);
});

Deno.test("listening can be ended", () => {
  const { latch, source, stop } = listening();
  stop();
  source.send("SIGTERM");
  assert.equal(latch.reason, undefined);
});
