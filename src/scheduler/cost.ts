/**
 * Scheduler costs of items (spec/scheduler.md 3). Never billed and never used to cut an input; batches are packed by them. The
 * estimate for score works on the MessagePack as it came: nothing is decoded.
 */
import { isAscii } from "node:buffer";
import { KeyTable } from "../wire/msgpack/keys.ts";
import { isValidUtf8 } from "../wire/msgpack/content.ts";
import type { MsgpackReader } from "../wire/msgpack/reader.ts";

/** What an item that has no better estimate costs. */
export const UNIT_COST = 1;

/** While an item of prepared audio waits, no batch of its key exceeds this: 12 minutes, in milliseconds of audio. */
export const AUDIO_HARD_COST_CAP = 720_000;

/** Audio of more samples than this never shares a batch: 30 s at 16 kHz. */
export const AUDIO_SHARED_SAMPLES = 480_000;

/** The fields of an item that the scheduler looks at, where they differ from one item to the next. */
export interface ItemCost {
  readonly cost: number;
  readonly hardCostCap: number;
  readonly runsAlone: boolean;
}

/** Decoded audio as the sidecar hands it to the backend. */
export interface AudioLength {
  readonly durationMs: number;
  readonly sampleCount: number;
}

const PLAIN_ITEM: ItemCost = { cost: UNIT_COST, hardCostCap: Infinity, runsAlone: false };

/**
 * Cost of an encode or score item: the number of prepared tokens, at least 1, where the item has prepared tokens.
 *
 * @param inputIds rows of token ids, undefined when the item was not tokenised here
 * @param estimate what counts then: {@link UNIT_COST} for encode, {@link scoreCost} for score
 */
export function tokenCost(inputIds: readonly ArrayLike<unknown>[] | undefined, estimate: number): number {
  if (inputIds === undefined) return estimate;
  let tokens = 0;
  for (const row of inputIds) tokens += row.length;
  return Math.max(tokens, 1);
}

/** Cost of an extract item: milliseconds of prepared audio, which also bound its batch (3.3); 1 without audio. */
export function extractCost(audio: AudioLength | undefined): ItemCost {
  if (audio === undefined) return PLAIN_ITEM;
  return {
    cost: audio.durationMs,
    hardCostCap: AUDIO_HARD_COST_CAP,
    runsAlone: audio.sampleCount > AUDIO_SHARED_SAMPLES,
  };
}

/** What one image, recording, video or document counts as, in characters. */
const MEDIA_COST = 1024;

/** Longer text is first tried as ASCII, by the runtime's vectorised check. */
const SHORT_TEXT_BYTES = 32;

const TEXT = 0, CONTENT = 1, IMAGES = 2;
const keys = new KeyTable(["text", "content", "images", "audio", "video", "document"]);

/**
 * Estimated cost of a score item (3.2): the sum over the documents of query and document, at least 1, saturating at 2^53 - 1.
 *
 * @param query at the query value; undefined costs nothing. Moved past it
 * @param documents at the array of documents; undefined is none. Moved past it
 * @throws MsgpackError for bytes that are no value; not for spans that have been skipped before
 */
export function scoreCost(query: MsgpackReader | undefined, documents: MsgpackReader | undefined): number {
  const querySide = query === undefined ? 0 : sideCost(query);
  if (documents === undefined || documents.kind() !== "array") return 1;
  let cost = 0;
  for (let left = documents.arrayHeader(); left > 0; left--) cost += querySide + sideCost(documents);
  return Math.min(Math.max(cost, 1), Number.MAX_SAFE_INTEGER);
}

/** Characters and media of one side; 0 for anything but a map. The first of repeated keys counts. */
function sideCost(reader: MsgpackReader): number {
  if (reader.kind() !== "map") {
    reader.skip();
    return 0;
  }
  let text = -1, content = -1, media = 0, seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const key = reader.keySpan() ? keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    const bit = 1 << key;
    if (key < 0 || (seen & bit) !== 0) {
      reader.skip();
      continue;
    }
    seen |= bit;
    if (key === TEXT) text = scalarsOfValue(reader);
    else if (key === CONTENT) content = scalarsOfValue(reader);
    else if (key === IMAGES) media += lengthOfArray(reader);
    else if (!reader.nil()) {
      reader.skip();
      media++;
    }
  }
  return (text >= 0 ? text : Math.max(content, 0)) + MEDIA_COST * media;
}

function lengthOfArray(reader: MsgpackReader): number {
  if (reader.kind() !== "array") {
    reader.skip();
    return 0;
  }
  const length = reader.arrayHeader();
  for (let left = length; left > 0; left--) reader.skip();
  return length;
}

/** Unicode scalar values of a str that is valid UTF-8; 0 for any other value, bin included. */
function scalarsOfValue(reader: MsgpackReader): number {
  if (reader.kind() !== "str") {
    reader.skip();
    return 0;
  }
  // The content of a str, not checked as text yet.
  reader.keySpan();
  return countScalars(reader.bytes, reader.spanAt, reader.spanLength);
}

/** Number of Unicode scalar values in UTF-8 text, 0 if it is not valid. */
function countScalars(bytes: Uint8Array, at: number, length: number): number {
  if (length > SHORT_TEXT_BYTES && isAscii(bytes.subarray(at, at + length))) return length;
  if (!isValidUtf8(bytes, at, length)) return 0;
  // Every byte but the continuation bytes (10xxxxxx) starts a scalar value.
  let scalars = 0;
  for (let i = at; i < at + length; i++) {
    if (((bytes[i] as number) & 0xc0) !== 0x80) scalars++;
  }
  return scalars;
}
