/** What a score item has to ask with. */
import { KeyTable } from "../wire/msgpack/keys.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";

const keys = new KeyTable(["text", "content", "images", "audio", "video", "document"]);

/**
 * Whether a query holds neither text nor media. The backend scores the pairs of a whole batch together and fails all of them for
 * one query without anything to ask with; seen on the real one.
 *
 * @param query at the query's map, which must be well-formed
 */
export function isEmptyQuery(query: MsgpackReader): boolean {
  for (let left = query.mapHeader(); left > 0; left--) {
    const isKnown = query.keySpan() && keys.indexOf(query.bytes, query.spanAt, query.spanLength) >= 0;
    const holdsNothing = query.nil() || (query.kind() === "array" && isEmptyArray(query));
    if (holdsNothing) continue;
    if (isKnown) return false;
    query.skip();
  }
  return true;
}

/** Consumes the array when it is empty. */
function isEmptyArray(reader: MsgpackReader): boolean {
  const start = reader.pos;
  if (reader.arrayHeader() === 0) return true;
  reader.pos = start;
  return false;
}
