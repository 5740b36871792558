import { SidecarError } from "../../runtime/errors.ts";

/** What was wrong with a piece of MessagePack. */
export type MsgpackFault =
  | "truncated" /* the value, or a length it declares, goes past the end */
  | "type" /* another type than the field has */
  | "range" /* a number outside the field's range */
  | "utf8" /* text that is not valid UTF-8 */
  | "depth" /* nested deeper than MAX_DEPTH */
  | "entries" /* more entries of containers than the reader was given */
  | "reserved" /* the byte 0xc1 */
  | "field" /* a required key missing, or a known key twice */
  | "trailing"; /* bytes after the value */

/** A value that cannot be read as what it should be. The message names what was expected, what was found, and the offset. */
export class MsgpackError extends SidecarError {
  readonly fault: MsgpackFault;

  constructor(fault: MsgpackFault, message: string, options?: ErrorOptions) {
    super(`msgpack_${fault}`, message, options);
    this.fault = fault;
  }
}
