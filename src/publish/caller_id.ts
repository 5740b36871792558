import { isValidUtf8, MsgpackReader } from "../wire/msgpack/reader.ts";

/**
 * The id that the caller gave an encode item: the value of `id` in its map, a str or a bin that is valid UTF-8; anything else is no
 * id (spec/queue.md 2.1).
 *
 * @returns UTF-8, a view of `bytes`; undefined when there is none
 */
export function callerItemId(bytes: Uint8Array, at: number, end: number): Uint8Array | undefined {
  const reader = new MsgpackReader(bytes, at, end);
  if (reader.kind() !== "map") return undefined;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const isKey = reader.keySpan() && reader.spanLength === 2 && bytes[reader.spanAt] === 0x69 &&
      bytes[reader.spanAt + 1] === 0x64;
    if (!isKey) {
      reader.skip();
      continue;
    }
    if (!reader.keySpan() || !isValidUtf8(bytes, reader.spanAt, reader.spanLength)) return undefined;
    return bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
  }
  return undefined;
}
