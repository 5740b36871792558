/**
 * The three messages that settle a JetStream delivery, published to its reply subject (spec/queue.md 5). There is no TERM, and a
 * NAK always has a delay.
 */

const utf8 = new TextEncoder();

/** Done: the broker removes the message. */
export const ACK_BODY: Uint8Array = utf8.encode("+ACK");

/** Still working: the broker starts the ack wait anew. */
export const PROGRESS_BODY: Uint8Array = utf8.encode("+WPI");

const NANOSECONDS = 1_000_000;

/** Bodies by delay: there are a handful of delays in the life of a process. */
const nakBodies = new Map<number, Uint8Array>();
const CACHED_BODIES = 64;

/**
 * Not now: the broker delivers again after `delayMs` milliseconds. The delay is whole nanoseconds on the wire, at least 1: a
 * delay of 0 would mean "at once".
 */
export function nakBody(delayMs: number): Uint8Array {
  const known = nakBodies.get(delayMs);
  if (known !== undefined) return known;
  const nanoseconds = Math.max(1, Math.round(delayMs * NANOSECONDS));
  if (!Number.isSafeInteger(nanoseconds)) throw new RangeError(`no delay in milliseconds: ${delayMs}`);
  const body = utf8.encode(`-NAK {"delay":${nanoseconds}}`);
  if (nakBodies.size < CACHED_BODIES) nakBodies.set(delayMs, body);
  return body;
}
