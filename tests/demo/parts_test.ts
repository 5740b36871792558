/** Parts of the demonstration: the programs it starts, its figures, its output. */
import assert from "node:assert/strict";
import { Child, Children } from "../../demo/child.ts";
import { DemoFailure } from "../../demo/failure.ts";
import { batchSizes, callAll, percentile, readBatchSizes, spread } from "../../demo/measure.ts";
import { cut, Screen, table } from "../../demo/screen.ts";
import { readQueries, readSentences } from "../../demo/texts.ts";
import { cosine } from "../../demo/work.ts";
import { TestFolder } from "../harness/process.ts";

const never = new AbortController().signal;

/** Runs a line of code as a program. */
function program(code: string) {
  return { name: "the program", command: [Deno.execPath(), "eval", code] };
}

/** Says that it runs and waits for a signal. */
const WAITING = "setInterval(() => {}, 1e6); console.log('up');";

async function untilUp(child: Child): Promise<void> {
  await child.line((line) => line === "up" || undefined, 60_000, never);
}

class Paper {
  readonly terminal: boolean;
  written = "";

  constructor(terminal: boolean) {
    this.terminal = terminal;
  }

  isTerminal(): boolean {
    return this.terminal;
  }

  /** Takes a byte less than it is given, as a pipe may. */
  writeSync(bytes: Uint8Array): number {
    const taken = Math.max(1, bytes.length - 1);
    this.written += String.fromCharCode(...bytes.subarray(0, taken));
    return taken;
  }
}

Deno.test("child: a program that ends before its line tells why", async () => {
  const child = Child.start(program("console.error('no room left'); Deno.exit(3)"));
  await assert.rejects(child.line(() => undefined, 60_000, never), (thrown) => {
    assert.ok(thrown instanceof DemoFailure);
    assert.equal(thrown.message, "the program ended early (exit code 3)");
    assert.deepEqual(thrown.log, ["no room left"]);
    return true;
  });
});

Deno.test("child: a program that is not there cannot be started", () => {
  assert.throws(() => Child.start({ name: "it", command: [`${Deno.execPath()}-not-there`] }), DemoFailure);
});

Deno.test("child: waiting for a line ends with an abort and with the limit", async () => {
  const child = Child.start(program(WAITING));
  await untilUp(child);
  const aborted = new AbortController();
  const waiting = child.line(() => undefined, 60_000, aborted.signal);
  aborted.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await assert.rejects(child.line(() => undefined, 1, never), /did not start within 0\.001 s/);
  child.kill();
  await child.ended;
});

Deno.test("children: the last one started ends first, and a bad exit code is reported", async () => {
  const children = new Children((failure) => assert.fail(failure));
  const polite = (name: string, code: number) => {
    const quit = `Deno.addSignalListener('SIGTERM', () => Deno.exit(${code}));`;
    return children.start({ ...program(quit + WAITING), name });
  };
  const [first, second] = [polite("first", 0), polite("second", 4)];
  await Promise.all([untilUp(first), untilUp(second)]);
  const order: string[] = [];
  for (const child of [first, second]) void child.ended.then(() => order.push(child.name));
  const failures = await children.stopAll();
  assert.deepEqual(order, ["second", "first"]);
  assert.deepEqual(failures.map(({ message }) => message), ["second did not end in order (exit code 4)"]);
});

Deno.test("children: one that ends by itself is a crash, told once", async () => {
  const { promise, resolve } = Promise.withResolvers<DemoFailure>();
  const children = new Children(resolve);
  children.start(program("console.log('last words'); Deno.exit(1)"));
  const failure = await promise;
  assert.match(failure.message, /ended early \(exit code 1\)/);
  assert.deepEqual(failure.log, ["last words"]);
  assert.deepEqual(await children.stopAll(), []);
});

Deno.test("measure: calls run side by side, as many as there are callers, and their answers keep the order", async () => {
  let running = 0, most = 0;
  const done: number[] = [];
  const { answers, timing } = await callAll([5, 1, 4, 2, 3], 2, async (input) => {
    most = Math.max(most, ++running);
    for (let turn = 0; turn < input; turn++) await Promise.resolve();
    running--;
    return input * 10;
  }, (count) => done.push(count));
  assert.deepEqual(answers, [50, 10, 40, 20, 30]);
  assert.equal(most, 2);
  assert.deepEqual(done, [1, 2, 3, 4, 5]);
  assert.equal(timing.latenciesMs.length, 5);
});

Deno.test("measure: percentiles are values of the list", () => {
  const values = Array.from({ length: 200 }, (_, at) => 200 - at);
  assert.equal(percentile(values, 50), 100);
  assert.equal(percentile(values, 99), 198);
  assert.equal(percentile([7], 99), 7);
  assert.throws(() => percentile([], 50), RangeError);
  assert.deepEqual(spread([3, 1, 2]), { count: 3, min: 1, median: 2, max: 3 });
});

Deno.test("measure: batch sizes come from the trace, by operation", async () => {
  const arrival = (delivery: number, operation: string) => JSON.stringify({ kind: "arrival", delivery, operation });
  const batch = (...deliveries: number[]) => JSON.stringify({ kind: "batch", deliveries });
  const lines = [arrival(1, "encode"), arrival(2, "score"), arrival(3, "encode"), batch(1, 3), batch(2)];
  const text = `${lines.join("\n")}\n`;
  assert.deepEqual(batchSizes(`${text}{"kind":"bat`), new Map([["encode", [2]], ["score", [1]]]));
  using folder = new TestFolder();
  const path = folder.file("trace.jsonl");
  Deno.writeTextFileSync(path, text);
  assert.deepEqual(await readBatchSizes(path, 3, never), batchSizes(text));
  const later = readBatchSizes(path, 4, never);
  Deno.writeTextFileSync(path, `${arrival(4, "encode")}\n${batch(4)}\n`, { append: true });
  assert.deepEqual((await later).get("encode"), [2, 1]);
  await assert.rejects(readBatchSizes(path, 5, AbortSignal.abort(new Error("stop"))), /stop/);
});

Deno.test("work: the cosine of parallel, orthogonal, opposite and empty vectors", () => {
  const vector = (...values: number[]) => Float64Array.from(values);
  assert.equal(cosine(vector(1, 2), vector(2, 4)), 1);
  assert.equal(cosine(vector(1, 0), vector(0, 3)), 0);
  assert.equal(cosine(vector(0, 2), vector(0, -1)), -1);
  assert.equal(cosine(vector(0, 0), vector(1, 1)), 0);
});

Deno.test("screen: progress is one renewed line on a terminal and nothing elsewhere", () => {
  const terminal = new Paper(true), pipe = new Paper(false);
  for (const paper of [terminal, pipe]) {
    const screen = new Screen(paper, 80, true);
    screen.progress("encode", "1 of 9");
    screen.step("encode", "9 texts");
  }
  assert.equal(pipe.written, "  encode       9 texts\n");
  assert.equal(terminal.written, "\r\x1b[K  encode       1 of 9\r\x1b[K  encode       9 texts\n");
});

Deno.test("screen: a stream is broken between words, wherever its pieces end", () => {
  const paper = new Paper(true);
  const screen = new Screen(paper, 41, true);
  for (const piece of ["The river ro", "se two metres", " last winter, and", " the piers were"]) screen.flow(piece);
  screen.flow(" checked by divers");
  screen.endFlow();
  screen.line("after");
  assert.equal(
    paper.written,
    "  The river rose two metres last winter,\n  and the piers were checked by divers\nafter\n",
  );
});

Deno.test("screen: tables line up, numbers to the right, and long texts are cut", () => {
  assert.deepEqual(table([["", "items", "name"], ["a", "1,024", "x y"], ["bcd", "7", "z"]]), [
    "       items  name",
    "  a    1,024  x y",
    "  bcd      7  z",
  ]);
  assert.deepEqual(table([]), []);
  assert.equal(cut("abcdef", 6), "abcdef");
  assert.equal(cut("abc def", 5), "abc…");
});

Deno.test("texts: a few hundred sentences, all different, under their topics, and ten queries", () => {
  const read = (name: string) => Deno.readTextFileSync(new URL(`../../demo/${name}`, import.meta.url));
  const sentences = readSentences(read("sentences.txt"));
  assert.ok(sentences.length >= 300, `${sentences.length}`);
  assert.equal(new Set(sentences.map(({ text }) => text)).size, sentences.length);
  assert.ok(sentences.every(({ topic, text }) => topic !== "" && /[.]$/.test(text)));
  assert.equal(readQueries(read("queries.txt")).length, 10);
  assert.deepEqual(readSentences("# a\n\none.\n# b\n two. \n"), [{ topic: "a", text: "one." }, {
    topic: "b",
    text: "two.",
  }]);
});
