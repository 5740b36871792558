import assert from "node:assert/strict";
import {
  BACKEND_FRAMES,
  beginFrame,
  type ByteSource,
  endFrame,
  FrameError,
  type FrameForm,
  FrameReader,
  LOCAL_FRAMES,
  writeAll,
} from "../../src/wire/frames.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";

/** A source that hands out given pieces, one a read, and remembers how much room each read had. */
class Pieces implements ByteSource {
  readonly rooms: number[] = [];
  readonly #pieces: Uint8Array[];

  constructor(pieces: readonly Uint8Array[]) {
    this.#pieces = [...pieces];
  }

  read(into: Uint8Array): Promise<number | null> {
    this.rooms.push(into.length);
    const next = this.#pieces[0];
    if (next === undefined) return Promise.resolve(null);
    const count = Math.min(next.length, into.length);
    into.set(next.subarray(0, count));
    if (count === next.length) this.#pieces.shift();
    else this.#pieces[0] = next.subarray(count);
    return Promise.resolve(count);
  }
}

function frame(body: Uint8Array, littleEndian = false): Uint8Array {
  const bytes = new Uint8Array(4 + body.length);
  new DataView(bytes.buffer).setUint32(0, body.length, littleEndian);
  bytes.set(body, 4);
  return bytes;
}

function header(length: number, littleEndian = false): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, length, littleEndian);
  return bytes;
}

function counting(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => i * 7);
}

async function fault(reader: FrameReader): Promise<string> {
  try {
    await reader.readFrame();
  } catch (thrown) {
    if (thrown instanceof FrameError) return thrown.fault;
    throw thrown;
  }
  return "none";
}

for (const [name, form, little] of [["backend", BACKEND_FRAMES, false], ["local", LOCAL_FRAMES, true]] as const) {
  Deno.test(`${name} frames are found however the bytes are cut`, async () => {
    const bodies = [counting(0), counting(1), counting(300), counting(20_000), counting(5)];
    const stream = new Uint8Array(bodies.flatMap((body) => [...frame(body, little)]));
    for (const size of [1, 3, 4, 5, 1000, 16_384, stream.length]) {
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < stream.length; at += size) pieces.push(stream.subarray(at, at + size));
      const reader = new FrameReader(new Pieces(pieces), form);
      for (const body of bodies) assert.deepEqual(await reader.readFrame(), body, `pieces of ${size}`);
      assert.equal(await reader.readFrame(), undefined);
    }
  });

  Deno.test(`${name} frames are written with the length in front`, () => {
    const writer = new MsgpackWriter();
    beginFrame(writer);
    writer.raw(counting(70_000));
    assert.deepEqual(endFrame(writer, form), frame(counting(70_000), little));
    beginFrame(writer);
    writer.nil();
    assert.deepEqual(endFrame(writer, form), frame(Uint8Array.of(0xc0), little));
  });
}

Deno.test("the limit is inclusive, and is judged by the header alone", async () => {
  const form: FrameForm = { byteOrder: "big", maxBytes: 100, eagerBytes: 10 };
  const fits = new FrameReader(new Pieces([frame(counting(100))]), form);
  assert.equal((await fits.readFrame())?.length, 100);
  const source = new Pieces([header(101)]);
  assert.equal(await fault(new FrameReader(source, form)), "too_large");
  assert.equal(source.rooms.length, 1);
  assert.equal(await fault(new FrameReader(new Pieces([header(0xffffffff)]), BACKEND_FRAMES)), "too_large");
  const writer = new MsgpackWriter();
  beginFrame(writer);
  writer.raw(counting(101));
  assert.throws(() => endFrame(writer, form), (thrown) => thrown instanceof FrameError && thrown.fault === "too_large");
});

Deno.test("an end inside a frame is told from an end between frames", async () => {
  assert.equal(await fault(new FrameReader(new Pieces([Uint8Array.of(0, 0)]), BACKEND_FRAMES)), "cut_header");
  assert.equal(await fault(new FrameReader(new Pieces([header(5), Uint8Array.of(1, 2)]), BACKEND_FRAMES)), "cut_body");
  assert.equal(await fault(new FrameReader(new Pieces([header(5)]), BACKEND_FRAMES)), "cut_body");
  assert.equal(await new FrameReader(new Pieces([]), BACKEND_FRAMES).readFrame(), undefined);
});

Deno.test("memory for a large body comes only as its bytes arrive", async () => {
  const announced = LOCAL_FRAMES.maxBytes;
  const arriving = [header(announced, true), counting(60_000), counting(200_000)];
  const source = new Pieces(arriving);
  assert.equal(await fault(new FrameReader(source, LOCAL_FRAMES)), "cut_body");
  // The room for a read is never more than what is there already, or the first eager bytes.
  const largest = Math.max(...source.rooms);
  assert.ok(largest <= 262_144, `a read had room for ${largest} bytes after 260,000 had come`);
});

Deno.test("a body that grew is whole and of exact size", async () => {
  const body = counting(300_001);
  const read = await new FrameReader(new Pieces([frame(body, true)]), LOCAL_FRAMES).readFrame();
  assert.deepEqual(read, body);
  assert.equal(read?.buffer.byteLength, body.length);
});

Deno.test("a frame's buffer is its own unless it was given back", async () => {
  const bodies = [counting(50_000), counting(30_000), counting(50_000)];
  const reader = new FrameReader(new Pieces(bodies.map((body) => frame(body))), BACKEND_FRAMES);
  const first = await reader.readFrame();
  assert.ok(first !== undefined);
  reader.recycle(first);
  const second = await reader.readFrame();
  assert.equal(second?.buffer, first.buffer);
  assert.deepEqual(second, bodies[1]);
  const third = await reader.readFrame();
  assert.notEqual(third?.buffer, first.buffer);
  assert.deepEqual(third, bodies[2]);
});

Deno.test("a small frame does not keep a large buffer alive, and a very large one is not kept at all", async () => {
  const sizes = [50_000, 100, 50_000, BACKEND_FRAMES.eagerBytes + 1, BACKEND_FRAMES.eagerBytes + 1];
  const reader = new FrameReader(new Pieces(sizes.map((size) => frame(counting(size)))), BACKEND_FRAMES);
  const next = async () => {
    const read = await reader.readFrame();
    assert.ok(read !== undefined);
    return read;
  };
  const large = await next();
  reader.recycle(large);
  assert.equal((await next()).buffer.byteLength, 100);
  assert.equal((await next()).buffer, large.buffer);
  const huge = await next();
  reader.recycle(huge);
  assert.notEqual((await next()).buffer, huge.buffer);
});

Deno.test("a sink that takes less than it is given gets the rest", async () => {
  const taken: number[] = [];
  await writeAll({
    write(bytes) {
      const count = Math.min(3, bytes.length);
      taken.push(...bytes.subarray(0, count));
      return Promise.resolve(count);
    },
  }, counting(10));
  assert.deepEqual(taken, [...counting(10)]);
});
