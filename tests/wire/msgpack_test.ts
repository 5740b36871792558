/** The bounded reader and the writer against an independent codec, on every format and on random bytes. */
import assert from "node:assert/strict";
import { isValidUtf8 } from "../../src/wire/msgpack/content.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import {
  BAD_EXTENSION,
  BAD_KEY,
  BAD_UTF8,
  HAS_BIN_OR_EXT,
  MAX_DEPTH,
  MsgpackReader,
  SAFE_DEPTH,
  TOO_DEEP,
} from "../../src/wire/msgpack/reader.ts";
import { transcode } from "../../src/wire/msgpack/transcode.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { readValue, type Value, writeValue } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below, randomBytes, randomValue } from "./random_values.ts";

/** The flags that a walk over `value` must find, computed from the value. */
function flagsOf(value: Value): number {
  switch (value.type) {
    case "str":
      return validUtf8(value.hex) ? 0 : BAD_UTF8;
    case "bin":
      return HAS_BIN_OR_EXT;
    case "ext":
      return HAS_BIN_OR_EXT | (validExtension(value.code, value.hex) ? 0 : BAD_EXTENSION);
    case "array":
      return value.items.reduce((flags, item) => flags | flagsOf(item), 0);
    case "map":
      return value.pairs.reduce((flags, [key, inner]) => {
        const badKey = key.type === "str" || key.type === "bin" ? 0 : BAD_KEY;
        return flags | badKey | flagsOf(key) | flagsOf(inner);
      }, 0);
    default:
      return 0;
  }
}

function validExtension(code: number, hex: string): boolean {
  if (code !== -1) return code >= 0;
  const first = BigInt(`0x${hex.slice(0, 8) || "0"}`);
  if (hex.length === 16) return first >> 2n < 1_000_000_000n;
  return hex.length === 8 || (hex.length === 24 && first < 1_000_000_000n);
}

function validUtf8(hex: string): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(fromHex(hex));
    return true;
  } catch {
    return false;
  }
}

function skipped(bytes: Uint8Array): number | MsgpackError {
  const reader = new MsgpackReader(bytes);
  try {
    const flags = reader.skip();
    reader.expectEnd();
    return flags;
  } catch (thrown) {
    if (thrown instanceof MsgpackError) return thrown;
    throw thrown;
  }
}

function transcoded(bytes: Uint8Array): Uint8Array {
  const writer = new MsgpackWriter();
  const reader = new MsgpackReader(bytes);
  transcode(reader, writer);
  reader.expectEnd();
  return writer.take();
}

Deno.test("well-formed values are walked over with the right flags, and copied byte for byte", () => {
  const random = new SeededRandom(1);
  for (let i = 0; i < 1500; i++) {
    const value = randomValue(random, { depth: 4, wild: i % 3 !== 0 });
    const bytes = writeValue(value);
    assert.equal(skipped(bytes), flagsOf(value), toHex(bytes));
    assert.equal(toHex(transcoded(bytes)), toHex(bytes));
  }
});

Deno.test("extensions that the backend cannot read are noted", () => {
  const cases: readonly [string, boolean][] = [
    ["d6ffffffffff", true],
    ["d7ffee6b27fc00000000", true], /* 999,999,999 ns */
    ["d7ffee6b280000000000", false], /* 1,000,000,000 ns */
    ["c708ffee6b27ff00000000", true], /* the highest bits of the seconds belong to the same bytes */
    ["c708ffffffffff00000000", false],
    ["c70cff3b9ac9ff0000000000000000", true],
    ["c70cff3b9aca000000000000000000", false],
    ["c70cff3b9ac9ff8000000000000000", true], /* years before any calendar: the backend keeps them as numbers */
    ["d4ff00", false],
    ["c700ff", false],
  ];
  for (const [hex, isValid] of cases) {
    assert.equal(skipped(fromHex(hex)), HAS_BIN_OR_EXT | (isValid ? 0 : BAD_EXTENSION), hex);
  }
});

Deno.test("long forms are copied in their shortest", () => {
  const forms: readonly [string, string][] = [
    ["cc05", "05"],
    ["cd0005", "05"],
    ["ce00000005", "05"],
    ["cf0000000000000005", "05"],
    ["d005", "05"],
    ["d0ff", "ff"],
    ["d1ff80", "d080"],
    ["d3ffffffffffffffff", "ff"],
    ["d30000000000000080", "cc80"],
    ["cf00000000ffffffff", "ceffffffff"],
    ["d90161", "a161"],
    ["da000161", "a161"],
    ["db0000000161", "a161"],
    ["c5000161", "c40161"],
    ["c60000000161", "c40161"],
    ["dc000105", "9105"],
    ["dd00000001cd0005", "9105"],
    ["de0001a161cc05", "81a16105"],
    ["df00000001a16105", "81a16105"],
    ["c7010561", "d40561"],
    ["c80001ff61", "d4ff61"],
    ["c900000003fe616263", "c703fe616263"],
    ["c7100500112233445566778899aabbccddeeff", "d80500112233445566778899aabbccddeeff"],
  ];
  for (const [long, short] of forms) {
    assert.equal(toHex(transcoded(fromHex(long))), short, long);
    assert.deepEqual(readValue(fromHex(short)), readValue(fromHex(long)));
  }
});

Deno.test("any bytes are either a value to both codecs or to neither", () => {
  const random = new SeededRandom(2);
  let accepted = 0;
  for (let i = 0; i < 6000; i++) {
    const bytes = i % 2 === 0 ? randomBytes(random, below(random, 24)) : mutated(random);
    const ours = skipped(bytes);
    let theirs: Value | undefined;
    try {
      theirs = readValue(bytes);
    } catch {
      theirs = undefined;
    }
    if (theirs === undefined) assert.ok(ours instanceof MsgpackError, `accepted ${toHex(bytes)}`);
    else {
      accepted++;
      assert.equal(ours, flagsOf(theirs), toHex(bytes));
    }
  }
  assert.ok(accepted > 500 && accepted < 5500, `${accepted} of the random messages are values`);
});

/** A valid value with a few bytes changed, cut off, or added. */
function mutated(random: SeededRandom): Uint8Array {
  let bytes = writeValue(randomValue(random, { depth: 3, wild: true }));
  for (let edits = 1 + below(random, 3); edits > 0; edits--) {
    const at = below(random, bytes.length + 1);
    switch (below(random, 3)) {
      case 0:
        bytes = bytes.slice();
        if (at < bytes.length) bytes[at] = below(random, 256);
        break;
      case 1:
        bytes = bytes.slice(0, at);
        break;
      default:
        bytes = Uint8Array.of(
          ...bytes.slice(0, at),
          random.pick([0xc1, 0xdf, 0xdd, 0xc6, 0x00, 0x91]),
          ...bytes.slice(at),
        );
    }
  }
  return bytes;
}

Deno.test("integers are exact to 64 bits, and 53 bits where a number is asked for", () => {
  const read = (hex: string) => new MsgpackReader(fromHex(hex)).bigInteger();
  assert.equal(read("cfffffffffffffffff"), (1n << 64n) - 1n);
  assert.equal(read("d38000000000000000"), -(1n << 63n));
  assert.equal(read("cf0020000000000001"), 9007199254740993n);
  assert.equal(new MsgpackReader(fromHex("cf001fffffffffffff")).integer(), Number.MAX_SAFE_INTEGER);
  assert.throws(() => new MsgpackReader(fromHex("cf0020000000000000")).integer(), /does not fit 53 bits/);
  assert.throws(() => new MsgpackReader(fromHex("ff")).unsigned(10), /integer -1 at offset 0 is outside 0..=10/);
  assert.throws(() => new MsgpackReader(fromHex("0b")).unsigned(10), /integer 11 at offset 0 is outside 0..=10/);
  assert.throws(() => new MsgpackReader(fromHex("cb3ff0000000000000")).unsigned(10), /expected int, got float/);
});

Deno.test("the writer chooses the shortest form at every boundary", () => {
  const random = new SeededRandom(3);
  const writer = new MsgpackWriter(16);
  for (let i = 0; i < 400; i++) {
    const bits = below(random, 65);
    const value = BigInt.asUintN(bits, BigInt(below(random, 2 ** 32)) << BigInt(below(random, 33)));
    for (const exact of [value, -value >= -(1n << 63n) ? -value : 0n, value + 1n < 1n << 64n ? value + 1n : 0n]) {
      writer.clear();
      if (Number.isSafeInteger(Number(exact))) writer.integer(Number(exact));
      else writer.bigInteger(exact);
      assert.equal(toHex(writer.view()), toHex(writeValue({ type: "int", value: exact })), String(exact));
    }
  }
  for (const length of [0, 1, 31, 32, 255, 256, 65535, 65536]) {
    // Two bytes a letter: the header is chosen for bytes, and moved when it was guessed too long.
    for (const letter of ["a", "é", "日"]) {
      const text = letter.repeat(length);
      writer.clear();
      writer.text(text);
      const hex = toHex(new TextEncoder().encode(text));
      assert.equal(toHex(writer.view()), toHex(writeValue({ type: "str", hex })), `${length} ${letter}`);
    }
    writer.clear();
    writer.bin(new Uint8Array(length));
    assert.equal(toHex(writer.view()), toHex(writeValue({ type: "bin", hex: "00".repeat(length) })));
    writer.clear();
    writer.extHeader(-3, length);
    writer.raw(new Uint8Array(length));
    assert.equal(toHex(writer.view()), toHex(writeValue({ type: "ext", code: -3, hex: "00".repeat(length) })));
  }
});

Deno.test("depth is bounded before the stack is, and what is too deep to pass on is told", () => {
  const nested = (levels: number, open = 0x91) => Uint8Array.from([...new Array(levels).fill(open), 0xc0]);
  assert.equal(skipped(nested(SAFE_DEPTH)), 0);
  assert.equal(skipped(nested(SAFE_DEPTH + 1)), TOO_DEEP);
  assert.equal(skipped(nested(MAX_DEPTH)), TOO_DEEP);
  const deeper = skipped(nested(MAX_DEPTH + 1));
  assert.ok(deeper instanceof MsgpackError && deeper.fault === "depth");
  assert.match(deeper.message, new RegExp(`nested deeper than ${MAX_DEPTH} levels at offset ${MAX_DEPTH + 1}`));
  assert.throws(() => transcoded(nested(MAX_DEPTH + 1)), { code: "msgpack_depth" });
  assert.equal(toHex(transcoded(nested(MAX_DEPTH))), toHex(nested(MAX_DEPTH)));
  // Containers that are closed do not add up.
  const wide = Uint8Array.from([0xdc, 0x20, 0x00, ...new Array(0x2000).fill(0x90)]);
  assert.equal(skipped(wide), 0);
});

Deno.test("a count or length that cannot be true is refused where it stands", () => {
  const lies: readonly [string, string][] = [
    ["dfffffffff", "map of 4294967295 entries at offset 5, but only 0 bytes are left"],
    ["ddffffffff00", "array of 4294967295 entries at offset 5, but only 1 bytes are left"],
    ["de000200", "map of 2 entries at offset 3, but only 1 bytes are left"],
    ["c6ffffffff00", "the value ends early at offset 5"],
    ["dbffffffff00", "the value ends early at offset 5"],
  ];
  for (const [hex, message] of lies) {
    const bytes = fromHex(hex);
    assert.ok(skipped(bytes) instanceof MsgpackError, hex);
    const read = () => {
      const reader = new MsgpackReader(bytes);
      if (bytes[0] === 0xdf || bytes[0] === 0xde) reader.mapHeader();
      else if (bytes[0] === 0xdd) reader.arrayHeader();
      else if (bytes[0] === 0xc6) reader.binSpan();
      else reader.textSpan();
    };
    assert.throws(read, { name: "MsgpackError", message });
  }
});

Deno.test("text is checked as strictly as a fatal decoder does, short or long", () => {
  const random = new SeededRandom(4);
  for (let i = 0; i < 1500; i++) {
    const prefix = "é日😀a".repeat(below(random, 30));
    const bytes = Uint8Array.of(...new TextEncoder().encode(prefix), ...randomBytes(random, below(random, 4)));
    const at = below(random, 3);
    const moved = Uint8Array.of(...new Array(at).fill(0xff), ...bytes, 0xff);
    assert.equal(isValidUtf8(moved, at, bytes.length), validUtf8(toHex(bytes)), toHex(bytes));
  }
  // Surrogates, overlong forms and values past the last code point are not UTF-8; a byte order mark is text.
  for (const hex of ["eda080", "c080", "e08080", "f8888080", "f4908080", "80"]) {
    assert.equal(isValidUtf8(fromHex(hex), 0, hex.length / 2), false, hex);
  }
  assert.equal(new MsgpackReader(fromHex("a4efbbbf61")).text(), "\ufeffa");
});
