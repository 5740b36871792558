/**
 * Numbers as the variables and flags write them (runtime.md 1): decimal digits, an optional sign, no white space, no
 * separators. The error texts are part of the contract.
 */

/** A number, or why the text is none. */
export type Parsed<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly why: string };

const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;
const U64_MAX = 2n ** 64n - 1n;

/** Unsigned 64-bit integer. Values beyond 2^53 - 1 come back as 2^53 - 1: as a duration or a count both mean "without end". */
export function parseU64(text: string): Parsed<number> {
  const parsed = parseDigits(text, false);
  if (!parsed.ok) return parsed;
  if (parsed.value > U64_MAX) return { ok: false, why: "number too large to fit in target type" };
  return { ok: true, value: Math.min(Number(parsed.value), Number.MAX_SAFE_INTEGER) };
}

/** Integer of at most 32 bits between `min` and `max`, both included. */
export function parseRanged(text: string, min: number, max: number): Parsed<number> {
  const parsed = parseDigits(text, true);
  if (!parsed.ok) return parsed;
  if (parsed.value > I64_MAX) return { ok: false, why: "number too large to fit in target type" };
  if (parsed.value < I64_MIN) return { ok: false, why: "number too small to fit in target type" };
  if (parsed.value < BigInt(min) || parsed.value > BigInt(max)) {
    return { ok: false, why: `${parsed.value} is not in ${min}..=${max}` };
  }
  return { ok: true, value: Number(parsed.value) };
}

/** Floating-point number, also `1e3`, `.5`, `inf` and `nan` in any case. */
export function parseFloat64(text: string): Parsed<number> {
  if (text === "") return { ok: false, why: "cannot parse float from empty string" };
  const special = /^([+-]?)(inf|infinity|nan)$/i.exec(text);
  if (special !== null) {
    if (special[2]?.toLowerCase() === "nan") return { ok: true, value: NaN };
    return { ok: true, value: special[1] === "-" ? -Infinity : Infinity };
  }
  if (!/^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$/i.test(text)) {
    return { ok: false, why: "invalid float literal" };
  }
  return { ok: true, value: Number(text) };
}

function parseDigits(text: string, signed: boolean): Parsed<bigint> {
  if (text === "") return { ok: false, why: "cannot parse integer from empty string" };
  // The length is bounded before BigInt sees the digits; no valid number needs more, leading zeros apart.
  const match = (signed ? /^([+-]?)0*([0-9]+)$/ : /^(\+?)0*([0-9]+)$/).exec(text);
  if (match === null) return { ok: false, why: "invalid digit found in string" };
  const digits = match[2] ?? "";
  const magnitude = digits.length > 25 ? 10n ** 25n : BigInt(digits);
  return { ok: true, value: match[1] === "-" ? -magnitude : magnitude };
}
