/** `deno task vectors`: its table, its JSON, and that altered expectations make it fail. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { sourceRoot } from "../../scripts/lib/places.ts";
import { scopeFlags } from "../../scripts/lib/scopes.ts";
import { allClaims } from "../claims/all.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { TestFolder } from "../harness/process.ts";
import { listVectorFiles, runFile, type VectorClaim, vectorsDir } from "../harness/vectors.ts";

const ORIGINALS = fromFileUrl(new URL("../../../shared/vectors", import.meta.url));

interface Row {
  readonly file: string;
  readonly claimed: boolean;
  readonly cases: number;
  readonly passed: number;
  readonly failed: number;
}

/** Runs the script with the permissions of its task. */
async function runScript(folder: string, ...args: string[]): Promise<{ code: number; text: string }> {
  const flags = scopeFlags("tools", { ...Deno.env.toObject(), VECTORS_DIR: folder }, Deno.execPath());
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--permission-set=scripts", ...flags, "scripts/vectors.ts", ...args],
    env: { VECTORS_DIR: folder },
    cwd: sourceRoot,
    stdout: "piped",
    stderr: "inherit",
  }).output();
  return { code, text: new TextDecoder().decode(stdout) };
}

/** All vector files in a folder of their own, the given ones altered. */
async function altered(
  folder: TestFolder,
  change: Readonly<Record<string, (text: string) => string>>,
): Promise<string> {
  const copy = folder.file("vectors");
  const walk = async (from: string, to: string) => {
    await Deno.mkdir(to);
    for await (const { name, isDirectory } of Deno.readDir(from)) {
      if (isDirectory) await walk(`${from}/${name}`, `${to}/${name}`);
      else await Deno.copyFile(`${from}/${name}`, `${to}/${name}`);
    }
  };
  await walk(vectorsDir(), copy);
  for (const [file, edit] of Object.entries(change)) {
    const text = await Deno.readTextFile(`${copy}/${file}`);
    assert.notEqual(edit(text), text, `${file} was not altered`);
    await Deno.writeTextFile(`${copy}/${file}`, edit(text));
  }
  return copy;
}

Deno.test("one row a file in JSON, all claimed ones pass, and the table agrees", async () => {
  const { code, text } = await runScript(vectorsDir(), "--json");
  const rows: Row[] = JSON.parse(text);
  assert.deepEqual(rows.filter((row) => row.failed > 0), []);
  assert.equal(code, 0);
  assert.deepEqual(rows.map((row) => row.file), listVectorFiles());
  const claimed = rows.filter((row) => row.claimed);
  assert.deepEqual(claimed.map((row) => row.file).sort(), allClaims.flatMap((claim) => claim.files).sort());
  for (const row of rows) {
    assert.deepEqual(Object.keys(row), ["file", "claimed", "cases", "passed", "failed"]);
    assert.equal(row.passed + row.failed, row.cases, row.file);
    assert.ok(row.claimed ? row.cases > 0 && row.failed === 0 : row.cases === 0, row.file);
  }
  const table = await runScript(vectorsDir());
  assert.equal(table.code, 0);
  const total = (key: "cases" | "passed" | "failed") => claimed.reduce((sum, row) => sum + row[key], 0);
  const last = table.text.trimEnd().split("\n").at(-1)?.split(/\s+/);
  assert.deepEqual(last, [
    ...`total: ${claimed.length} of ${rows.length} files`.split(" "),
    ...[total("cases"), total("passed"), total("failed")].map(String),
  ]);
  assert.equal((table.text.match(/ not claimed yet$/gm) ?? []).length, rows.length - claimed.length);
});

Deno.test("an altered expectation fails its row and the run", async () => {
  using folder = new TestFolder();
  // Any claimed file serves.
  const [claimed = ""] = allClaims.flatMap((claim) => claim.files);
  const copy = await altered(folder, {
    [claimed]: (text) => text.replaceAll(/\d/g, (digit) => `${9 - Number(digit)}`),
  });
  const { code, text } = await runScript(copy, "--json");
  assert.equal(code, 1);
  const failing = (JSON.parse(text) as Row[]).filter((row) => row.failed > 0).map((row) => row.file);
  assert.deepEqual(failing, [claimed]);
});

Deno.test("a claimed file that is missing fails the run", async () => {
  using folder = new TestFolder();
  const copy = await altered(folder, {});
  // One whose claim names it; some claims list their folder.
  const claimed = "training/seed.json";
  assert.ok(allClaims.some((claim) => claim.files.includes(claimed)));
  await Deno.remove(`${copy}/${claimed}`);
  const { code, text } = await runScript(copy);
  assert.equal(code, 1);
  assert.ok(text.includes("cannot read the file"), text);
});

Deno.test("a claim without a case counts as a failure, and so does one that throws", async () => {
  const [file = ""] = listVectorFiles();
  const empty: VectorClaim = { files: [file], cases: () => [] };
  const throwing: VectorClaim = {
    files: [file],
    cases: () => {
      throw new Error("unreadable");
    },
  };
  for (const claim of [empty, throwing]) {
    const row = await runFile(claim, file);
    assert.deepEqual([row.cases, row.passed, row.failed], [1, 0, 1]);
  }
});

// Each claim must be able to fail. What in a file is an expectation and what is an input is the claim's affair; but a claim
// that still passes whichever value of its file is changed compares nothing.
for (const claim of allClaims) {
  for (const file of claim.files) {
    // A case that is cut short by a failure leaves its sockets behind; that is no matter here.
    const options = { sanitizeOps: false, sanitizeResources: false };
    Deno.test(`a changed value in ${file} is noticed`, options, async () => {
      const data: unknown = JSON.parse(await Deno.readTextFile(`${vectorsDir()}/${file}`));
      const leaves = findLeaves(data);
      for (const [at, leaf] of leaves.entries()) {
        if (at % Math.ceil(leaves.length / 60) !== 0) continue;
        const original = leaf.get();
        leaf.set(changed(original));
        if (await fails(claim, file, data)) return;
        leaf.set(original);
      }
      assert.fail(`none of ${leaves.length} values of ${file} matters to its claim`);
    });
  }
}

async function fails(claim: VectorClaim, file: string, data: unknown): Promise<boolean> {
  const readBytes = (path: string) => Deno.readFileSync(`${vectorsDir()}/${path}`);
  try {
    for (const vectorCase of claim.cases(structuredClone(data), { file, readBytes })) await vectorCase.check();
    return false;
  } catch {
    return true;
  }
}

interface Leaf {
  get(): unknown;
  set(value: unknown): void;
}

function findLeaves(value: unknown, found: Leaf[] = []): Leaf[] {
  if (typeof value !== "object" || value === null) return found;
  const holder = value as Record<string, unknown>;
  for (const key of Object.keys(holder)) {
    const inner = holder[key];
    if (typeof inner === "object" && inner !== null) findLeaves(inner, found);
    else found.push({ get: () => holder[key], set: (next) => holder[key] = next });
  }
  return found;
}

function changed(value: unknown): unknown {
  switch (typeof value) {
    case "number":
      return value + 1;
    case "boolean":
      return !value;
    case "string":
      return value === "" ? "x" : value.slice(0, -1) + (value.endsWith("0") ? "1" : "0");
    default:
      return 1;
  }
}

Deno.test({
  name: "our copy of the vectors is the shared one",
  // The shared folder lies beside a checkout only where the project is worked on.
  ignore: !exists(ORIGINALS),
  fn: () => {
    const list = (root: string) => [...walkFiles(root, "")].sort();
    assert.deepEqual(list(fromFileUrl(new URL("../vectors", import.meta.url))), list(ORIGINALS));
    for (const path of list(ORIGINALS)) {
      const ours = Deno.readFileSync(fromFileUrl(new URL(`../vectors/${path}`, import.meta.url)));
      assert.ok(Buffer.from(ours).equals(Deno.readFileSync(`${ORIGINALS}/${path}`)), path);
    }
  },
});

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isDirectory;
  } catch {
    return false;
  }
}

function* walkFiles(root: string, relative: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(`${root}/${relative}`)) {
    const path = relative === "" ? name : `${relative}/${name}`;
    if (isDirectory) yield* walkFiles(root, path);
    else yield path;
  }
}
