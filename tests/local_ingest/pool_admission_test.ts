/** Pools as they are compared (spec/local-ingest.md 6). */
import assert from "node:assert/strict";
import { poolKey, poolRefusal } from "../../src/local_ingest/pool_admission.ts";

Deno.test("white space around a pool and the case of ASCII letters do not count, nothing else is changed", () => {
  assert.equal(poolKey(" \t\u00a0\u0085Default\u2003\n"), "default");
  assert.equal(poolKey("\ufeffa b"), "\ufeffa b");
  assert.equal(poolKey("ÄB"), "Äb");
  assert.equal(poolKey(""), "");
  assert.equal(poolKey("   "), "");
});

Deno.test("a pool of nothing but white space costs no more than its length", () => {
  // With a backtracking pattern this would take hours.
  const long = `${" ".repeat(2_000_000)}x${" ".repeat(2_000_000)}`;
  assert.equal(poolKey(long), "x");
  assert.equal(poolKey(`${long}y`).length, 2_000_002);
});

Deno.test("the envelope and the item must agree, and one of them must name the lane's pool or none", () => {
  assert.equal(poolRefusal("default", "", ""), undefined);
  assert.equal(poolRefusal("default", "DEFAULT", " default "), undefined);
  assert.equal(poolRefusal("default", "", "default"), undefined);
  assert.equal(poolRefusal("default", "default", ""), undefined);
  assert.equal(poolRefusal("default", "a", "b"), 'admission_pool mismatch: batch meta="a" item="b"');
  assert.equal(poolRefusal("Default", "", "x"), 'lane pool "default" does not serve admission_pool "x"');
  assert.equal(poolRefusal("default", "x", "x"), 'lane pool "default" does not serve admission_pool "x"');
});
