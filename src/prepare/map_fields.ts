/** Finding the few fields of a user's map that a check looks at, without building the map. */
import type { KeyTable } from "../wire/msgpack/keys.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";

/** Where the values of known keys stand. */
export interface MapFields {
  /** Offset of the value of each key, the first one where a key is repeated; -1 where it is absent. */
  readonly at: readonly number[];
  /** Bit i is set when key i occurs more than once. */
  readonly repeated: number;
}

/**
 * Walks over the map at the reader's position. A key matches when it is a str or a bin of the name's bytes.
 *
 * @throws MsgpackError when there is no map, or the bytes are no value
 */
export function findFields(reader: MsgpackReader, keys: KeyTable): MapFields {
  const at: number[] = keys.names.map(() => -1);
  let repeated = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const key = reader.keySpan() ? keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (key >= 0) {
      if (at[key] === -1) at[key] = reader.pos;
      else repeated |= 1 << key;
    }
    reader.skip();
  }
  return { at, repeated };
}

/** Name of the first key, in the table's order, that occurs more than once. */
export function repeatedField(fields: MapFields, keys: KeyTable): string | undefined {
  return fields.repeated === 0 ? undefined : keys.names.find((_name, key) => (fields.repeated & (1 << key)) !== 0);
}
