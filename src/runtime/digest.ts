/** SHA-256, the digest of chunked answers and of local ingest. The only place that names the implementation. */
import { createHash } from "node:crypto";

/** SHA-256 of `bytes`: 32 bytes. */
export function sha256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("sha256").update(bytes).digest());
}

/** SHA-256 of bytes that come in pieces. */
export class Sha256 {
  readonly #hash = createHash("sha256");

  /** Adds the next piece. */
  update(bytes: Uint8Array): void {
    this.#hash.update(bytes);
  }

  /** The digest, 32 bytes; nothing may be added afterwards. */
  digest(): Uint8Array {
    return new Uint8Array(this.#hash.digest());
  }
}
