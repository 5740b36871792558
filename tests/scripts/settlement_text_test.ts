/** The operations document holds the settlement table of the code, complete. */
import assert from "node:assert/strict";
import { settlementTable, withSettlementTable } from "../../scripts/lib/settlement_text.ts";
import { SETTLEMENT_RULES } from "../../src/dispatch/settlement_rules.ts";
import { fromFileUrl } from "../harness/paths.ts";

Deno.test("each situation has one row", () => {
  const table = settlementTable();
  for (const name of Object.keys(SETTLEMENT_RULES)) assert.equal(table.split(`\n| \`${name}\` |`).length, 2, name);
});

Deno.test("docs/operations.md is up to date; `deno task operations` writes it", async () => {
  const path = fromFileUrl(new URL("../../docs/operations.md", import.meta.url));
  const document = await Deno.readTextFile(path);
  assert.equal(document, withSettlementTable(document));
});

Deno.test("a document without a place for the table is refused", () => {
  assert.throws(() => withSettlementTable("# Operations\n"), /no place/);
});
