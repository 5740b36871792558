/**
 * Memory for messages that a transport sends later: each is written in place into a slab and handed over as a part of it, without
 * a copy. A part is never written to again; a slab is freed when the last of its parts is.
 */
import { MsgpackWriter } from "../wire/msgpack/writer.ts";

/** Size of a slab in bytes. */
export const SLAB_BYTES = 256 * 1024;

/** Larger messages get memory of their own, so that a slow transport does not hold a slab for a few of its bytes. */
const OWN_MEMORY_BYTES = 32 * 1024;

/** Hands out writers and the messages written with them. One message is written at a time. */
export class MessageSlab {
  #slab = new MsgpackWriter(SLAB_BYTES);
  #current = this.#slab;
  #start = 0;

  /** A writer for one message of at most about `bound` bytes; more is allowed, but then costs a copy. */
  begin(bound: number): MsgpackWriter {
    if (bound > OWN_MEMORY_BYTES) {
      this.#current = new MsgpackWriter(bound);
    } else {
      if (this.#slab.length + bound > SLAB_BYTES) this.#slab = new MsgpackWriter(SLAB_BYTES);
      this.#current = this.#slab;
    }
    this.#start = this.#current.length;
    return this.#current;
  }

  /** The message written since {@link begin}. The caller may keep it as long as it likes. */
  finish(): Uint8Array {
    return this.#current.view(this.#start);
  }
}
