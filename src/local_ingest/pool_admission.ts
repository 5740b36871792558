/** Whether an item's pool is served by this lane (spec/local-ingest.md 6). */
import { quoted } from "../wire/ingest/quoted.ts";

/** A pool name as it is compared: without white space around it, ASCII letters in lower case. */
export function poolKey(pool: string): string {
  return pool.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, "").replace(/[A-Z]/g, (letter) => letter.toLowerCase());
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
