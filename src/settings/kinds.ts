/**
 * How the text of a variable becomes a value. A variable *with* a flag is checked like a command-line argument: a bad value
 * is a usage error. One *without* a flag never stops the start: a bad value gives way to the default, with a warning
 * (runtime.md 2.1 and 2.4).
 */
import { type Parsed, parseFloat64, parseRanged, parseU64 } from "./numbers.ts";
import { asciiLower, commaList, trimWhite } from "./text.ts";

/** What reading a text came to. `note` says what was changed about the given value. */
export type Reading<T> =
  | { readonly ok: true; readonly value: T; readonly note?: string }
  | { readonly ok: false; readonly why: string };

/** One kind of value: how it is written, its default and how it is read. */
export interface Kind<T> {
  /** Name of the type for readers of the documentation. */
  readonly type: string;
  readonly fallback: T;
  /** The default in words, empty when there is none. */
  readonly fallbackText: string;
  /** Accepted values in words. */
  readonly range?: string;
  read(text: string): Reading<T>;
}

/** Any text, as it was given. */
export function text(): Kind<string | undefined>;
export function text(fallback: string): Kind<string>;
export function text(fallback?: string): Kind<string | undefined> {
  return { type: "text", fallback, fallbackText: fallback ?? "", read: (given) => ({ ok: true, value: given }) };
}

/** Path of a file, folder or socket; a text for us. */
export function path(): Kind<string | undefined>;
export function path(fallback: string): Kind<string>;
export function path(fallback?: string): Kind<string | undefined> {
  return { ...text(fallback ?? ""), type: "path", fallback, fallbackText: fallback ?? "" };
}

/** Comma list: entries trimmed, empty ones dropped. */
export function list(fallback: readonly string[] = []): Kind<readonly string[]> {
  return {
    type: "comma list",
    fallback,
    fallbackText: fallback.join(","),
    read: (given) => ({ ok: true, value: commaList(given) }),
  };
}

/** Unsigned 64-bit integer of a flag. */
export function u64(): Kind<number | undefined>;
export function u64(fallback: number): Kind<number>;
export function u64(fallback?: number): Kind<number | undefined> {
  return { type: "unsigned integer", fallback, fallbackText: fallback?.toString() ?? "", read: reader(parseU64) };
}

/** Integer of a flag between `min` and `max`. */
export function ranged(fallback: number, min: number, max: number): Kind<number> {
  return {
    type: "integer",
    fallback,
    fallbackText: `${fallback}`,
    range: `${min} to ${max}`,
    read: reader((given) => parseRanged(given, min, max)),
  };
}

/** Floating-point number of a flag; the range is applied later, by `settle`. */
export function float(fallback: number, range?: string): Kind<number> {
  return {
    type: "number",
    fallback,
    fallbackText: `${fallback}`,
    ...(range === undefined ? {} : { range }),
    read: reader(parseFloat64),
  };
}

/** Limits of a {@link lenientInteger}. Outside `min`..`max` the default applies; outside the clamp the nearer end. */
export interface IntegerLimits {
  readonly min?: number;
  readonly max?: number;
  readonly clampMin?: number;
  readonly clampMax?: number;
  /** White space around the digits is allowed. */
  readonly trim?: boolean;
}

/** Unsigned integer of a variable without a flag. */
export function lenientInteger(fallback: undefined, limits?: IntegerLimits): Kind<number | undefined>;
export function lenientInteger(fallback: number, limits?: IntegerLimits): Kind<number>;
export function lenientInteger(fallback: number | undefined, limits: IntegerLimits = {}): Kind<number | undefined> {
  const low = limits.min ?? limits.clampMin ?? 0;
  const high = limits.max ?? limits.clampMax;
  return {
    type: "unsigned integer",
    fallback,
    fallbackText: fallback?.toString() ?? "",
    range: high === undefined ? `at least ${low}` : `${low} to ${high}`,
    read(given) {
      const parsed = parseU64(limits.trim === true ? trimWhite(given) : given);
      if (!parsed.ok) return parsed;
      const { value } = parsed;
      if (limits.min !== undefined && value < limits.min) return { ok: false, why: `${value} is below ${limits.min}` };
      if (limits.max !== undefined && value > limits.max) return { ok: false, why: `${value} is above ${limits.max}` };
      return clamped(value, limits.clampMin ?? 0, limits.clampMax ?? Infinity);
    },
  };
}

/** Finite floating-point number of a variable without a flag; `above` excludes itself. */
export function lenientFloat(fallback: undefined, above?: number): Kind<number | undefined>;
export function lenientFloat(fallback: number, above?: number): Kind<number>;
export function lenientFloat(fallback: number | undefined, above?: number): Kind<number | undefined> {
  return {
    type: "number",
    fallback,
    fallbackText: fallback?.toString() ?? "",
    range: above === undefined ? "finite" : `above ${above}`,
    read(given) {
      const parsed = parseFloat64(given);
      if (!parsed.ok) return parsed;
      if (!Number.isFinite(parsed.value)) return { ok: false, why: `${parsed.value} is not finite` };
      if (above !== undefined && parsed.value <= above) {
        return { ok: false, why: `${parsed.value} is not above ${above}` };
      }
      return parsed;
    },
  };
}

/** How exactly a switch compares its words. */
export interface SwitchWords {
  readonly fallback: boolean;
  /** Words that switch to the other side than the default. */
  readonly words: readonly string[];
  /** Words are compared as they are: no trimming, case matters. */
  readonly exact?: boolean;
  /** Words for the default; when given, every other unknown text is reported. */
  readonly knownDefault?: readonly string[];
}

/** A switch whose default only certain words change; every other text means the default. */
export function switchOff(words: readonly string[]): Kind<boolean> {
  return switchBy({ fallback: true, words });
}

/** A switch that certain words turn on and certain words leave off; others leave it off with a warning. */
export function switchOnReported(): Kind<boolean> {
  return switchBy({
    fallback: false,
    words: ["1", "true", "yes", "on"],
    knownDefault: ["0", "false", "no", "off", ""],
  });
}

/** A switch that only certain words turn on. */
export function switchOn(words: readonly string[] = ["1", "true", "yes", "on"], exact = false): Kind<boolean> {
  return switchBy({ fallback: false, words, exact });
}

function switchBy(how: SwitchWords): Kind<boolean> {
  const listed = how.words.map((word) => word === "" ? "empty" : `\`${word}\``).join(", ");
  return {
    type: "switch",
    fallback: how.fallback,
    fallbackText: how.fallback ? "on" : "off",
    range: `${how.fallback ? "off" : "on"} for ${listed}${how.exact === true ? ", exactly" : ""}`,
    read(given) {
      const word = how.exact === true ? given : asciiLower(trimWhite(given));
      if (how.words.includes(word)) return { ok: true, value: !how.fallback };
      if (how.knownDefault !== undefined && !how.knownDefault.includes(word)) return { ok: false, why: "unknown word" };
      return { ok: true, value: how.fallback };
    },
  };
}

/** One of several words, trimmed, in any case. The empty text means the default where it is not one of them. */
export function word<W extends string>(fallback: W, words: ReadonlyMap<string, W>): Kind<W> {
  const listed = [...words.keys()].map((known) => `\`${known}\``).join(", ");
  return {
    type: "word",
    fallback,
    fallbackText: fallback,
    range: listed,
    read(given) {
      const normal = asciiLower(trimWhite(given));
      const found = words.get(normal) ?? (normal === "" ? fallback : undefined);
      if (found === undefined) return { ok: false, why: `expected one of ${listed}` };
      return { ok: true, value: found };
    },
  };
}

function reader(parse: (given: string) => Parsed<number>): (given: string) => Reading<number> {
  return (given) => parse(given);
}

function clamped(value: number, min: number, max: number): Reading<number> {
  if (value < min) return { ok: true, value: min, note: `${value} is below ${min}` };
  if (value > max) return { ok: true, value: max, note: `${value} is above ${max}` };
  return { ok: true, value };
}

/** Where a server listens: `host:port`, `[v6]:port`, or `off`. */
export interface ListenAddress {
  readonly hostname: string;
  readonly port: number;
}

/** See {@link ListenAddress}; the value is `undefined` for `off`. */
export function listenAddress(fallback: ListenAddress): Kind<ListenAddress | undefined> {
  return {
    type: "address",
    fallback,
    fallbackText: `${fallback.hostname}:${fallback.port}`,
    range: "`host:port` or `off`",
    read(given) {
      if (asciiLower(trimWhite(given)) === "off") return { ok: true, value: undefined };
      const match = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\]]+):([0-9]{1,5})$/.exec(trimWhite(given));
      const port = Number(match?.[2] ?? NaN);
      if (match === null || port > 65_535) return { ok: false, why: "expected `host:port` or `off`" };
      return { ok: true, value: { hostname: (match[1] ?? "").replace(/^\[|\]$/g, ""), port } };
    },
  };
}

/** Unsigned integer with a lower limit, of one of our own variables. */
export function ownInteger(fallback: number, min: number): Kind<number> {
  return lenientInteger(fallback, { min });
}

/** Which of a trainer's versions serves: `latest`, `latest-stable` or `pinned:<version>`. */
export function versionPolicy(fallback: "latest-stable"): Kind<string> {
  const range = "`latest`, `latest-stable` or `pinned:<version>`";
  return {
    type: "policy",
    fallback,
    fallbackText: fallback,
    range,
    read(given) {
      const policy = trimWhite(given);
      const known = /^(?:latest|latest-stable|pinned:(?:model_v|v)?[0-9]{1,15})$/.test(policy);
      return known ? { ok: true, value: policy } : { ok: false, why: `expected ${range}` };
    },
  };
}
