/**
 * The broker's status messages to a pull request: one predicate per answer, and what to do about it. The broker knows them only by
 * number and text.
 */

/** A status message, as read from its headers. */
export class PullStatus {
  readonly code: number;
  /** Lower case. */
  readonly description: string;
  /** Messages of the request that will not come, where the broker says so. */
  readonly unserved: number | undefined;

  constructor(code: number, description: string, unserved?: number) {
    this.code = code;
    this.description = description.trim().toLowerCase();
    this.unserved = unserved;
  }

  get text(): string {
    return `${this.code} ${this.description}`;
  }

  isHeartbeat(): boolean {
    return this.code === 100;
  }

  /** The request's time is over. */
  isExpired(): boolean {
    return this.code === 408;
  }

  /** Nothing there; only for requests that do not wait. */
  isNoMessages(): boolean {
    return this.code === 404;
  }

  /** Nobody serves the request: no such stream or consumer, or JetStream is not there. */
  isNoResponders(): boolean {
    return this.code === 503;
  }

  isConsumerDeleted(): boolean {
    return this.code === 409 && (this.description === "consumer deleted" || this.description === "stream deleted");
  }

  isLeadershipChange(): boolean {
    return this.code === 409 && this.description === "leadership change";
  }

  isServerShutdown(): boolean {
    return this.code === 409 && this.description === "server shutdown";
  }

  isMaxWaitingExceeded(): boolean {
    return this.code === 409 && this.description.startsWith("exceeded maxwaiting");
  }

  /** The request is used up. */
  isBatchCompleted(): boolean {
    return this.code === 409 && this.description === "batch completed";
  }

  isMaxBatchExceeded(): boolean {
    return this.code === 409 && this.description.startsWith("exceeded maxrequestbatch");
  }

  isMaxExpiresExceeded(): boolean {
    return this.code === 409 && this.description.startsWith("exceeded maxrequestexpires");
  }

  isPushBased(): boolean {
    return this.code === 409 && this.description === "consumer is push based";
  }

  isBadRequest(): boolean {
    return this.code === 400;
  }
}

/** What a pull loop does about a status. */
export type StatusReaction =
  /** The broker is there; nothing else. */
  | "alive"
  /** Ask again at once. */
  | "ask_again"
  /** Ask again after a pause: the broker is busy with itself. */
  | "ask_later"
  /** Ask for fewer messages at a time. */
  | "ask_less"
  /** Ask with a shorter expiry. */
  | "ask_shorter"
  /** Look the consumer up and make it when it is gone. */
  | "rebuild"
  /** The broker will not serve this request whatever we do; try again after a long pause. */
  | "refused";

/** The reaction to a status. */
export function reactionTo(status: PullStatus): StatusReaction {
  if (status.isHeartbeat()) return "alive";
  if (status.isExpired() || status.isNoMessages() || status.isBatchCompleted()) return "ask_again";
  if (status.isLeadershipChange() || status.isServerShutdown() || status.isMaxWaitingExceeded()) return "ask_later";
  if (status.isMaxBatchExceeded()) return "ask_less";
  if (status.isMaxExpiresExceeded()) return "ask_shorter";
  if (status.isConsumerDeleted() || status.isNoResponders()) return "rebuild";
  if (status.isPushBased() || status.isBadRequest()) return "refused";
  return "ask_later";
}
