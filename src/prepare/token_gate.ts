/** Which encode items the sidecar tokenises, where a tokenizer is registered for their model (spec/preparation.md 2.2). */
import { KeyTable, textOf } from "../wire/msgpack/keys.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";
import { textField } from "./text_field.ts";

const keys = new KeyTable(["text"]);

/**
 * The text to tokenise: `item.text` when that is text and not empty. The alias `content` is not read, and media beside the text
 * do not matter. Undefined leaves the item to the backend.
 *
 * @param item at the item, of any type
 */
export function textToTokenize(item: MsgpackReader): string | undefined {
  const text = textField(item, keys);
  return text === undefined || text.length === 0 ? undefined : textOf(text, 0, text.length);
}
