/**
 * The check of an extract item's images and document (spec/preparation.md 6), a second line behind the gateway's. Nothing is
 * changed or copied, and neither pixels nor documents are looked into. `audio` and `video` have checks of their own, or none.
 */
import { KeyTable } from "../wire/msgpack/keys.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";
import { findFields, repeatedField } from "./map_fields.ts";
import { checkMediaCount, checkMediaFormat, MediaBudget, mediaFields, MediaRefused } from "./media_limits.ts";

const keys = new KeyTable(["images", "document"]);

/**
 * Checks the item at the reader's position, whose bytes must be well-formed.
 *
 * @returns why the item is refused (code `INVALID_INPUT`), undefined when it is fine
 */
export function validateExtractMedia(item: MsgpackReader): string | undefined {
  try {
    check(item);
    return undefined;
  } catch (thrown) {
    if (thrown instanceof MediaRefused) return thrown.message;
    throw thrown;
  }
}

function check(item: MsgpackReader): void {
  if (item.kind() !== "map") throw new MediaRefused("item must be a map");
  const fields = findFields(item, keys);
  const repeated = repeatedField(fields, keys);
  if (repeated !== undefined) throw new MediaRefused(`item contains duplicate '${repeated}' fields`);
  const [imagesAt = -1, documentAt = -1] = fields.at;
  const budget = new MediaBudget();
  if (imagesAt >= 0) {
    item.pos = imagesAt;
    checkImages(item, budget);
  }
  if (documentAt >= 0) {
    item.pos = documentAt;
    if (!item.nil()) checkMedium(item, "document", budget);
  }
}

function checkImages(reader: MsgpackReader, budget: MediaBudget): void {
  if (reader.nil()) return;
  if (reader.kind() !== "array") throw new MediaRefused("images must be an array or null");
  const count = reader.arrayHeader();
  checkMediaCount("images", count);
  for (let i = 0; i < count; i++) checkMedium(reader, `images[${i}]`, budget);
}

/** Checks one media map and moves past it. */
function checkMedium(reader: MsgpackReader, path: string, budget: MediaBudget): void {
  if (reader.kind() !== "map") throw new MediaRefused(`${path} must be a map with a 'data' field`);
  const { dataAt, formatAt } = mediaFields(reader, path);
  const end = reader.pos;
  reader.pos = dataAt;
  const isBin = dataAt >= 0 && reader.kind() === "bin";
  if (isBin) reader.binSpan();
  const size = isBin ? reader.spanLength : 0;
  if (size === 0) throw new MediaRefused(`${path}.data must be non-empty bytes`);
  checkMediaFormat(reader, formatAt, path);
  budget.add(size);
  reader.pos = end;
}
