/** Claims on the vectors of preparation: ids, templates, which text is tokenised, and media of extract and generate. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { callerItemId } from "../../src/prepare/caller_item_id.ts";
import { validateExtractMedia } from "../../src/prepare/media_extract.ts";
import { type GenerateMedia, normalizeGenerateMedia } from "../../src/prepare/media_generate.ts";
import { templatedText, templateFor } from "../../src/prepare/templates.ts";
import { textToTokenize } from "../../src/prepare/token_gate.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { assertNotation, encodeNotation } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";

/** Most vectors with large media hold a rule in place of the bytes; their length and digest come with them. */
interface MsgpackSource {
  readonly msgpack_hex?: string;
  readonly msgpack_len?: number;
  readonly msgpack_sha256?: string;
}

/** Bytes of a case, from hex or, for large ones, from the notation. */
function bytesOf(source: MsgpackSource, notation: unknown): Uint8Array {
  if (source.msgpack_hex !== undefined) return fromHex(source.msgpack_hex);
  const writer = new MsgpackWriter(1024);
  writeLarge(writer, notation);
  const bytes = writer.take();
  assert.equal(bytes.length, source.msgpack_len);
  assert.equal(createHash("sha256").update(bytes).digest("hex"), source.msgpack_sha256);
  return bytes;
}

/** Writes what the large cases are made of: maps, arrays, strings and repeated bytes. */
function writeLarge(writer: MsgpackWriter, value: unknown): void {
  if (typeof value === "string") return writer.text(value);
  if (Array.isArray(value)) {
    writer.arrayHeader(value.length);
    for (const item of value) writeLarge(writer, item);
    return;
  }
  assert.ok(typeof value === "object" && value !== null);
  if ("$bin_repeat" in value) {
    const [byte, length] = value.$bin_repeat as [number, number];
    writer.binHeader(length);
    writer.room(length).fill(byte);
  } else if ("$bin" in value) {
    writer.raw(encodeNotation(value));
  } else {
    const entries = Object.entries(value);
    writer.mapHeader(entries.length);
    for (const [key, inner] of entries) {
      writer.text(key);
      writeLarge(writer, inner);
    }
  }
}

function zeros(length: number): unknown {
  return { $bin_repeat: [0, length] };
}

function textOfBytes(bytes: Uint8Array | undefined): string | null {
  return bytes === undefined ? null : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** Compares a refusal's text; `*` at the end of the expected one leaves the rest open. */
function assertRefused(
  message: string | undefined,
  expected: { readonly error_code?: string; readonly error?: string },
) {
  assert.equal(expected.error_code, "INVALID_INPUT");
  const { error } = expected;
  assert.ok(error !== undefined);
  if (error.endsWith("*")) assert.equal(message?.slice(0, error.length - 1), error.slice(0, -1));
  else assert.equal(message, error);
}

interface ItemTextCase {
  readonly name: string;
  readonly item_msgpack_hex: string;
  readonly expected?: string | null;
  readonly expected_text?: string | null;
}

interface TemplateCase {
  readonly name: string;
  readonly input: {
    readonly text: string;
    readonly instruction: string | null;
    readonly is_query: boolean;
    readonly options: unknown;
    readonly default_query_template: string | null;
    readonly default_doc_template: string | null;
  };
  readonly expected: string;
}

function runTemplateCase({ input, expected }: TemplateCase): void {
  const template = templateFor(new MsgpackReader(encodeNotation(input.options)), input.is_query, {
    query: input.default_query_template ?? undefined,
    document: input.default_doc_template ?? undefined,
  });
  const values = { text: input.text, instruction: input.instruction ?? undefined };
  assert.equal(templatedText(template, values), expected);
}

interface ExtractCase extends MsgpackSource {
  readonly name: string;
  readonly item: unknown;
  readonly expected: { readonly ok: boolean; readonly error_code?: string; readonly error?: string };
}

function runExtractCase(vector: ExtractCase): void {
  const message = validateExtractMedia(new MsgpackReader(bytesOf(vector, vector.item)));
  assert.equal(message === undefined, vector.expected.ok, message);
  if (!vector.expected.ok) assertRefused(message, vector.expected);
}

interface ItemMediaCase {
  readonly name: string;
  readonly hex?: string;
  readonly input?: { readonly images_bytes: readonly number[] };
  readonly expected: { readonly ok?: boolean; readonly error_code?: string; readonly error?: string };
}

function runItemMediaCase({ hex, input, expected }: ItemMediaCase): void {
  const writer = new MsgpackWriter();
  if (hex !== undefined) writer.raw(fromHex(hex));
  else writeLarge(writer, { images: (input?.images_bytes ?? []).map((length) => ({ data: zeros(length) })) });
  const message = validateExtractMedia(new MsgpackReader(writer.view()));
  assert.equal(message === undefined, expected.ok ?? false, message);
  if (message !== undefined) assertRefused(message, expected);
}

interface PrepGenerateCase extends MsgpackSource {
  readonly name: string;
  readonly generate?: unknown;
  readonly base64_length?: number;
  readonly expected: {
    readonly ok: boolean;
    readonly generate?: unknown;
    readonly error_code?: string;
    readonly error?: string;
  };
}

function base64Request(characters: number): Uint8Array {
  const writer = new MsgpackWriter();
  writeLarge(writer, { messages: [{ images: [{ data: "A".repeat(characters) }] }] });
  return writer.take();
}

function runPrepGenerateCase(vector: PrepGenerateCase): void {
  const bytes = vector.base64_length === undefined
    ? bytesOf(vector, vector.generate)
    : base64Request(vector.base64_length);
  const media = normalizeGenerateMedia(new MsgpackReader(bytes));
  const { expected } = vector;
  assert.equal(media.kind !== "refused", expected.ok, JSON.stringify(media));
  if (media.kind === "refused") assertRefused(media.message, expected);
  else if (media.kind === "unchanged") assert.equal(expected.generate, "unchanged");
  else assertNotation(media.generate, expected.generate);
}

interface GenerateCase {
  readonly name: string;
  readonly hex?: string;
  readonly input?: {
    readonly base64_characters?: number;
    readonly images_bytes?: readonly number[];
    readonly videos_bytes?: readonly number[];
  };
  readonly expected: { readonly hex?: string; readonly error_code?: string; readonly error?: string };
}

function generateBytes({ hex, input }: GenerateCase): Uint8Array {
  if (hex !== undefined) return fromHex(hex);
  assert.ok(input !== undefined);
  if (input.base64_characters !== undefined) return base64Request(input.base64_characters);
  const list = (lengths: readonly number[] | undefined) => (lengths ?? []).map((length) => ({ data: zeros(length) }));
  const writer = new MsgpackWriter();
  writeLarge(writer, { messages: [{ images: list(input.images_bytes), videos: list(input.videos_bytes) }] });
  return writer.take();
}

/** The bytes that would go on, unless refused. */
function sentOn(media: GenerateMedia, asItCame: Uint8Array): Uint8Array | undefined {
  if (media.kind === "refused") return undefined;
  return media.kind === "unchanged" ? asItCame : media.generate;
}

function runGenerateCase(vector: GenerateCase): void {
  const bytes = generateBytes(vector);
  const media = normalizeGenerateMedia(new MsgpackReader(bytes));
  const sent = sentOn(media, bytes);
  assert.equal(sent === undefined ? undefined : toHex(sent), vector.expected.hex);
  if (media.kind === "refused") assertRefused(media.message, vector.expected);
}

function claim<C extends { readonly name: string }>(file: string, check: (vector: C) => void): VectorClaim {
  return {
    files: [file],
    cases: (data): VectorCase[] => {
      const cases = (Array.isArray(data) ? data : (data as { readonly cases: unknown }).cases) as readonly C[];
      return cases.map((vector) => ({ name: vector.name, check: () => check(vector) }));
    },
  };
}

export const prepareClaims: VectorClaim[] = [
  claim<GenerateCase>("generation/generate-media.json", runGenerateCase),
  claim<ItemMediaCase>("payload/item-media.json", runItemMediaCase),
  claim<ItemTextCase>("prep/caller_item_id.json", ({ item_msgpack_hex, expected }) => {
    assert.equal(textOfBytes(callerItemId(new MsgpackReader(fromHex(item_msgpack_hex)))), expected);
  }),
  claim<ExtractCase>("prep/media_extract.json", runExtractCase),
  claim<PrepGenerateCase>("prep/media_generate.json", runPrepGenerateCase),
  claim<TemplateCase>("prep/templates.json", runTemplateCase),
  claim<ItemTextCase>("prep/token_gate.json", ({ item_msgpack_hex, expected_text }) => {
    assert.equal(textToTokenize(new MsgpackReader(fromHex(item_msgpack_hex))) ?? null, expected_text);
  }),
];
