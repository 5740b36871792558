/** SHA-256 of a model's bytes, in pieces that leave the event loop free. */
import type { Clock } from "../runtime/clock.ts";
import { Sha256 } from "../runtime/digest.ts";
import { breathe } from "./step_runner.ts";

/** Bytes hashed at a time; a few milliseconds. */
const PIECE = 4 * 1024 * 1024;

/** The digest as 64 lower-case hexadecimal digits. */
export async function sha256Hex(bytes: Uint8Array, clock: Clock): Promise<string> {
  const hash = new Sha256();
  for (let at = 0; at < bytes.length; at += PIECE) {
    if (at > 0) await breathe(clock);
    hash.update(bytes.subarray(at, at + PIECE));
  }
  return hash.digest().toHex();
}
