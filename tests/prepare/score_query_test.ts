import assert from "node:assert/strict";
import { isEmptyQuery } from "../../src/prepare/score_query.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { encodeNotation } from "../harness/notation.ts";

Deno.test("a query needs text or media", () => {
  const cases: readonly (readonly [unknown, boolean])[] = [
    [{}, true],
    [{ id: "q", metadata: { text: "not this one" } }, true],
    [{ text: null }, true],
    [{ text: null, content: null, images: null, audio: null, video: null, document: null }, true],
    [{ images: [] }, true],
    [{ other: [], more: [1, [2]] }, true],
    [{ text: "" }, false],
    [{ text: "q" }, false],
    [{ id: [], text: "q" }, false],
    [{ content: "q" }, false],
    [{ text: null, content: "q" }, false],
    [{ images: [{ data: { $bin: "00" } }] }, false],
    [{ document: { data: { $bin: "00" } } }, false],
    [{ text: 7 }, false],
  ];
  for (const [query, isEmpty] of cases) {
    assert.equal(isEmptyQuery(new MsgpackReader(encodeNotation(query))), isEmpty, JSON.stringify(query));
  }
});
