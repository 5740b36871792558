/** IEEE 754 half precision (float16), in integers, so that the result does not depend on the engine. */

const scratchFloat = new Float32Array(1);
const scratchBits = new Uint32Array(scratchFloat.buffer);

/**
 * Bits of the half nearest to a float32 given by its bits; ties go to even. A NaN keeps its sign and the upper ten bits of its
 * payload, at least one of them set.
 */
export function halfFromFloat32Bits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7c00 | (((magnitude >>> 13) & 0x3ff) || 1);
  // From half-way between the largest half and the next power of two on, everything rounds to infinity.
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude >= 0x38800000) {
    const rebased = magnitude - 0x38000000;
    return sign | ((rebased + 0xfff + ((rebased >>> 13) & 1)) >>> 13);
  }
  // Subnormal halves count in steps of 2^-24; up to half a step rounds to zero.
  if (magnitude <= 0x33000000) return sign;
  const mantissa = (magnitude & 0x7fffff) | 0x800000;
  const shift = 126 - (magnitude >>> 23);
  const half = 1 << (shift - 1);
  const kept = mantissa >>> shift;
  const rest = mantissa & ((1 << shift) - 1);
  return sign | (kept + (rest > half || (rest === half && (kept & 1) === 1) ? 1 : 0));
}

/** Bits of the half nearest to a number: rounded to float32 first and then to half, each to nearest even (preparation.md 8.3). */
export function halfFromNumber(value: number): number {
  scratchFloat[0] = value;
  return halfFromFloat32Bits(scratchBits[0] as number);
}

/** Value of a half given by its bits. */
export function halfToNumber(bits: number): number {
  const sign = (bits & 0x8000) === 0 ? 1 : -1;
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
