import assert from "node:assert/strict";
import { extractCost, scoreCost, tokenCost, UNIT_COST } from "../../src/scheduler/cost.ts";
import { DEFAULT_PULL_QUANTUM, pullQuantumMs } from "../../src/scheduler/pull_quantum.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { SeededRandom } from "../sim/seeded_random.ts";

function readerOf(write: (writer: MsgpackWriter) => void): MsgpackReader {
  const writer = new MsgpackWriter();
  write(writer);
  return new MsgpackReader(writer.copy());
}

function textItem(text: string): (writer: MsgpackWriter) => void {
  return (writer) => {
    writer.mapHeader(1);
    writer.text("text");
    writer.text(text);
  };
}

function documentsOf(...items: ((writer: MsgpackWriter) => void)[]): MsgpackReader {
  return readerOf((writer) => {
    writer.arrayHeader(items.length);
    for (const item of items) item(writer);
  });
}

Deno.test("a score item costs its code points, whatever the script and the length", () => {
  const random = new SeededRandom(11);
  const alphabets = ["abc xyz", "żółć é", "東京都の", "😀👨‍👩‍👧", "a😀é東"];
  for (let i = 0; i < 300; i++) {
    const alphabet = [...random.pick(alphabets)];
    const text = Array.from({ length: random.pick([0, 1, 20, 24, 25, 32, 33, 200]) }, () => random.pick(alphabet)).join(
      "",
    );
    const cost = scoreCost(readerOf(textItem("")), documentsOf(textItem(text)));
    assert.equal(cost, Math.max([...text].length, 1));
  }
});

Deno.test("the first of repeated media keys counts, and both readers end behind what they read", () => {
  const document = (writer: MsgpackWriter) => {
    writer.mapHeader(4);
    writer.text("audio");
    writer.nil();
    writer.text("audio");
    writer.bool(true);
    writer.text("images");
    writer.arrayHeader(2);
    writer.nil();
    writer.mapHeader(0);
    writer.text("images");
    writer.arrayHeader(0);
  };
  const query = readerOf(textItem("ab"));
  const documents = documentsOf(document, (writer) => writer.integer(5));
  assert.equal(scoreCost(query, documents), 2 + 2 * 1024 + 2);
  query.expectEnd();
  documents.expectEnd();
});

Deno.test("without a query or documents a score item still costs 1", () => {
  assert.equal(scoreCost(undefined, undefined), 1);
  assert.equal(scoreCost(undefined, documentsOf()), 1);
  assert.equal(scoreCost(readerOf(textItem("long")), readerOf((writer) => writer.nil())), 1);
  assert.equal(scoreCost(undefined, documentsOf(textItem("abc"))), 3);
});

Deno.test("tokens decide where there are any, also in typed arrays", () => {
  assert.equal(tokenCost(undefined, UNIT_COST), 1);
  assert.equal(tokenCost([new Uint32Array(7)], UNIT_COST), 7);
  assert.equal(tokenCost([], 900), 1);
});

Deno.test("an extract item without audio is an ordinary one", () => {
  assert.deepEqual(extractCost(undefined), { cost: 1, hardCostCap: Infinity, runsAlone: false });
});

Deno.test("a largest quantum below the least one is raised to it", () => {
  assert.equal(pullQuantumMs({ ...DEFAULT_PULL_QUANTUM, minMs: 8, maxMs: 3 }, 0), 8);
  assert.equal(pullQuantumMs(DEFAULT_PULL_QUANTUM, 0), 12);
  assert.equal(pullQuantumMs({ minMs: 2, maxMs: 9, targetP50Ms: 50 }, 0), 9);
});
