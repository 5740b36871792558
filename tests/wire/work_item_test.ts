/** The WorkItem decoder on hostile and random input. What it accepts and refuses field by field is in the vectors. */
import assert from "node:assert/strict";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { SAFE_DEPTH } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeWorkItem, fieldBit, type WorkItem, WorkItemField } from "../../src/wire/work_item.ts";
import { FIELD_NAMES } from "../../src/wire/work_item_fields.ts";
import { encodeWorkItemForBackend } from "../../src/wire/work_item_writer.ts";
import { encodeNotation, readValue, valueOf, writeValue } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";
import { workItemBytes, workItemFields } from "../harness/work_items.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below, randomBytes, randomValue } from "./random_values.ts";

const F = WorkItemField;

/** Decodes, or gives the error that says why not; any other error fails the test. */
function decoded(bytes: Uint8Array): WorkItem | MsgpackError {
  try {
    return decodeWorkItem(bytes);
  } catch (thrown) {
    if (thrown instanceof MsgpackError) return thrown;
    throw thrown;
  }
}

/** A message of exactly `length` bytes. */
function message(length: number, write: (writer: MsgpackWriter) => void, fill: number): Uint8Array {
  const writer = new MsgpackWriter(length);
  write(writer);
  const bytes = new Uint8Array(length).fill(fill);
  bytes.set(writer.view().subarray(0, length));
  return bytes;
}

const HOSTILE_BYTES = 24_000;
/** What one hostile message may make the decoder allocate. */
const HOSTILE_ALLOCATION = 10 * 1024 * 1024;

function hostileMessages(): [string, Uint8Array][] {
  const header = (marker: number, count: number) => (writer: MsgpackWriter) => {
    writer.raw(Uint8Array.of(marker, count >>> 24, (count >>> 16) & 0xff, (count >>> 8) & 0xff, count & 0xff));
  };
  const field = (name: string, marker: number, count: number) => (writer: MsgpackWriter) => {
    writer.mapHeader(1);
    writer.text(name);
    header(marker, count)(writer);
  };
  return [
    ["nested arrays", message(HOSTILE_BYTES, () => {}, 0x91)],
    ["nested maps", message(HOSTILE_BYTES, () => {}, 0x81)],
    ["a map of 2^32 - 1 pairs", message(HOSTILE_BYTES, header(0xdf, 0xffffffff), 0xc0)],
    ["an array of 2^32 - 1 fields", message(HOSTILE_BYTES, header(0xdd, 0xffffffff), 0xc0)],
    ["as many nil keys as fit", message(HOSTILE_BYTES, header(0xdf, (HOSTILE_BYTES - 5) >> 1), 0xc0)],
    ["as many fields as fit", message(HOSTILE_BYTES, header(0xdd, HOSTILE_BYTES - 5), 0x00)],
    ["an id of 2^32 - 1 bytes", message(HOSTILE_BYTES, field("work_item_id", 0xdb, 0xffffffff), 0x61)],
    ["2^32 - 1 labels", message(HOSTILE_BYTES, field("labels", 0xdd, 0xffffffff), 0xa0)],
    ["as many labels as fit", message(HOSTILE_BYTES, field("labels", 0xdd, HOSTILE_BYTES - 13), 0xa0)],
    ["2^32 - 1 score items", message(HOSTILE_BYTES, field("score_items", 0xdd, 0xffffffff), 0x80)],
    ["a deep item", message(HOSTILE_BYTES, field("item", 0xdd, 1), 0x91)],
    ["wide containers in an item", message(HOSTILE_BYTES, field("item", 0xdd, HOSTILE_BYTES - 11), 0x90)],
  ];
}

Deno.test("hostile messages are refused without being unpacked", async (t) => {
  for (const [name, bytes] of hostileMessages()) {
    await t.step(name, () => {
      const before = Deno.memoryUsage();
      const found = decoded(bytes);
      const after = Deno.memoryUsage();
      assert.ok(found instanceof MsgpackError, "accepted");
      const allocated = after.heapUsed + after.external - before.heapUsed - before.external;
      assert.ok(allocated < HOSTILE_ALLOCATION, `${allocated} bytes for a message of ${bytes.length}`);
      // The error does not carry the message into the logs.
      assert.ok(found.message.length < 200, found.message);
    });
  }
});

Deno.test("the numbers in errors are those of the field, and the field is named", () => {
  const error = decoded(workItemBytes({ item_index: 4_294_967_296 }));
  assert.ok(error instanceof MsgpackError);
  assert.equal(error.fault, "range");
  assert.match(error.message, /^field 'item_index': integer 4294967296 at offset \d+ is outside 0..=4294967295$/);
  const missing = decoded(encodeNotation({ work_item_id: "r.0" }));
  assert.ok(missing instanceof MsgpackError && missing.message === "missing field 'request_id'");
});

Deno.test("changed messages are decoded within their bounds or refused", () => {
  const random = new SeededRandom(11);
  let accepted = 0;
  for (let i = 0; i < 3000; i++) {
    const bytes = changed(random, workItemBytes({ item: { id: "doc", text: "é".repeat(below(random, 40)) } }));
    const work = decoded(bytes);
    if (work instanceof MsgpackError) continue;
    accepted++;
    for (const field of Object.values(F)) {
      const at = work.at(field), end = at + work.size(field);
      assert.ok(at >= 0 && at <= end && end <= bytes.length, `field ${field}: ${at} to ${end} of ${bytes.length}`);
    }
    // What was accepted can be handed on: the bytes are one value, the fields are what they are for.
    const forBackend = readValue(encodeWorkItemForBackend(work));
    assert.equal(forBackend.type, "map");
  }
  assert.ok(accepted > 100 && accepted < 2900, `${accepted} accepted`);
});

function changed(random: SeededRandom, original: Uint8Array): Uint8Array {
  let bytes = original.slice();
  for (let edits = 1 + below(random, 2); edits > 0; edits--) {
    const at = below(random, bytes.length);
    switch (below(random, 4)) {
      case 0:
        bytes[at] = below(random, 256);
        break;
      case 1:
        bytes[at] = (bytes[at] ?? 0) ^ (1 << below(random, 8));
        break;
      case 2:
        bytes = bytes.slice(0, at + 1);
        break;
      default:
        bytes = Uint8Array.of(...bytes.slice(0, at), ...randomBytes(random, 1 + below(random, 3)), ...bytes.slice(at));
    }
  }
  return bytes;
}

Deno.test("values that are only passed on survive byte for byte, whatever they hold", () => {
  const random = new SeededRandom(12);
  const passedOn = [["item", F.item], ["query_item", F.queryItem], ["generate", F.generate]] as const;
  for (let i = 0; i < 300; i++) {
    const values = passedOn.map(([name]) => [name, randomValue(random, { depth: 3, wild: true })] as const);
    const base = valueOf(workItemFields({ item: "" }));
    assert.ok(base.type === "map");
    const names = new Set<string>(values.map(([name]) => name));
    const kept = base.pairs.filter(([key]) =>
      key.type === "str" && !names.has(new TextDecoder().decode(bytesOf(key.hex)))
    );
    const message = writeValue({
      type: "map",
      pairs: [...kept, ...values.map(([name, value]) => [valueOf(name), value] as const)],
    });
    const work = decodeWorkItem(message);
    for (const [j, [, field]] of passedOn.entries()) {
      const value = values[j]?.[1];
      assert.ok(value !== undefined);
      if (value.type === "nil") assert.equal(work.has(field), false);
      else {
        const span = work.bytes.subarray(work.at(field), work.at(field) + work.size(field));
        assert.equal(toHex(span), toHex(writeValue(value)));
      }
    }
  }
});

function bytesOf(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (byte) => parseInt(byte, 16));
}

Deno.test("what the backend would hang up on is noted with its field", () => {
  const deep = () => {
    let value: unknown = null;
    for (let i = 0; i <= SAFE_DEPTH; i++) value = [value];
    return { text: value };
  };
  const unsafe: readonly [string, unknown][] = [
    ["a key that is no text", { text: { $map: [[1, 2]] } }],
    ["text that is no UTF-8", { text: { $raw_str: "ff" } }],
    ["a timestamp of a wrong length", { text: { $ext: [-1, "0102"] } }],
    ["nesting beyond what fits in a request", deep()],
  ];
  for (const [name, item] of unsafe) {
    const work = decodeWorkItem(encodeNotation({ ...workItemFields(), item, options: { lora: "a" } }));
    assert.equal(work.unsafeFields, fieldBit(F.item), name);
    assert.equal(work.misshapenFields, 0, name);
  }
  const misshapen = decodeWorkItem(
    encodeNotation({ ...workItemFields(), item: "text", options: [1], score_items: [{ a: 1 }, 2] }),
  );
  assert.equal(misshapen.misshapenFields, fieldBit(F.item) | fieldBit(F.options) | fieldBit(F.scoreItems));
});

Deno.test("a key that looks like a known one is not taken for it", () => {
  for (const name of FIELD_NAMES) {
    // Same length, first, middle and last letter: the same slot of the key table.
    const at = 1 + ((name.length >> 1) === 1 ? 1 : 0);
    const twin = name.slice(0, at) + (name[at] === "x" ? "y" : "x") + name.slice(at + 1);
    const work = decodeWorkItem(encodeNotation({ ...workItemFields(), [twin]: { $bin: "00" } }));
    assert.equal(work.modelId, "test/model", twin);
  }
});
