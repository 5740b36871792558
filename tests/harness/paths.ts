/** File names for tests; thin wrappers so that no test depends on where the checkout lies. */
import { fileURLToPath } from "node:url";
import { join as nodeJoin } from "node:path";

/** Path of a `file:` URL. */
export function fromFileUrl(url: URL): string {
  return fileURLToPath(url);
}

/** Joins path parts. */
export function join(...parts: string[]): string {
  return nodeJoin(...parts);
}

/** Bytes of a hexadecimal string; spaces are ignored. */
export function fromHex(hex: string): Uint8Array {
  const digits = hex.replaceAll(/\s/g, "");
  if (digits.length % 2 !== 0 || /[^0-9a-fA-F]/.test(digits)) throw new Error(`not hexadecimal: ${hex.slice(0, 40)}`);
  const bytes = new Uint8Array(digits.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(digits.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** Lower-case hexadecimal form of bytes. */
export function toHex(bytes: Uint8Array): string {
  let hex = "";
  for (const byte of bytes) hex += byte.toString(16).padStart(2, "0");
  return hex;
}
