/** What extract and generate have in common in the check of media (spec/preparation.md 6 and 10.1). */
import { SidecarError } from "../runtime/errors.ts";
import { KeyTable } from "../wire/msgpack/keys.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";
import { findFields, repeatedField } from "./map_fields.ts";

/** Largest number of images of an extract item, or of a generate request over all its messages. */
export const MAX_IMAGES = 16;
/** Largest number of videos of a generate request. */
export const MAX_VIDEOS = 1;
/** Largest sum of media bytes of an extract item or a generate request: 16 MiB. */
export const MAX_MEDIA_BYTES = 16 * 1024 * 1024;

/** Media that are refused. The message is the contract's and goes to the caller; it names paths and sizes only. */
export class MediaRefused extends SidecarError {
  constructor(message: string) {
    super("INVALID_INPUT", message);
  }
}

/** Counts media bytes against {@link MAX_MEDIA_BYTES}. */
export class MediaBudget {
  #bytes = 0;

  /** Adds the size of one medium, known or estimated from its encoded length. Throws MediaRefused. */
  add(bytes: number): void {
    this.#bytes += bytes;
    checkMediaBytes(this.#bytes);
  }
}

/** Throws MediaRefused for more bytes than an item may hold. */
export function checkMediaBytes(bytes: number): void {
  if (bytes > MAX_MEDIA_BYTES) {
    throw new MediaRefused(`media payload is too large (${bytes} bytes); maximum is ${MAX_MEDIA_BYTES} bytes per item`);
  }
}

/** Throws MediaRefused for more images or videos than allowed. */
export function checkMediaCount(kind: "images" | "videos", count: number): void {
  const most = kind === "images" ? MAX_IMAGES : MAX_VIDEOS;
  if (count > most) throw new MediaRefused(`too many ${kind} (${count}); maximum is ${most} per item`);
}

const keys = new KeyTable(["data", "format"]);

/** Offsets of a media map's two known values, -1 where absent. */
export interface MediaFields {
  readonly dataAt: number;
  readonly formatAt: number;
}

/** Finds `data` and `format` of the media map at the reader's position and moves past it. Throws MediaRefused for a repeated one. */
export function mediaFields(reader: MsgpackReader, path: string): MediaFields {
  const fields = findFields(reader, keys);
  const repeated = repeatedField(fields, keys);
  if (repeated !== undefined) throw new MediaRefused(`${path} contains duplicate '${repeated}' fields`);
  const [dataAt = -1, formatAt = -1] = fields.at;
  return { dataAt, formatAt };
}

/** Throws MediaRefused unless the format is absent (-1), nil or any str; formats are advice, so their text is not looked at. */
export function checkMediaFormat(reader: MsgpackReader, formatAt: number, path: string): void {
  if (formatAt < 0) return;
  reader.pos = formatAt;
  const kind = reader.kind();
  if (kind !== "nil" && kind !== "str") throw new MediaRefused(`${path}.format must be a string or null`);
}
