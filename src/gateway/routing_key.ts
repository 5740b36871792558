/**
 * The hash by which a request finds its worker (spec/queue.md 9): what the caller says belongs together, or else the beginning of the
 * prompt, so that requests with the same beginning meet in the same worker's prefix cache. Pure.
 */
import { xxh3, xxh3OfText } from "./xxh3.ts";

/** What of a request its routing may depend on; empty texts count as none. */
export interface RoutingTexts {
  readonly routingKey?: string;
  readonly promptCacheKey?: string;
  /** The first system message. */
  readonly system?: string;
  /** The prompt, or the last user message. */
  readonly prompt?: string;
}

/** How the beginning of a prompt is taken: the gateway's SIE_ROUTING_PREFIX_… settings. */
export interface PrefixRules {
  /** Texts that differ in case and white space only are the same, unless the bytes are to be kept as they are. */
  readonly preservesBytes: boolean;
  /** So many bytes count at most. */
  readonly bytes: number;
  /** Shorter texts say too little. */
  readonly minBytes: number;
  /** Keeps the hashes of deployments that share workers apart; "" for none. */
  readonly salt: string;
}

/** What the gateway does when nothing is set. */
export const DEFAULT_PREFIX_RULES: PrefixRules = { preservesBytes: false, bytes: 512, minBytes: 64, salt: "" };

/** A prompt that is too short for a prefix is hashed as it is, so many bytes of it at most. */
const RAW_BYTES = 512;

/** Between the salt and the text. */
const SEPARATOR = Uint8Array.of(0x1f);

/** The request's hash; undefined for a request that any worker may have. */
export function routingHash(texts: RoutingTexts, rules: PrefixRules = DEFAULT_PREFIX_RULES): bigint | undefined {
  const given = texts.routingKey || texts.promptCacheKey;
  if (given) return xxh3OfText(given);
  const text = texts.system || texts.prompt;
  return text ? prefixHash(text, rules) ?? xxh3(new TextEncoder().encode(text).subarray(0, RAW_BYTES)) : undefined;
}

/** The hash of a text's beginning; undefined when the text is too short to tell requests apart. */
export function prefixHash(text: string, rules: PrefixRules = DEFAULT_PREFIX_RULES): bigint | undefined {
  const utf8 = new TextEncoder();
  const bytes = utf8.encode(rules.preservesBytes ? text : normalised(text));
  if (bytes.length < rules.minBytes) return undefined;
  const prefix = bytes.subarray(0, rules.bytes);
  if (rules.salt === "") return xxh3(prefix);
  const salt = utf8.encode(rules.salt);
  const salted = new Uint8Array(salt.length + SEPARATOR.length + prefix.length);
  salted.set(salt);
  salted.set(SEPARATOR, salt.length);
  salted.set(prefix, salt.length + SEPARATOR.length);
  return xxh3(salted);
}

/** Without white space around it, runs of it as one space, in lower case: letter by letter, so that no letter depends on the next. */
function normalised(text: string): string {
  const spaced = text.replace(/\p{White_Space}+/gu, " ");
  const trimmed = spaced.slice(spaced.startsWith(" ") ? 1 : 0, spaced.endsWith(" ") ? -1 : undefined);
  return Array.from(trimmed, (letter) => letter.toLowerCase()).join("");
}
