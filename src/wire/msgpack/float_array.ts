import type { MsgpackReader } from "./reader.ts";

/** Elements of a slab. One typed array of its own costs more than filling a short one, so short ones share memory. */
const SLAB_ELEMENTS = 16 * 1024;
const LARGEST_SHARED = 2 * 1024;

let slab = new Float32Array(0);
let used = 0;

/** Room for `count` floats that nobody else has or will get. */
function roomFor(count: number): Float32Array<ArrayBuffer> {
  if (count > LARGEST_SHARED) return new Float32Array(count);
  if (used + count > slab.length) {
    slab = new Float32Array(SLAB_ELEMENTS);
    used = 0;
  }
  used += count;
  return slab.subarray(used - count, used);
}

/**
 * Reads an array of floats of either size, or integers, narrowed to float32 (round to nearest even). The count is checked against
 * the bytes left before anything is allocated. The result may be part of a larger buffer.
 *
 * @throws MsgpackError for any other element
 */
export function readFloat32Array(reader: MsgpackReader): Float32Array<ArrayBuffer> {
  const count = reader.arrayHeader();
  const values = roomFor(count);
  const { bytes, end } = reader;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let i = 0, pos = reader.pos;
  // Nearly every array is of one size from end to end, float64 from Python, float32 from native backends; the rest takes the
  // slower way.
  for (; i < count && end - pos >= 9 && bytes[pos] === 0xcb; i++, pos += 9) values[i] = view.getFloat64(pos + 1);
  for (; i < count && end - pos >= 5 && bytes[pos] === 0xca; i++, pos += 5) values[i] = view.getFloat32(pos + 1);
  reader.pos = pos;
  for (; i < count; i++) values[i] = reader.float();
  return values;
}
