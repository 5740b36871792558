/** The demonstration as people start it: what it shows, and that it leaves nothing behind. */
import assert from "node:assert/strict";
import { readQueries, readSentences } from "../../demo/texts.ts";
import { scopeFlags } from "../../scripts/lib/scopes.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { ManagedProcess, TestFolder } from "../harness/process.ts";

const ROOT = fromFileUrl(new URL("../../", import.meta.url));
const SENTENCES = readSentences(Deno.readTextFileSync(`${ROOT}/demo/sentences.txt`));
const QUERIES = readQueries(Deno.readTextFileSync(`${ROOT}/demo/queries.txt`));

/** The command behind `deno task demo`, so that a signal reaches it and nothing else. */
function command(folder: TestFolder, args: readonly string[]): string[] {
  const flags = scopeFlags("demo", { ...Deno.env.toObject(), TMPDIR: folder.path }, Deno.execPath()).map(
    withNatsOfPath,
  );
  return [Deno.execPath(), "run", "--quiet", "--no-prompt", "-P=demo", ...flags, "demo/main.ts", ...args];
}

/** The tests may not read every folder of the PATH, so they find a nats-server there only by starting it. */
function withNatsOfPath(flag: string): string {
  if (!flag.startsWith("--allow-run=") || /[=,]nats-server(,|$)/.test(flag) || !natsIsOnPath()) return flag;
  return `${flag},nats-server`;
}

function natsIsOnPath(): boolean {
  try {
    return new Deno.Command("nats-server", { args: ["--version"] }).outputSync().success;
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return false;
    throw thrown;
  }
}

function start(folder: TestFolder, program: readonly string[], env: Record<string, string> = {}): ManagedProcess {
  const all = { TMPDIR: folder.path, ...env };
  return ManagedProcess.start({ name: "the demonstration", command: program, cwd: ROOT, env: all });
}

/** Requires that no file of a run is left. */
function assertNothingLeft(folder: TestFolder): void {
  assert.deepEqual([...Deno.readDirSync(folder.path)].map(({ name }) => name), []);
}

/** Connections to the programs of a run, as far as they listen by now: what ends shows at the other end. */
async function connectToAll(folder: TestFolder): Promise<Deno.UnixConn[]> {
  const connections: Deno.UnixConn[] = [];
  for (const { name } of Deno.readDirSync(folder.path)) {
    for (const socket of ["backend.sock", "ingest.sock"]) {
      const path = `${folder.path}/${name}/${socket}`;
      try {
        connections.push(await Deno.connect({ transport: "unix", path }));
      } catch (thrown) {
        if (!(thrown instanceof Deno.errors.NotFound)) throw thrown;
      }
    }
  }
  return connections;
}

/** Requires that the program at the other end closes the connection, or has never come to accept it. */
async function assertEnded(connection: Deno.UnixConn): Promise<void> {
  try {
    assert.equal(await connection.read(new Uint8Array(1)), null);
  } catch (thrown) {
    if (!(thrown instanceof Deno.errors.ConnectionReset)) throw thrown;
  } finally {
    connection.close();
  }
}

/** The columns of a table's row, found by its first word. */
function row(lines: readonly string[], first: string): string[] {
  const found = lines.filter((line) => line.startsWith(`  ${first} `)).map((line) => line.trim().split(/\s{2,}/));
  // The last one: steps are named like the operations, and tables come after the steps.
  const cells = found.at(-1);
  assert.ok(cells !== undefined, `no row '${first}':\n${lines.join("\n")}`);
  return cells;
}

function assertFindings(lines: readonly string[]): void {
  for (const [operation, items] of [["encode", SENTENCES.length + QUERIES.length], ["extract", SENTENCES.length]]) {
    const cells = row(lines, `${operation}`);
    assert.equal(cells.length, 9, cells.join(" | "));
    const [count, batches, smallest, median, largest, p50, p99, rate] = cells.slice(1).map((cell) =>
      Number(cell.replaceAll(",", ""))
    ) as [number, number, number, number, number, number, number, number];
    assert.equal(count, items);
    assert.ok(batches < count && largest > 1, `nothing was batched: ${cells}`);
    assert.ok(1 <= smallest && smallest <= median && median <= largest && largest <= 48, `${cells}`);
    assert.ok(smallest * batches <= count && count <= largest * batches, `the sizes do not add up: ${cells}`);
    assert.ok(0 < p50 && p50 <= p99 && rate > 0, `${cells}`);
  }
  assert.equal(row(lines, "score")[1], `${QUERIES.length}`);

  const query = lines.indexOf("  bread dough rising in a warm kitchen");
  assert.match(lines[query + 1] ?? "", /similarity +score +topic +sentence/);
  const [similarity, score, topic, sentence] = (lines[query + 2] ?? "").trim().split(/\s{2,}/);
  assert.equal(topic, "cooking");
  assert.equal(sentence, "Bread dough rises slowly in a cool kitchen and tastes better for it.");
  assert.ok(Number(similarity) > 0.4 && Number(similarity) < 1, similarity);
  assert.ok(Number(score) > 5, score);

  assert.match(row(lines, "email")[2] ?? "", /kitchen@example\.org/);
  assert.match(row(lines, "amount")[2] ?? "", /3\.80 EUR/);
  assert.match(row(lines, "date")[2] ?? "", /14 March 2025/);
  assert.match(row(lines, "name")[2] ?? "", /Maria Lindqvist/);
  assert.match(row(lines, "url")[2] ?? "", /https:\/\/example\.org\/plant-swap/);

  const output = lines.join("\n");
  const [, words, chunks] = /(\d+) words in (\d+) chunks: the first after \d+ ms/.exec(output) ?? [];
  assert.equal(words, "60");
  assert.ok(Number(chunks) > 1, output);
  assert.match(output, /All programs have ended in order, after \d+\.\d\d s\./);
}

Deno.test("demo: without a broker, by its task", async () => {
  using folder = new TestFolder();
  // Settings in the shell of whoever tries it must not get into it.
  const env = { SIE_IPC_SOCKET_PATH: "/nonexistent/backend.sock", SIE_POOL: "another", RUST_LOG: "trace" };
  await using demo = start(folder, [Deno.execPath(), "task", "--quiet", "demo"], env);
  const { code } = await demo.end();
  assert.equal(code, 0, demo.output());
  assertFindings(demo.lines);
  assert.match(demo.output(), /no broker/);
  for (const [file] of demo.output().matchAll(/\b[\w/-]+\.(?:md|ts)\b/g)) Deno.statSync(`${ROOT}/${file}`);
  assertNothingLeft(folder);
});

Deno.test("demo: through a real nats-server", async () => {
  using folder = new TestFolder();
  await using demo = start(folder, command(folder, ["--nats"]));
  const { code } = await demo.end();
  assert.equal(code, 0, demo.output());
  assert.match(demo.output(), /nats-server +with JetStream, ready/);
  assertFindings(demo.lines);
  assertNothingLeft(folder);
});

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  for (const moment of ["backend", "sidecar", "generation"]) {
    Deno.test(`demo: ${signal} after the start of the ${moment} ends everything in order`, async () => {
      using folder = new TestFolder();
      await using demo = start(folder, command(folder, []));
      const sign = moment === "generation" ? "A text as it is generated" : `  ${moment} `;
      await demo.line(sign, (line) => line.startsWith(sign));
      const connections = await connectToAll(folder);
      assert.equal(connections.length > (moment === "backend" ? 0 : 1), true, `${connections.length} connections`);
      demo.signal(signal);
      const { code } = await demo.end();
      assert.equal(code, 0, demo.output());
      await Promise.all(connections.map(assertEnded));
      assert.match(demo.output(), /Interrupted\. All programs have ended\./);
      assert.doesNotMatch(demo.output(), /Next/);
      assertNothingLeft(folder);
    });
  }
}

Deno.test("demo: a backend that does not start shows what it said last", async () => {
  using folder = new TestFolder();
  // Too long for the path of a Unix socket.
  const long = `${folder.path}/${"x".repeat(100)}`;
  Deno.mkdirSync(long);
  await using demo = start(folder, command(folder, []), { TMPDIR: long });
  const { code } = await demo.end();
  assert.equal(code, 1, demo.output());
  assert.match(demo.output(), /demo: the backend ended early \(exit code 1\); its last output:\n.*SUN_LEN/);
  Deno.removeSync(long);
  assertNothingLeft(folder);
});

Deno.test("demo: without a nats-server, and nothing to get one with, it says so", async () => {
  using folder = new TestFolder();
  using empty = new TestFolder();
  const env = { PATH: empty.path, WORKER_SIDECAR_CACHE: empty.file("cache") };
  await using demo = start(folder, command(folder, ["--nats"]), env);
  const { code } = await demo.end();
  assert.equal(code, 1, demo.output());
  assert.match(demo.output(), /no python3 on the PATH[\s\S]*demo: there is no nats-server; without --nats/);
  assertNothingLeft(folder);
});

Deno.test("demo: an unknown option is refused, and help is given", async () => {
  using folder = new TestFolder();
  await using refused = start(folder, command(folder, ["--natz"]));
  assert.equal((await refused.end()).code, 2);
  assert.match(refused.output(), /--natz[\s\S]*Usage: deno task demo \[--nats\]/);
  await using helped = start(folder, command(folder, ["--help"]));
  assert.equal((await helped.end()).code, 0);
  assert.match(helped.output(), /^Usage: deno task demo \[--nats\]/);
});
