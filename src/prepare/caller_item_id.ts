/** The id that a caller gave an item; framed encode results carry it (spec/preparation.md 1.2). */
import { KeyTable } from "../wire/msgpack/keys.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";
import { textField } from "./text_field.ts";

const keys = new KeyTable(["id"]);

/**
 * UTF-8 of `item.id` when that is text; the empty text is an id too. Undefined for anything else.
 *
 * @param item at the item, of any type
 */
export function callerItemId(item: MsgpackReader): Uint8Array | undefined {
  return textField(item, keys);
}
