import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { validateExtractMedia } from "../../src/prepare/media_extract.ts";
import { normalizeGenerateMedia } from "../../src/prepare/media_generate.ts";
import { MAX_MEDIA_BYTES } from "../../src/prepare/media_limits.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { encodeNotation } from "../harness/notation.ts";

/** The value in the middle of a message, with a reader that stands at it. */
function inside(value: Uint8Array): MsgpackReader {
  const bytes = new Uint8Array(value.length + 7).fill(0xc1);
  bytes.set(value, 3);
  return new MsgpackReader(bytes, 3, 3 + value.length);
}

function generate(notation: unknown) {
  return normalizeGenerateMedia(inside(encodeNotation(notation)));
}

function refusal(notation: unknown): string | undefined {
  const media = generate(notation);
  return media.kind === "refused" ? media.message : undefined;
}

Deno.test("only the base64 values change; all other bytes stay, in whatever form they came", () => {
  // Videos before images, keys as bin, repeated unknown keys, a wide integer, a float32 and an ext value around them.
  const around = [["seed", { $u64: "18446744073709551615" }], ["t", { $f32: 0.5 }], ["x", { $ext: [5, "0102"] }], [
    "x",
    1,
  ]];
  const request = (image: unknown, video: unknown) => ({
    $map: [
      ["a", [1, { $bin: "00ff" }]],
      [{ $bin: Buffer.from("messages").toString("hex") }, [{
        $map: [
          ["role", "user"],
          ["videos", [{ $map: [["format", "mp4"], [{ $bin: "64617461" }, video], ...around] }]],
          ["images", [{ $map: [["data", image]] }, { data: { $bin: "07" } }]],
          ["content", "é"],
        ],
      }]],
      ...around,
    ],
  });
  const media = generate(request("aW1n", " dmlkZW8= "));
  assert.equal(media.kind, "rewritten");
  const expected = encodeNotation(request({ $bin: "696d67" }, { $bin: "766964656f" }));
  assert.deepEqual(media.kind === "rewritten" && new Uint8Array(media.generate), expected);
});

Deno.test("a wide header that could be shorter stays as it is", () => {
  const hex = "df00000001" + "da0008" + Buffer.from("messages").toString("hex") + "dd00000000";
  const bytes = new Uint8Array(Buffer.from(hex, "hex"));
  const reader = inside(bytes);
  assert.deepEqual(normalizeGenerateMedia(reader), { kind: "unchanged" });
  reader.expectEnd();
});

/** A request with images of the given base64 texts. */
function imagesRequest(...texts: string[]): MsgpackReader {
  const writer = new MsgpackWriter();
  writer.mapHeader(1);
  writer.text("messages");
  writer.arrayHeader(1);
  writer.mapHeader(1);
  writer.text("images");
  writer.arrayHeader(texts.length);
  for (const text of texts) {
    writer.mapHeader(1);
    writer.text("data");
    writer.text(text);
  }
  return new MsgpackReader(writer.take());
}

Deno.test("base64 counts with its decoded size, and the largest allowed sum is allowed", () => {
  const half = MAX_MEDIA_BYTES / 2;
  const [fitting, oneMore] = [half, half + 1].map((bytes) => Buffer.alloc(bytes).toString("base64"));
  assert.ok(fitting !== undefined && oneMore !== undefined);
  const media = normalizeGenerateMedia(imagesRequest(fitting, fitting));
  assert.equal(media.kind === "rewritten" && media.generate.length > MAX_MEDIA_BYTES, true);
  assert.deepEqual(normalizeGenerateMedia(imagesRequest(fitting, oneMore)), {
    kind: "refused",
    message: "media payload is too large (16777217 bytes); maximum is 16777216 bytes per item",
  });
});

Deno.test("a text over the limit is refused before it is decoded, even when it is no base64", () => {
  assert.deepEqual(normalizeGenerateMedia(imagesRequest("!".repeat(22_369_628))), {
    kind: "refused",
    message: "media payload is too large (16777221 bytes); maximum is 16777216 bytes per item",
  });
});

Deno.test("checks go message by message, images before videos, format before data", () => {
  const image = { data: { $bin: "01" } };
  assert.equal(
    refusal({ messages: [{ images: [{ data: 5 }] }, "x"] }),
    "generate.messages[0].images[0].data must be non-empty bytes or a non-empty base64 string",
  );
  assert.equal(
    refusal({ messages: [{ videos: "x", images: [{ data: "?" }] }] }),
    "generate.messages[0].images[0].data is invalid base64: Invalid symbol 63, offset 0.",
  );
  assert.equal(
    refusal({ messages: [{ images: [image, { data: 5, format: 5 }] }] }),
    "generate.messages[0].images[1].format must be a string or null",
  );
  assert.equal(
    refusal({ messages: [{ images: [image] }, { images: [{ $map: [["format", null], ["format", null]] }] }] }),
    "generate.messages[1].images[0] contains duplicate 'format' fields",
  );
  assert.equal(
    refusal({ messages: [{ images: [{ data: { $raw_str: "61ff6161" } }] }] }),
    "generate.messages[0].images[0].data must be non-empty bytes or a non-empty base64 string",
  );
});

Deno.test("an extract item is checked where it stands in its message", () => {
  const check = (notation: unknown) => validateExtractMedia(inside(encodeNotation(notation)));
  assert.equal(
    check({ document: { data: { $bin: "01" } }, images: [{ data: { $bin: "01" }, format: "png" }] }),
    undefined,
  );
  assert.equal(
    check({ images: [{ $map: [[7, 1], ["data", { $bin: "01" }]] }] }),
    undefined,
    "other keys do not matter",
  );
  assert.equal(
    check({ document: { $map: [["data", 1], ["data", 2], ["format", 1], ["format", 1]] } }),
    "document contains duplicate 'data' fields",
  );
});

Deno.test("bytes that are no MessagePack are an error, not a refusal", () => {
  const cut = encodeNotation({ images: [{ data: { $bin: "01" } }] }).subarray(0, -1);
  assert.throws(() => validateExtractMedia(new MsgpackReader(cut)), MsgpackError);
  assert.throws(() => normalizeGenerateMedia(new MsgpackReader(cut)), MsgpackError);
});
