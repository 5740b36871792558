/** The notation against the vector files that give both forms of the same bytes, and against MessagePack's own corner cases. */
import assert from "node:assert/strict";
import { assertNotation, decodeNotation, encodeNotation, readValue, writeValue } from "./notation.ts";
import { fromHex, join, toHex } from "./paths.ts";
import { vectorsDir } from "./vectors.ts";

interface Both {
  readonly name: string;
  readonly hex?: string;
  readonly decoded?: unknown;
  readonly framed?: boolean;
}

/** Files of these folders whose bytes are texts and keys of other kinds. */
const NOT_MSGPACK = new Set(["acks.json", "hrw.json", "subjects.json"]);

function casesWithBothForms(): Both[] {
  const found: Both[] = [];
  for (const folder of ["queue", "ipc"]) {
    for (const entry of Deno.readDirSync(join(vectorsDir(), folder))) {
      if (!entry.name.endsWith(".json") || NOT_MSGPACK.has(entry.name)) continue;
      const data: unknown = JSON.parse(Deno.readTextFileSync(join(vectorsDir(), folder, entry.name)));
      for (const one of (Array.isArray(data) ? data : [data]) as Both[]) {
        // Frames and malformed bytes have rules of their own.
        if (one.hex !== undefined && one.decoded !== undefined && one.framed !== true) found.push(one);
      }
    }
  }
  return found;
}

Deno.test("notation and bytes of the vectors agree, both ways", async (t) => {
  // Cases whose bytes differ from their notation on purpose: "decoded" shows what was meant.
  const inexact = new Set([
    "trailing_bytes",
    "duplicate_key",
    "truncated",
    "empty",
    "json_text",
    "chunk_unstamped_when_hash_empty",
  ]);
  const cases = casesWithBothForms();
  let compared = 0;
  for (const { name, hex = "", decoded } of cases) {
    let bytes = fromHex(hex);
    if (inexact.has(name)) continue;
    await t.step(name, () => {
      assertNotation(bytes, decoded);
      assert.equal(toHex(encodeNotation(decoded)), hex);
      // And the tagged form that the decoder makes is read back as the same bytes.
      bytes = encodeNotation(decodeNotation(bytes));
      assert.equal(toHex(bytes), hex);
    });
    compared++;
  }
  assert.ok(compared > 100, `only ${compared} cases`);
});

Deno.test("every format of MessagePack survives", () => {
  const shortest = [
    "c0",
    "c2",
    "c3",
    "00",
    "7f",
    "cc80",
    "ccff",
    "cd0100",
    "ce00010000",
    "cf0000000100000000",
    "cfffffffffffffffff",
    "ff",
    "e0",
    "d0df",
    "d080",
    "d1ff7f",
    "d2ffff7fff",
    "d3ffffffff7fffffff",
    "d38000000000000000",
    "ca3f800000",
    "cb7ff8000000000000",
    "cbfff0000000000000",
    "a0",
    "a161",
    "c400",
    "c401ff",
    "d40561",
    "d4ff00",
    "d50102aa",
    "c7030a010203",
    "90",
    "91c0",
    "80",
    "8101c0",
    "82a16101a16102",
    "81a2243101",
    "81a13101",
    "a1ff",
  ];
  for (const hex of shortest) {
    assert.equal(toHex(writeValue(readValue(fromHex(hex)))), hex);
    assert.equal(toHex(encodeNotation(decodeNotation(fromHex(hex)))), hex);
  }
  const long = (hex: string, length: number) => hex + "61".repeat(length);
  for (
    const hex of [long("d920", 32), long("da0100", 256), long("db00010000", 65536), long("c5ffff", 65535)]
  ) assert.equal(toHex(writeValue(readValue(fromHex(hex)))), hex);
  assert.equal(toHex(writeValue(readValue(fromHex("dc0010" + "c0".repeat(16))))), "dc0010" + "c0".repeat(16));
});

Deno.test("bytes that are no value are refused", () => {
  for (const hex of ["", "c1", "a2", "91", "81a1", "cd00", "c0c0"]) assert.throws(() => readValue(fromHex(hex)), hex);
});
