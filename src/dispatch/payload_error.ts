import { SidecarError } from "../runtime/errors.ts";

/** A referenced payload above the worker's limit (spec/preparation.md 1.1). The message names the limit and the size. */
export class PayloadTooLargeError extends SidecarError {
  constructor(actualBytes: number, limitBytes: number) {
    super("payload_too_large", `the referenced payload has ${actualBytes} bytes; maximum is ${limitBytes} bytes`);
  }
}
