/**
 * What is checked before a message is trusted: headers of work, reply subjects, and the subjects and origin of cancel signals
 * (spec/queue.md 5.1 and 7.1). Pure.
 */

/** The only `Nats-` header that a gateway sets on work. */
const MESSAGE_ID = "nats-msg-id";

/** Start of every subject that a result may go to. */
const REPLY_PREFIX = "_INBOX.";

/**
 * The first header of a work delivery that shows it was not published by a gateway but handed on by the broker (republish,
 * mirror, source): its name starts with `Nats-` and is not `Nats-Msg-Id`, in any case. Undefined when there is none.
 */
export function foreignWorkHeader(names: Iterable<string>): string | undefined {
  for (const name of names) {
    if (isBrokerHeader(name) && name.toLowerCase() !== MESSAGE_ID) return name;
  }
  return undefined;
}

/** Whether a result may be sent to this subject, or to nobody: empty, or starting with exactly `_INBOX.`. */
export function isSafeReplySubject(subject: string): boolean {
  return subject === "" || subject.startsWith(REPLY_PREFIX);
}

/**
 * Whether a subject is one that a subscriber could have: no token is empty or a wildcard. Of a published message the broker does not
 * check that.
 */
export function isLiteralSubject(subject: string): boolean {
  return !/(?:^|\.)[*>]?(?:\.|$)/.test(subject);
}

/** Whether there is somebody to send a result to: empty and blank subjects mean fire and forget. */
export function expectsReply(subject: string): boolean {
  return isSafeReplySubject(subject) && subject.trim() !== "";
}

/** Whether a cancel signal was published by a gateway: the broker's own deliveries carry a reply subject or `Nats-` headers. */
export function isGatewaySignal(reply: string | undefined, headerNames: Iterable<string>): boolean {
  if (reply !== undefined && reply !== "") return false;
  for (const name of headerNames) if (isBrokerHeader(name)) return false;
  return true;
}

function isBrokerHeader(name: string): boolean {
  return name.slice(0, 5).toLowerCase() === "nats-";
}

/** One request of one gateway. */
export interface RequestKey {
  readonly routerId: string;
  readonly requestId: string;
}

/** Reads `work_cancel.{router_id}.{request_id}`; both parts must be non-empty, the request id may contain dots. */
export function parseWorkCancel(subject: string): RequestKey | undefined {
  const key = afterWord("work_cancel", subject);
  return key === undefined || key.routerId === "" ? undefined : key;
}

/**
 * Reads `cancel.{router_id}.{request_id}`. An empty router id still names a generation to stop; only a complete pair makes a
 * tombstone, see {@link isComplete}.
 */
export function parseCancel(subject: string): RequestKey | undefined {
  return afterWord("cancel", subject);
}

/** Whether a cancelled request can be remembered: without the router's id it could be anybody's. */
export function isComplete(key: RequestKey): boolean {
  return key.routerId !== "" && key.requestId !== "";
}

/** Reads `batch_cancel.{router_id}.{worker}.{request_id}`: the request id when it is meant for the worker with this token. */
export function parseBatchCancel(subject: string, workerToken: string): string | undefined {
  const key = afterWord("batch_cancel", subject);
  if (key === undefined) return undefined;
  const dot = key.requestId.indexOf(".");
  if (dot < 0 || key.requestId.slice(0, dot) !== workerToken) return undefined;
  const requestId = key.requestId.slice(dot + 1);
  return requestId === "" ? undefined : requestId;
}

/**
 * Longest subject of a cancel signal that is taken, in characters. What is cancelled is remembered a hundred thousand times; the ids
 * of a gateway are thirty-six characters long.
 */
const LONGEST_SIGNAL = 512;

/** Splits `{word}.{a}.{rest}`; undefined for another word, for a subject that is too long, or when the rest is missing or empty. */
function afterWord(word: string, subject: string): RequestKey | undefined {
  if (subject.length > LONGEST_SIGNAL || !subject.startsWith(`${word}.`)) return undefined;
  const start = word.length + 1;
  const dot = subject.indexOf(".", start);
  if (dot < 0 || dot === subject.length - 1) return undefined;
  return { routerId: subject.slice(start, dot), requestId: subject.slice(dot + 1) };
}
