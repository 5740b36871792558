/**
 * Credit of a pull loop: how many messages the broker has been asked for and has not sent. The broker tells when a request expires
 * and how much of it was left, but not when one is used up; what it does not tell is bounded by the requests' own expiry, so that a
 * lost status can never leave the loop waiting for credit that does not exist. Pure.
 */

interface Request {
  readonly id: number;
  readonly batch: number;
  /** Clock time after which the broker has surely forgotten it, milliseconds. */
  readonly goneAt: number;
}

/** Time after the expiry in which its status may still be on the way. */
const GRACE_MS = 2_000;

/** Counts credit. */
export class PullRequests {
  #requests: Request[] = [];
  #credit = 0;
  #nextId = 0;

  /** Messages asked for and not sent. */
  get credit(): number {
    return this.#credit;
  }

  /** Requests that may still be alive. */
  get open(): number {
    return this.#requests.length;
  }

  /** Notes a request and returns its number, which its status messages will name. */
  ask(batch: number, expiresMs: number, now: number): number {
    const id = this.#nextId++;
    this.#requests.push({ id, batch, goneAt: now + expiresMs + GRACE_MS });
    this.#credit += batch;
    return id;
  }

  /** Notes a message. More than was asked for cannot be owed. */
  received(): void {
    if (this.#credit > 0) this.#credit--;
    // Used-up requests send no status: with nothing left to come none of them is alive.
    if (this.#credit === 0 && this.#requests.length > 0) this.#requests = [];
  }

  /**
   * Notes that a request has ended.
   *
   * @param unserved what was left of it; undefined when the broker did not say
   * @param refused the broker never took it: all of it is left
   */
  ended(id: number, unserved: number | undefined, refused: boolean): void {
    const at = this.#requests.findIndex((request) => request.id === id);
    const request = this.#requests[at];
    if (request === undefined) return;
    this.#requests.splice(at, 1);
    const left = refused ? request.batch : Math.min(unserved ?? request.batch, request.batch);
    this.#credit = Math.max(0, this.#credit - left);
    this.#bound();
  }

  /** Forgets requests whose time is over, and with them the credit that nobody can redeem. */
  expire(now: number): void {
    if (this.#requests.every(({ goneAt }) => goneAt > now)) return;
    this.#requests = this.#requests.filter(({ goneAt }) => goneAt > now);
    this.#bound();
  }

  /** Forgets everything: the connection or the consumer is gone. Numbers of old requests mean nothing from now on. */
  clear(): void {
    this.#requests = [];
    this.#credit = 0;
  }

  #bound(): void {
    let most = 0;
    for (const { batch } of this.#requests) most += batch;
    this.#credit = Math.min(this.#credit, most);
  }
}
