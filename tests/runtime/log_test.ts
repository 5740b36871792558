/** Logging: the filter, the two line forms, and a reader that stalls. */
import assert from "node:assert/strict";
import { configureLogging, logFor, processLogging, resetLogging } from "../../src/runtime/log.ts";
import { parseLogFilter } from "../../src/runtime/log_filter.ts";
import { jsonLine, type LogEntry, textLine } from "../../src/runtime/log_format.ts";
import { LineWriter } from "../../src/runtime/line_writer.ts";
import { isReported } from "../../src/runtime/repeated.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { TestFolder } from "../harness/process.ts";

/** Runs `say` with a filter and returns what was logged, as level, target and message. */
function logged(filter: string | undefined, say: () => void): string[] {
  const lines: string[] = [];
  configureLogging({ filter, format: "json", write: (line) => lines.push(line) });
  try {
    say();
  } finally {
    resetLogging();
  }
  return lines.map((line) => {
    const { level, target, fields } = JSON.parse(line);
    return `${level} ${target} ${fields.message}`;
  });
}

function sayAll(part: string): void {
  const log = logFor(part);
  log.trace("t");
  log.debug("d");
  log.info("i");
  log.warn("w");
  log.error("e");
}

Deno.test("filters", () => {
  const whole = (level: string) => [{ path: [], level }];
  assert.deepEqual(parseLogFilter(undefined).entries, whole("info"));
  assert.deepEqual(parseLogFilter(" , ").entries, whole("info"));
  assert.deepEqual(parseLogFilter(" WARN ").entries, whole("warning"));
  assert.deepEqual(parseLogFilter("off,sie_server_sidecar::ipc=debug").entries, [
    ...whole("off"),
    { path: ["ipc"], level: "debug" },
  ]);
  // Only what is named speaks when there is no bare level.
  assert.deepEqual(parseLogFilter("async_nats=trace,worker-sidecar::a::b").entries, [
    ...whole("off"),
    { path: ["a", "b"], level: "trace" },
  ]);
  for (const bad of ["verbose=1", "a=b=c", "=info", "info,x=loud", "sie server=info"]) {
    const filter = parseLogFilter(bad);
    assert.deepEqual(filter.entries, whole("info"));
    assert.notEqual(filter.invalid, undefined);
  }
});

Deno.test("levels apply to the whole program and to parts of it", () => {
  assert.deepEqual(logged("warn", () => sayAll("ipc")), [
    "WARN sie_server_sidecar::ipc w",
    "ERROR sie_server_sidecar::ipc e",
  ]);
  const mixed = logged("error,sie_server_sidecar::ipc=debug,sie_server_sidecar::pull=off", () => {
    for (const part of ["ipc", "pull", "other"]) sayAll(part);
  });
  assert.deepEqual(mixed, [
    ...["DEBUG", "INFO", "WARN", "ERROR"].map((level) => `${level} sie_server_sidecar::ipc ${level[0]?.toLowerCase()}`),
    "ERROR sie_server_sidecar::other e",
  ]);
  assert.deepEqual(logged("trace", () => sayAll("x")).length, 5);
  assert.deepEqual(logged("off", () => sayAll("x")), []);
});

Deno.test("an unusable filter means info, and is told", () => {
  const lines = logged("loud=1", () => sayAll("x"));
  assert.deepEqual(lines, [
    "WARN sie_server_sidecar::log RUST_LOG is not a filter; using info",
    "INFO sie_server_sidecar::x i",
    "WARN sie_server_sidecar::x w",
    "ERROR sie_server_sidecar::x e",
  ]);
});

const entry: LogEntry = {
  unixMs: Date.UTC(2026, 7, 27, 10, 0, 0, 123),
  level: "INFO",
  path: ["health_publisher"],
  message: "hello",
  fields: { key: "value", n: 3, big: 7n, on: true, error: new Error("why"), list: [1, 2n], nan: NaN, message: "other" },
};

Deno.test("a JSON line has the fields of the contract", () => {
  assert.deepEqual(JSON.parse(jsonLine(entry)), {
    timestamp: "2026-08-27T10:00:00.123000Z",
    level: "INFO",
    fields: { message: "hello", key: "value", n: 3, big: "7", on: true, error: "why", list: [1, "2"], nan: "NaN" },
    target: "sie_server_sidecar::health_publisher",
  });
  const cyclic: Record<string, unknown> = {};
  cyclic["self"] = cyclic;
  assert.equal(JSON.parse(jsonLine({ ...entry, fields: { cyclic } })).fields.cyclic, "[object Object]");
});

Deno.test("a text line is one line, whatever is in it", () => {
  assert.equal(
    textLine({ ...entry, fields: { a: "b", c: "d e", n: 1, u: undefined } }),
    '2026-08-27T10:00:00.123Z INFO  health_publisher: hello a=b c="d e" n=1 u=undefined\n',
  );
  const forged = textLine({ ...entry, message: "x\n2026 ERROR \x1b[31m", fields: { k: "a\r\nb" } });
  assert.equal(forged.indexOf("\n"), forged.length - 1);
  assert.doesNotMatch(forged.slice(0, -1), /\p{Cc}/u);
});

Deno.test("lines wait for a slow reader up to a bound; what is dropped is said", async () => {
  let text = "";
  let gate = Promise.withResolvers<void>();
  const writer = new LineWriter({
    // Takes five bytes at most, as a pipe may.
    sink: {
      async write(bytes) {
        await gate.promise;
        const part = bytes.subarray(0, 5);
        text += new TextDecoder().decode(part);
        return part.length;
      },
    },
    gapLine: (dropped) => `gap ${dropped}\n`,
    maxBuffered: 20,
  });
  for (let i = 0; i < 10; i++) writer.write(`line ${i}\n`);
  assert.equal(writer.dropped, 8);
  gate.resolve();
  await writer.flush();
  assert.equal(text, "line 0\nline 1\n");
  gate = Promise.withResolvers();
  gate.resolve();
  writer.write("end\n");
  await writer.flush();
  assert.equal(text, "line 0\nline 1\ngap 8\nend\n");
});

Deno.test("a line that comes just as the last ones have been written is written too", async () => {
  // The moment is a matter of single turns of the microtask queue: each of them is tried.
  for (let turns = 0; turns < 20; turns++) {
    const written: string[] = [];
    const writer = new LineWriter({
      sink: {
        write(bytes) {
          written.push(new TextDecoder().decode(bytes));
          return Promise.resolve(bytes.length);
        },
      },
      gapLine: (dropped) => `${dropped} dropped\n`,
    });
    writer.write("first\n");
    for (let turn = 0; turn < turns; turn++) await undefined;
    writer.write("second\n");
    await writer.flush();
    assert.equal(written.join(""), "first\nsecond\n", `after ${turns} turns`);
  }
});

Deno.test("a reader that is gone is not told about", async () => {
  let calls = 0;
  const writer = new LineWriter({
    sink: { write: () => (calls++, Promise.reject(new Error("broken pipe"))) },
    gapLine: () => "",
  });
  writer.write("a\n");
  await writer.flush();
  writer.write("b\n");
  await writer.flush();
  assert.equal(calls, 1);
});

Deno.test("auto means text on a terminal and JSON elsewhere", () => {
  assert.equal(processLogging(undefined, "auto", true).options.format, "text");
  assert.equal(processLogging(undefined, "auto", false).options.format, "json");
  assert.equal(processLogging(undefined, "text", false).options.format, "text");
});

Deno.test("repeated failures are reported now and then", () => {
  const reported = Array.from({ length: 500 }, (_, n) => n).filter(isReported);
  assert.deepEqual(reported, [1, 5, 30, 120, 240, 360, 480]);
});

Deno.test("a process whose log nobody reads ends all the same", async () => {
  using folder = new TestFolder();
  const program = folder.file("chatter.ts");
  await Deno.writeTextFile(
    program,
    `import { processLogging } from ${JSON.stringify(import.meta.resolve("../../src/runtime/log.ts"))};
    const { options, flush } = processLogging(undefined, "json");
    for (let i = 0; i < 100; i++) options.write("x".repeat(9999) + "\\n");
    await flush();
    Deno.exit(7);`,
  );
  const config = fromFileUrl(new URL("../../deno.json", import.meta.url));
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", `--config=${config}`, program],
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  // The pipe holds 64 KiB; nothing is read from it until the process has ended.
  const status = await child.status;
  await child.stdout.cancel();
  assert.equal(status.code, 7);
});

Deno.test("values of a line are shortened: what comes from outside can be of any length", () => {
  const long = "😀".repeat(5000);
  const lines: string[] = [];
  for (const format of ["json", "text"] as const) {
    configureLogging({ filter: "info", format, write: (line) => lines.push(line) });
    logFor("dispatch").warn("the item {item} failed: {error}", { item: long, error: new Error(long) });
    resetLogging();
  }
  for (const line of lines) {
    assert.ok(line.length < 20_000, `a line of ${line.length} characters`);
    assert.ok(line.includes("… (10000 characters)"));
    assert.ok(line.isWellFormed());
  }
});
