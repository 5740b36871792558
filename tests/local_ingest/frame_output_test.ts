/** The writing side of a connection (spec/local-ingest.md 10): order, bounds, the limit of 5 s, abandoned frames. */
import assert from "node:assert/strict";
import { FrameOutput } from "../../src/local_ingest/frame_output.ts";
import type { OutgoingFrame } from "../../src/wire/ingest/response.ts";
import { VirtualClock } from "../sim/virtual_clock.ts";
import { settle } from "../sim/virtual_clock.ts";
import { MemoryStream } from "./memory_stream.ts";

const MIB = 1024 * 1024;

class Rig {
  readonly clock = new VirtualClock();
  readonly stream = new MemoryStream();
  readonly failures: string[] = [];
  readonly output = new FrameOutput(this.stream, this.clock, (reason) => {
    this.failures.push(reason);
    this.stream.close();
  });
}

/** A frame of `size` bytes of one value, in pieces of at most `pieceSize`. */
function frame(value: number, size: number, pieceSize = size): OutgoingFrame {
  const pieces: Uint8Array[] = [];
  for (let left = size; left > 0; left -= pieceSize) pieces.push(new Uint8Array(Math.min(left, pieceSize)).fill(value));
  return { pieces, length: size };
}

/** Lengths of the runs of equal bytes, with their value. */
function runs(bytes: Uint8Array): [number, number][] {
  const found: [number, number][] = [];
  for (const byte of bytes) {
    const last = found.at(-1);
    if (last !== undefined && last[0] === byte) last[1]++;
    else found.push([byte, 1]);
  }
  return found;
}

Deno.test("frames are whole and in order, however little a write takes", async () => {
  const rig = new Rig();
  rig.stream.writeLimit = 1000;
  const sizes = [5, 100_000, 1, 70_000, 16_384, 65_536, 3];
  const sent = sizes.map((size, i) => rig.output.send(frame(i + 1, size, 20_000)));
  assert.deepEqual(await Promise.all(sent), sizes.map(() => "written"));
  assert.deepEqual(runs(rig.stream.written()), sizes.map((size, i) => [i + 1, size]));
  assert.deepEqual([rig.output.unfinished, rig.output.queuedBytes], [0, 0]);
  rig.output.close();
  assert.equal(rig.clock.timerCount, 0);
});

Deno.test("many small frames go out in one write", async () => {
  const rig = new Rig();
  let writes = 0;
  const write = rig.stream.write.bind(rig.stream);
  rig.stream.write = (bytes) => {
    writes++;
    return write(bytes);
  };
  await Promise.all(Array.from({ length: 60 }, (_, i) => rig.output.send(frame(i, 100))));
  assert.equal(writes, 1);
  rig.output.close();
});

Deno.test("a frame that is not written within 5 s ends the connection and fails all others", async () => {
  const rig = new Rig();
  rig.stream.stall();
  const first = rig.output.send(frame(1, 10));
  await rig.clock.advance(3000);
  const second = rig.output.send(frame(2, 10));
  await rig.clock.advance(1999);
  assert.deepEqual(rig.failures, []);
  await rig.clock.advance(1);
  assert.deepEqual(await Promise.all([first, second]), ["failed", "failed"]);
  assert.deepEqual(rig.failures, ["a frame was not written within 5000 ms"]);
  assert.equal(await rig.output.send(frame(3, 10)), "failed");
  assert.equal(rig.stream.written().length, 0);
  assert.equal(rig.clock.timerCount, 0);
});

Deno.test("the limit counts from each frame's own beginning", async () => {
  const rig = new Rig();
  for (let i = 0; i < 10; i++) {
    rig.stream.stall();
    const sent = rig.output.send(frame(i, 10));
    await rig.clock.advance(4000);
    rig.stream.resume();
    assert.equal(await sent, "written");
  }
  assert.deepEqual(rig.failures, []);
  rig.output.close();
});

Deno.test("80 frames and 64 MiB are queued; what comes on top waits for room, within its own 5 s", async () => {
  const rig = new Rig();
  rig.stream.stall();
  const big = rig.output.send(frame(1, 64 * MIB));
  const small = Array.from({ length: 100 }, (_, i) => rig.output.send(frame(2 + i % 2, 1)));
  await settle();
  assert.equal(rig.output.unfinished, 101);
  // The four bytes beyond 64 MiB are all the room there is.
  assert.equal(rig.output.queuedBytes, 64 * MIB + 4);
  rig.stream.resume();
  assert.equal(await big, "written");
  assert.deepEqual(await Promise.all(small), small.map(() => "written"));
  assert.equal(rig.stream.written().length, 64 * MIB + 100);
  assert.deepEqual(rig.failures, []);
  rig.output.close();
});

Deno.test("a frame that waits for room and gets none fails with the connection", async () => {
  const rig = new Rig();
  rig.stream.stall();
  const sent = Array.from({ length: 90 }, () => rig.output.send(frame(1, 1)));
  await rig.clock.advance(5000);
  assert.deepEqual(await Promise.all(sent), sent.map(() => "failed"));
});

Deno.test("an abandoned frame is skipped; one that has been begun is finished", async () => {
  const rig = new Rig();
  rig.stream.stall();
  const abort = new AbortController();
  const first = rig.output.send(frame(1, 100_000), abort.signal);
  const second = rig.output.send(frame(2, 10), abort.signal);
  const third = rig.output.send(frame(3, 10));
  await settle();
  abort.abort();
  assert.equal(await second, "abandoned");
  rig.stream.resume();
  assert.deepEqual(await Promise.all([first, third]), ["written", "written"]);
  assert.deepEqual(runs(rig.stream.written()), [[1, 100_000], [3, 10]]);
  assert.equal(await rig.output.send(frame(4, 1), abort.signal), "abandoned");
  assert.equal(rig.output.unfinished, 0);
  rig.output.close();
});

Deno.test("drained waits for everything that was sent", async () => {
  const rig = new Rig();
  await rig.output.drained();
  rig.stream.stall();
  let isDrained = false;
  rig.output.send(frame(1, 10));
  const drained = rig.output.drained().then(() => isDrained = true);
  await settle();
  assert.equal(isDrained, false);
  rig.stream.resume();
  await drained;
  rig.output.close();
});

Deno.test("a write that fails ends the connection once", async () => {
  const rig = new Rig();
  rig.stream.write = () => Promise.reject(new Error("broken pipe"));
  assert.deepEqual(await Promise.all([rig.output.send(frame(1, 1)), rig.output.send(frame(2, 1))]), [
    "failed",
    "failed",
  ]);
  assert.deepEqual(rig.failures, ["broken pipe"]);
});
