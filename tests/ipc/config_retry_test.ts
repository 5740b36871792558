import assert from "node:assert/strict";
import { retryConfigCall } from "../../src/ipc/config_retry.ts";
import { type IoKind, IpcError } from "../../src/ipc/errors.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";
import { failureOf } from "./clients.ts";

Deno.test("the pause doubles from 250 ms to 5 s, until the call succeeds", async () => {
  const clock = new VirtualClock();
  const tries: number[] = [];
  const answer = retryConfigCall(clock, new AbortController().signal, () => {
    tries.push(clock.now());
    if (tries.length < 9) throw new IpcError("io", "test", { io: "connection_refused" });
    return Promise.resolve("applied");
  });
  await clock.runToEnd();
  assert.equal(await answer, "applied");
  assert.deepEqual(tries.slice(1).map((at, i) => at - (tries[i] ?? 0)), [250, 500, 1000, 2000, 4000, 5000, 5000, 5000]);
});

Deno.test("what is worth another try, and what is not", async () => {
  const again: IpcError[] = [new IpcError("timeout", "test")];
  const kinds: IoKind[] = ["not_found", "connection_refused", "broken_pipe", "unexpected_eof", "would_block"];
  for (const io of kinds) again.push(new IpcError("io", "test", { io }));
  const final = [
    new IpcError("server", "ValueError: no"),
    new IpcError("decode", "test"),
    new IpcError("io", "test", { io: "closed" }),
    new IpcError("io", "test", { io: "other" }),
    new TypeError("a bug"),
  ];
  for (const [errors, expected] of [[again, 2], [final, 1]] as const) {
    for (const error of errors) {
      const clock = new VirtualClock();
      let tries = 0;
      const call = retryConfigCall(clock, new AbortController().signal, () => {
        if (++tries === 1) throw error;
        return Promise.resolve();
      });
      const outcome = call.catch((thrown: unknown) => thrown);
      await clock.runToEnd();
      assert.equal(await outcome, expected === 1 ? error : undefined);
      assert.equal(tries, expected);
    }
  }
});

Deno.test("shutdown ends the waiting with the last error", async () => {
  const clock = new VirtualClock();
  const stop = new AbortController();
  const error = new IpcError("timeout", "test");
  const failure = failureOf(retryConfigCall(clock, stop.signal, () => Promise.reject(error)));
  await clock.advance(100);
  stop.abort();
  assert.equal(await failure, error);
  assert.equal(clock.timerCount, 0);
});
