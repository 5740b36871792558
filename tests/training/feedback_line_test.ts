/** The request reader against what JSON.parse says, and against hostile lines. */
import assert from "node:assert/strict";
import { formatAck } from "../../src/training/ack.ts";
import { FeedbackLineReader, type FeedbackRequest, isBlankLine } from "../../src/training/feedback_line.ts";
import { JsonCursor, MAX_JSON_DEPTH } from "../../src/training/json_cursor.ts";
import { LineBuffer } from "../../src/training/line_buffer.ts";
import { seededRandom } from "../../src/training/random.ts";

const utf8 = new TextEncoder();

function read(line: string | Uint8Array, nFeatures = 3): FeedbackRequest {
  const bytes = typeof line === "string" ? utf8.encode(line) : line;
  return new FeedbackLineReader(nFeatures).read(bytes, 0, bytes.length);
}

function error(line: string | Uint8Array, nFeatures = 3): string {
  const request = read(line, nFeatures);
  assert.equal(request.kind, "rejected", `${line}`);
  return request.kind === "rejected" ? request.error : "";
}

Deno.test("numbers are read as JSON.parse reads them", () => {
  const random = seededRandom(1);
  const digits = (count: number) => Array.from({ length: count }, () => Math.floor(10 * random())).join("");
  const texts = [
    "0",
    "-0",
    "0.5",
    "1e5",
    "1E-5",
    "1.5e+3",
    "5e-324",
    "1.7976931348623157e308",
    "9007199254740993",
    "1e22",
    "1e23",
    "123456789012345e22",
    "0.1e1",
  ];
  for (let i = 0; i < 20_000; i++) {
    const whole = random() < 0.2 ? "0" : `${1 + Math.floor(9 * random())}${digits(Math.floor(20 * random()))}`;
    const fraction = random() < 0.3 ? "" : `.${digits(1 + Math.floor(20 * random()))}`;
    const exponent = random() < 0.5 ? "" : `e${random() < 0.5 ? "-" : ""}${Math.floor(40 * random())}`;
    texts.push(`${random() < 0.5 ? "-" : ""}${whole}${fraction}${exponent}`);
  }
  const cursor = new JsonCursor();
  for (const text of texts) {
    const bytes = utf8.encode(text);
    cursor.open(bytes, 0, bytes.length);
    assert.equal(cursor.kind(), "number");
    assert.ok(Object.is(cursor.number(), JSON.parse(text)), text);
    cursor.finish();
  }
});

Deno.test("whatever JSON.parse refuses is refused, whatever it accepts is passed over", () => {
  const random = seededRandom(2);
  const alphabet = '{}[]",:0123456789.eE+-tfnrualse\\u \t\r/bx';
  const seeds = [
    '{"a":[1,2,{"b":null}],"c":"\\u00e9\\n"}',
    "[true,false,null,-0.5e3]",
    '{"features":[1,2,3],"true_score":5}',
    '""',
  ];
  let accepted = 0;
  for (let i = 0; i < 20_000; i++) {
    const text = [...seeds[i % seeds.length] ?? ""];
    for (let edits = Math.floor(3 * random()); edits > 0; edits--) {
      const at = Math.floor(random() * (text.length + 1));
      text.splice(at, Math.floor(2 * random()), alphabet[Math.floor(random() * alphabet.length)] ?? "");
    }
    const line = text.join("");
    let parses = true;
    try {
      JSON.parse(line);
      accepted++;
    } catch {
      parses = false;
    }
    const request = read(line);
    const malformed = request.kind === "rejected" && request.error.startsWith("invalid JSON");
    assert.equal(malformed, !parses, JSON.stringify(line));
  }
  assert.ok(accepted > 1000);
});

Deno.test("a job_id is echoed byte for byte", () => {
  for (
    const id of ["12345678901234567890123", "1e400", '"\\u00e9 \\ud800"', '{"a" : [1 , 2.0]}', "null", "true", '"☃"']
  ) {
    const request = read(`{"job_id": ${id} ,"features":[1,2,3],"true_score":1}`);
    assert.equal(request.kind, "sample");
    assert.equal(
      formatAck({ kind: "admitted", step: 3 }, request.kind === "sample" ? request.jobId : ""),
      `{"ok":true,"step":3,"trained":false,"job_id":${id}}\n`,
    );
  }
});

Deno.test("keys may be escaped, the last of equal keys counts, a byte order mark is skipped", () => {
  const request = read('\ufeff{"true_score":"x","feat\\u0075res":[1,2,3],"true_score":4,"features":[7,8,9]}');
  assert.equal(request.kind, "sample");
  if (request.kind !== "sample") return;
  assert.deepEqual([...request.sample.features], [7, 8, 9]);
  assert.equal(request.sample.score, 4);
});

Deno.test("each fault has its text, in the order of the checks", () => {
  assert.equal(error("{}"), "'features'");
  assert.equal(error('{"features":5}'), "'true_score'");
  assert.equal(error('{"features":[1],"true_score":"x"}'), "feature vector length 1 != expected 3");
  assert.equal(error('{"features":[1,null,3],"true_score":"x"}'), "true_score is not a finite number");
  assert.equal(error('{"features":[1,null,3],"true_score":1}'), "features[1] is not a finite number");
  assert.equal(error('{"features":[1,2,3e38e],"true_score":1}'), "invalid JSON: unexpected character at byte 21");
  assert.equal(error('{"features":[1,2'), "invalid JSON: unexpected end at byte 16");
  assert.equal(error('{"features":{},"true_score":1}'), "features is not an array");
  assert.equal(error("7"), "the request is not a JSON object");
  assert.equal(error('{"a":"\u0001"}'), "invalid JSON: raw control character at byte 6");
});

Deno.test("nesting is bounded wherever it occurs", () => {
  const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
  for (const key of ["x", "job_id", "features", "true_score"]) {
    const text = (depth: number) => `{"${key}":${nested(depth)},"features":[1,2,3],"true_score":1}`;
    assert.match(error(text(500_000)), /nesting deeper than 64/, key);
    assert.doesNotMatch(JSON.stringify(read(text(MAX_JSON_DEPTH - 2))), /nesting/, key);
  }
});

Deno.test("a key that is repeated over and over takes no more memory than once", () => {
  const nFeatures = 65_536, Original = Float32Array;
  let made = 0;
  globalThis.Float32Array = new Proxy(Original, {
    construct(target, args) {
      made++;
      return Reflect.construct(target, args) as Float32Array;
    },
  });
  try {
    const repeated = `{${'"features":[1],'.repeat(1000)}"true_score":1}`;
    assert.equal(error(repeated, nFeatures), `feature vector length 1 != expected ${nFeatures}`);
  } finally {
    globalThis.Float32Array = Original;
  }
  assert.ok(made <= 3, `${made} arrays`);
});

Deno.test("text outside UTF-8 is refused in a key, a value and an ignored field", () => {
  for (const bad of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf5, 0x80, 0x80, 0x80], [0xe2, 0x82]]) {
    for (const [before, after] of [['{"', '":1,'], ['{"job_id":"', '",'], ['{"x":["', '"],']] as const) {
      const line = Uint8Array.from([
        ...utf8.encode(before),
        ...bad,
        ...utf8.encode(`${after}"features":[1,2,3],"true_score":1}`),
      ]);
      assert.match(error(line), /invalid JSON/);
    }
  }
});

Deno.test("only ASCII white space makes a blank line", () => {
  assert.ok(isBlankLine(utf8.encode(" \t\v\f\r"), 0, 5));
  assert.ok(!isBlankLine(utf8.encode("\u00a0"), 0, 2));
});

Deno.test("lines are cut alike however the bytes arrive", async () => {
  const random = seededRandom(3);
  const lines = Array.from({ length: 300 }, (_, i) => `${i}:${"x".repeat(Math.floor(random() ** 4 * 200_000))}`);
  const bytes = utf8.encode(lines.map((line) => `${line}\n`).join("") + "unfinished");
  let at = 0;
  const buffer = new LineBuffer(300_000);
  const got: string[] = [];
  const source = {
    read(into: Uint8Array): Promise<number | null> {
      const count = Math.min(into.length, bytes.length - at, 1 + Math.floor(random() * 100_000));
      into.set(bytes.subarray(at, at + count));
      at += count;
      return Promise.resolve(count === 0 ? null : count);
    },
  };
  while (await buffer.fill(source)) {
    for (let line = buffer.next(); line !== undefined; line = buffer.next()) {
      assert.notEqual(line, "too long");
      if (line !== "too long") got.push(new TextDecoder().decode(line.bytes.subarray(line.start, line.end)));
    }
  }
  assert.deepEqual(got, lines);
});

Deno.test("a line is too long as soon as the limit is passed, with or without its end", async () => {
  for (
    const [text, verdict] of [["x".repeat(11), "too long"], [`${"x".repeat(11)}\n`, "too long"], [
      `${"x".repeat(10)}\n`,
      "fits",
    ], ["x".repeat(10), undefined]] as const
  ) {
    const buffer = new LineBuffer(10);
    await buffer.fill({ read: (into) => Promise.resolve(utf8.encodeInto(text, into).written) });
    const line = buffer.next();
    assert.equal(typeof line === "object" ? "fits" : line, verdict);
  }
});
