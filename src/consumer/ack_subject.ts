/** The reply subject of a JetStream delivery, which tells how often and from where the message came. Pure. */

/** What an ACK subject says. */
export interface DeliveryInfo {
  /** How often the message has been delivered, this time included. */
  readonly attempt: number;
  /** Sequence of the message in its stream. */
  readonly streamSequence: number;
  /** Messages that wait for this consumer beyond this one. */
  readonly pending: number;
}

/** Position of the delivery count: `$JS.ACK.stream.durable.count…`, or with domain and account in front of the stream. */
const SHORT_COUNT_AT = 4;
const LONG_COUNT_AT = 6;
const SHORT_TOKENS = 9;
const LONG_TOKENS = 11;

const DOT = 46;
const ZERO = 48;
const NINE = 57;

/** Reads an ACK subject; undefined when it is none. */
export function parseAckSubject(subject: string): DeliveryInfo | undefined {
  const tokens = subject.split(".");
  if (tokens[0] !== "$JS" || tokens[1] !== "ACK") return undefined;
  const at = tokens.length === SHORT_TOKENS ? SHORT_COUNT_AT : tokens.length >= LONG_TOKENS ? LONG_COUNT_AT : undefined;
  if (at === undefined) return undefined;
  const [attempt, streamSequence, pending] = [tokens[at], tokens[at + 1], tokens[at + 4]].map(Number);
  if (!Number.isSafeInteger(attempt) || !Number.isSafeInteger(streamSequence) || !Number.isSafeInteger(pending)) {
    return undefined;
  }
  return { attempt: attempt as number, streamSequence: streamSequence as number, pending: pending as number };
}

/**
 * The delivery count alone, without making anything: it is read for every message. 0 when the subject does not tell.
 *
 * @param prefix what subjects of the lane begin with up to the count; another beginning costs a closer look
 */
export function attemptOf(subject: string, prefix: string): number {
  if (!subject.startsWith(prefix)) return parseAckSubject(subject)?.attempt ?? 0;
  let attempt = 0;
  for (let i = prefix.length; i < subject.length; i++) {
    const code = subject.charCodeAt(i);
    if (code === DOT) return attempt;
    if (code < ZERO || code > NINE) return 0;
    attempt = attempt * 10 + code - ZERO;
  }
  return 0;
}
