import { halfFromFloat32Bits } from "../wire/half.ts";

/** Float32 values as little-endian halves, each rounded to nearest even. */
export function halvesOf(values: Float32Array): Uint8Array {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  for (let i = 0; i < halves.length; i++) halves[i] = halfFromFloat32Bits(bits[i] as number);
  return new Uint8Array(halves.buffer);
}
