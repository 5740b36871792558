/** kill -9 at every step of every write, a hundred seeded runs in one folder: no half version, no number twice. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readOnnx } from "../../src/training/onnx_reader.ts";
import { seededRandom } from "../../src/training/random.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { ManagedProcess, TestFolder } from "../harness/process.ts";
import { openStore, TestLog } from "./support.ts";

const RUNS = 100;
const CHILD = fromFileUrl(new URL("crash_child.ts", import.meta.url));
/** Write steps of one round: model, digest, metadata, and the metadata again, five each. */
const STEPS_PER_ROUND = 20;

Deno.test("kill -9 at every write step leaves no half version and repeats no number", async () => {
  using folder = new TestFolder();
  const random = seededRandom(2026);
  const published = new Map<number, string>(), judged = new Set<number>(), stops = new Set<string>();
  for (let run = 0; run < RUNS; run++) {
    // The first runs visit every step once, the others stop anywhere in two rounds.
    const stopAt = run < STEPS_PER_ROUND ? run + 1 : 1 + Math.floor(random() * 2 * STEPS_PER_ROUND);
    await using child = ManagedProcess.start({
      name: `run ${run}`,
      command: [
        Deno.execPath(),
        "run",
        "--quiet",
        "--no-check",
        `--allow-read=${folder.path}`,
        `--allow-write=${folder.path}`,
        CHILD,
        folder.path,
        `${stopAt}`,
        `${run}`,
      ],
    });
    const stopped = await child.line("a write step", (line) => line.startsWith("stopped at"));
    child.signal("SIGKILL");
    await child.ended;
    stops.add(stopped.replace(/\d{6}/, "N"));
    for (const line of child.lines) {
      const [word, version = "", sha256 = ""] = line.split(" ");
      if (word === "published") {
        assert.ok(!published.has(Number(version)), `run ${run}: version ${version} was given twice`);
        published.set(Number(version), sha256);
      } else if (word === "marked") judged.add(Number(version));
    }
    await checkFolder(folder, published, judged);
  }
  assert.equal(stops.size, 15, `steps visited: ${[...stops].join(", ")}`);
  assert.ok(published.size > 20);
});

/** What a restarted trainer finds. */
async function checkFolder(
  folder: TestFolder,
  published: ReadonlyMap<number, string>,
  judged: ReadonlySet<number>,
): Promise<void> {
  const log = new TestLog();
  const store = await openStore(folder.path, { log });
  const names = [...Deno.readDirSync(folder.path)].map((entry) => entry.name);
  assert.ok(names.every((name) => !name.endsWith(".tmp")), "temporary files are gone");
  assert.ok(!log.has("damaged"), log.lines.join("\n"));
  const records = await store.list();
  assert.ok(records.every((record) => record.version <= store.highest));
  for (const { version, path, sha256 } of records) {
    // Without a digest it is not published and nobody reads it; with one, everything about it is whole.
    if (sha256 === undefined) continue;
    const bytes = Deno.readFileSync(path);
    assert.equal(createHash("sha256").update(bytes).digest("hex"), sha256, `version ${version}`);
    assert.ok(readOnnx(bytes, 3).isFinite());
  }
  const found = new Map(records.map((record) => [record.version, record]));
  for (const [version, sha256] of published) {
    assert.equal(found.get(version)?.sha256, sha256, `version ${version} is lost`);
  }
  for (const version of judged) {
    assert.equal(found.get(version)?.metadata.state, "stable", `the mark of ${version} is lost`);
  }
}
