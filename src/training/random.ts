/** Randomness as a value that is passed in, so that a run with a seed can be repeated. */

/** A source of uniform numbers in [0, 1). */
export type Random = () => number;

/**
 * A small, fast generator with 128 bits of state (xoshiro128**), started from one 32-bit seed by splitmix32. It serves
 * replay draws and initial weights; it is not for secrets.
 */
export function seededRandom(seed: number): Random {
  let mix = seed >>> 0;
  const splitmix = (): number => {
    mix = (mix + 0x9e3779b9) | 0;
    let z = mix;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return z ^ (z >>> 15);
  };
  let a = splitmix(), b = splitmix(), c = splitmix(), d = splitmix();
  return () => {
    const scrambled = Math.imul(b, 5);
    const result = Math.imul((scrambled << 7) | (scrambled >>> 25), 9) >>> 0;
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = (d << 11) | (d >>> 21);
    return result / 4_294_967_296;
  };
}

/** A whole number in [0, `limit`). */
export function randomBelow(random: Random, limit: number): number {
  return Math.floor(random() * limit);
}
