/** Random MessagePack, well-formed and not, from a seed. */
import type { Value } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";
import type { SeededRandom } from "../sim/seeded_random.ts";

/** What the values may hold. */
export interface ValueChoice {
  /** Deepest nesting. */
  readonly depth: number;
  /** Map keys of any type, invalid UTF-8 and extensions too; otherwise only what JSON holds. */
  readonly wild: boolean;
}

const TEXTS = ["", "id", "text", "é", "日本", "😀", "a".repeat(31), "a".repeat(32), "b".repeat(255), "c".repeat(256)];
const INTEGERS = [
  0n,
  1n,
  127n,
  128n,
  255n,
  256n,
  65535n,
  65536n,
  4294967295n,
  4294967296n,
  9007199254740993n,
  (1n << 63n) - 1n,
  (1n << 64n) - 1n,
  -1n,
  -32n,
  -33n,
  -128n,
  -129n,
  -32768n,
  -32769n,
  -2147483648n,
  -2147483649n,
  -(1n << 63n),
];
const FLOATS = [0, -0, 0.5, 1, -1.25, 1e300, 5e-324, Infinity, -Infinity, NaN];

/** A whole number in [0, `limit`). */
export function below(random: SeededRandom, limit: number): number {
  return random.integer(0, limit - 1);
}

/** Bytes of random content. */
export function randomBytes(random: SeededRandom, length: number): Uint8Array {
  return Uint8Array.from({ length }, () => below(random, 256));
}

/** A random value. */
export function randomValue(random: SeededRandom, choice: ValueChoice): Value {
  const scalarsOnly = choice.depth === 0;
  switch (below(random, scalarsOnly ? 6 : 8)) {
    case 0:
      return { type: "nil" };
    case 1:
      return { type: "bool", value: below(random, 2) === 1 };
    case 2:
      return { type: "int", value: random.pick(INTEGERS) };
    case 3:
      return randomFloat(random);
    case 4:
      return text(random.pick(TEXTS));
    case 5:
      return choice.wild ? randomOpaque(random) : text(random.pick(TEXTS));
    case 6:
      return { type: "array", items: Array.from({ length: count(random) }, () => inner(random, choice)) };
    default:
      return {
        type: "map",
        pairs: Array.from({ length: count(random) }, () => [randomKey(random, choice), inner(random, choice)] as const),
      };
  }
}

function count(random: SeededRandom): number {
  return random.pick([0, 1, 2, 3, 5, 15, 16, 17]);
}

function inner(random: SeededRandom, choice: ValueChoice): Value {
  return randomValue(random, { ...choice, depth: choice.depth - 1 });
}

function randomKey(random: SeededRandom, choice: ValueChoice): Value {
  if (!choice.wild || below(random, 4) > 0) return text(random.pick(TEXTS));
  return randomValue(random, { ...choice, depth: Math.min(choice.depth - 1, 1) });
}

function text(value: string): Value {
  return { type: "str", hex: toHex(new TextEncoder().encode(value)) };
}

function randomFloat(random: SeededRandom): Value {
  const value = random.pick(FLOATS);
  return below(random, 2) === 0 ? { type: "f64", value } : { type: "f32", value: Math.fround(value) };
}

function randomOpaque(random: SeededRandom): Value {
  const hex = toHex(randomBytes(random, random.pick([0, 1, 2, 3, 4, 5, 8, 12, 16, 17, 256])));
  const type = random.pick(["bin", "ext", "str"] as const);
  return type === "ext" ? { type, code: below(random, 256) - 128, hex } : { type, hex };
}
