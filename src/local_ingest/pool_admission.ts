/** Whether an item's pool is served by this lane (spec/local-ingest.md 6). */
import { quoted } from "../wire/ingest/quoted.ts";

const WHITE_SPACE = /\p{White_Space}/u;

/** A pool name as it is compared: without white space around it, ASCII letters in lower case. */
export function poolKey(pool: string): string {
  // By hand: a pattern for the end would look at a long run of white space once for each of its characters.
  let start = 0, end = pool.length;
  while (start < end && WHITE_SPACE.test(pool.charAt(start))) start++;
  while (end > start && WHITE_SPACE.test(pool.charAt(end - 1))) end--;
  return pool.slice(start, end).replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/**
 * Why an item is not admitted, or undefined when it is.
 *
 * @param lanePool pool of this worker's lane
 * @param envelopePool `admission_pool` of the request
 * @param itemPool `admission_pool` of the item
 */
export function poolRefusal(lanePool: string, envelopePool: string, itemPool: string): string | undefined {
  const [lane, envelope, item] = [poolKey(lanePool), poolKey(envelopePool), poolKey(itemPool)];
  if (envelope !== "" && item !== "" && envelope !== item) {
    return `admission_pool mismatch: batch meta=${quoted(envelope)} item=${quoted(item)}`;
  }
  const asked = envelope === "" ? item : envelope;
  if (asked === "" || asked === lane) return undefined;
  return `lane pool ${quoted(lane)} does not serve admission_pool ${quoted(asked)}`;
}
