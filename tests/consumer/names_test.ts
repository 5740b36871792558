/** Names beyond the vectors: what covers what, and which model counts. */
import assert from "node:assert/strict";
import {
  filterCovers,
  modelOf,
  parseWorkSubject,
  poolLane,
  subjectToken,
  textOfToken,
} from "../../src/consumer/names.ts";

Deno.test("a filter covers another when it takes each of its subjects", () => {
  const cases: [string, string, boolean][] = [
    ["", "sie.work.d.l4.b.*", true],
    ["sie.work.d.l4.b.*", "sie.work.d.l4.b.*", true],
    ["sie.work.d.*.*.*", "sie.work.d.l4.b.*", true],
    ["sie.work.>", "sie.work.d.l4.b.*", true],
    ["sie.>", "sie.>", true],
    ["sie.work.d.l4.b.m", "sie.work.d.l4.b.*", false],
    ["sie.work.d.l4.b.*", "sie.work.d.l4.b.>", false],
    ["sie.work.d.l4.b.*", "sie.work.d.l4.b", false],
    ["sie.work.d.l4.b", "sie.work.d.l4.b.*", false],
    ["sie.work.d.l4.b.>", "sie.work.d.l4.b", false],
    ["sie.work.e.*.*.*", "sie.work.d.l4.b.*", false],
  ];
  for (const [wide, narrow, covers] of cases) assert.equal(filterCovers(wide, narrow), covers, `${wide} ⊇ ${narrow}`);
});

Deno.test("the subject's model counts, unless the item's makes the same token", () => {
  const subject = parseWorkSubject("sie.work.d.l4.b.org__a__b") ?? assert.fail();
  assert.equal(modelOf(subject, "org/a/b", false), "org/a/b");
  assert.equal(modelOf(subject, "org/a__b", false), "org/a__b");
  assert.equal(modelOf(subject, "org__a/b", false), "org__a/b");
  assert.equal(modelOf(subject, "org/other", false), "org/a/b");
  assert.equal(modelOf(subject, "org/a__b", true), "org/a/b");
});

Deno.test("a token never holds what ends a word or a level of a subject", () => {
  for (const text of ["a b", "a.b", "a*b", "a>b", "a\tb", "a\r\nb", "a\u0085b", "日本/語", "__", "_dot_"]) {
    const token = subjectToken(text);
    assert.doesNotMatch(token, /[\s.*>\p{Cc}]/u, JSON.stringify(text));
  }
  assert.equal(textOfToken(subjectToken("BAAI/bge-m3.v2")), "BAAI/bge-m3.v2");
});

Deno.test("the pool itself is not normalised in subjects and stream names", () => {
  const lane = poolLane({ pool: "a/b", machineProfile: "m/p", bundle: "b", workerId: "w" });
  assert.deepEqual(lane, {
    stream: "WORK_POOL_a/b",
    subject: "sie.work.a/b.*.*.*",
    durable: "a__b_m__p_b",
    filter: "sie.work.a/b.m__p.b.*",
  });
});
