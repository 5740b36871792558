/** Ids, the text to tokenise, and templates, where the vectors leave something open. */
import assert from "node:assert/strict";
import { callerItemId } from "../../src/prepare/caller_item_id.ts";
import { MAX_TEMPLATED_LENGTH, templatedText, templateFor } from "../../src/prepare/templates.ts";
import { textToTokenize } from "../../src/prepare/token_gate.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { encodeNotation } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";

function at(notation: unknown): MsgpackReader {
  return new MsgpackReader(encodeNotation(notation));
}

Deno.test("the first id decides, whatever follows", () => {
  const id = (pairs: unknown[]) => callerItemId(at({ $map: pairs }));
  assert.equal(toHex(id([["id", "é"], ["id", "b"]]) ?? new Uint8Array()), "c3a9");
  assert.equal(id([["id", 7], ["id", "b"]]), undefined);
  assert.equal(toHex(id([["x", { id: "inner" }], [{ $bin: "6964" }, { $bin: "61" }]]) ?? new Uint8Array()), "61");
  assert.equal(id([["id", { $raw_str: "ff" }]]), undefined);
  assert.equal(id([[{ $ext: [1, "6964"] }, "a"], [5, "b"]]), undefined);
});

Deno.test("an empty bin is no text to tokenise, and a byte order mark is kept", () => {
  assert.equal(textToTokenize(at({ text: { $bin: "" } })), undefined);
  assert.equal(textToTokenize(at({ text: "\ufeffa" })), "\ufeffa");
  assert.equal(textToTokenize(at([1])), undefined);
});

Deno.test("of a repeated template option the last one counts", () => {
  const defaults = { query: "D", document: undefined };
  const choose = (pairs: unknown[], isQuery = true) => templateFor(at({ $map: pairs }), isQuery, defaults);
  assert.equal(choose([["query_template", "a"], ["query_template", "b"]]), "b");
  assert.equal(choose([["query_template", "a"], ["query_template", null]]), "D");
  assert.equal(choose([["doc_template", "a"]]), "D");
  assert.equal(choose([["query_template", "a"]], false), undefined);
  assert.equal(templateFor(undefined, true, defaults), "D");
});

Deno.test("a template cannot blow a text up without bound", () => {
  const text = "x".repeat(MAX_TEMPLATED_LENGTH / 2);
  const filled = (template: string | undefined, instruction?: string) => templatedText(template, { text, instruction });
  assert.equal(filled("{text}{text}")?.length, MAX_TEMPLATED_LENGTH);
  assert.equal(filled("{text}{text}."), undefined);
  assert.equal(filled("{text}".repeat(300_000)), undefined);
  assert.equal(filled(undefined, text), undefined);
  assert.equal(filled("", "i")?.length, text.length + 2);
});
