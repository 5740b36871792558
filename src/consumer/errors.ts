/** Errors of the broker side. */
import { SidecarError } from "../runtime/errors.ts";

/** What went wrong with the broker. */
export type BrokerFault =
  | "connect" /* the first connection could not be made */
  | "credentials" /* a file with credentials, key or certificates cannot be used */
  | "closed" /* the connection is closed for good */
  | "disconnected" /* the connection broke and did not come back in time, or a message may have been lost with it */
  | "too_large" /* a message above the server's max_payload */
  | "subject" /* a subject that cannot be published to */
  | "permission" /* the user lacks a right */
  | "provision"; /* a stream or consumer cannot be made or corrected */

/** An error of the broker side. Code `broker_<fault>`. */
export class BrokerError extends SidecarError {
  readonly fault: BrokerFault;

  constructor(fault: BrokerFault, message: string, options?: ErrorOptions) {
    super(`broker_${fault}`, message, options);
    this.fault = fault;
  }
}
