/** One text field of a user's map, as UTF-8 bytes of the message. */
import type { KeyTable } from "../wire/msgpack/keys.ts";
import { isValidUtf8 } from "../wire/msgpack/content.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";

/**
 * Content of the first key that is in `keys`, when its value is a str or bin of valid UTF-8.
 *
 * @param reader at the value that may be a map
 * @returns a view on the message; undefined for no map, no such key, or any other value
 */
export function textField(reader: MsgpackReader, keys: KeyTable): Uint8Array | undefined {
  if (reader.kind() !== "map") return undefined;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const isKey = reader.keySpan() && keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) >= 0;
    if (!isKey) {
      reader.skip();
      continue;
    }
    const kind = reader.kind();
    if (kind !== "str" && kind !== "bin") return undefined;
    // Content of a str or bin, not checked as text yet.
    reader.keySpan();
    const { bytes, spanAt, spanLength } = reader;
    return isValidUtf8(bytes, spanAt, spanLength) ? bytes.subarray(spanAt, spanAt + spanLength) : undefined;
  }
  return undefined;
}
