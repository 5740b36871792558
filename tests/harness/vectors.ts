/**
 * The one harness through which every vector file is read. A *claim* says which file it covers and turns the file's content
 * into cases; each case calls code under `src/` and compares what it produced. The same claims serve `deno task test`
 * (one test a file, one step a case) and `deno task vectors` (one row a file).
 *
 * The folder is `VECTORS_DIR` when that is set, so that altered expectations must make the cases fail.
 */
import { fromFileUrl, join } from "./paths.ts";

/** One comparison within a vector file. `check` throws when code under `src/` does not produce what the file expects. */
export interface VectorCase {
  readonly name: string;
  check(): void | Promise<void>;
}

/** What a claim gets to work with. */
export interface VectorContext {
  /** Path of the file relative to the vectors folder, with forward slashes. */
  readonly file: string;
  /** Reads another file of the vectors folder, e.g. the binary file that a case names. */
  readBytes(relativePath: string): Uint8Array;
}

/** Coverage of one vector file, or of several with the same form. */
export interface VectorClaim {
  /** Paths relative to the vectors folder. */
  readonly files: readonly string[];
  /** Cases of one file; `data` is the parsed JSON. Must yield at least one case. */
  cases(data: unknown, context: VectorContext): Iterable<VectorCase>;
}

/** The folder that the vectors are read from. */
export function vectorsDir(): string {
  return Deno.env.get("VECTORS_DIR") ?? fromFileUrl(new URL("../vectors", import.meta.url));
}

/** All vector files (`*.json`), as paths relative to the vectors folder, sorted. */
export function listVectorFiles(root: string = vectorsDir()): string[] {
  const found: string[] = [];
  const walk = (relative: string) => {
    for (const entry of Deno.readDirSync(join(root, relative))) {
      const path = relative === "" ? entry.name : `${relative}/${entry.name}`;
      if (entry.isDirectory) walk(path);
      else if (entry.isFile && entry.name.endsWith(".json")) found.push(path);
    }
  };
  walk("");
  return found.sort();
}

/** Parses one vector file and returns its cases under `claim`. */
export function casesOf(claim: VectorClaim, file: string, root: string = vectorsDir()): VectorCase[] {
  const data: unknown = JSON.parse(Deno.readTextFileSync(join(root, file)));
  const context: VectorContext = { file, readBytes: (relativePath) => Deno.readFileSync(join(root, relativePath)) };
  return [...claim.cases(data, context)];
}

/** Result of running one file's cases. */
export interface VectorRow {
  readonly file: string;
  readonly claimed: boolean;
  readonly cases: number;
  readonly passed: number;
  readonly failed: number;
  /** One line per failed case: name and first line of the error. */
  readonly failures: readonly string[];
}

/** Runs the cases of `file`. A claim without a single case counts as one failure: it would prove nothing. */
export async function runFile(claim: VectorClaim | undefined, file: string, root?: string): Promise<VectorRow> {
  if (claim === undefined) return { file, claimed: false, cases: 0, passed: 0, failed: 0, failures: [] };
  const failures: string[] = [];
  let cases: VectorCase[] = [];
  try {
    cases = casesOf(claim, file, root);
    if (cases.length === 0) failures.push("the claim has no case");
  } catch (thrown) {
    failures.push(`cannot read the file: ${firstLine(thrown)}`);
  }
  let passed = 0;
  for (const vectorCase of cases) {
    try {
      await vectorCase.check();
      passed++;
    } catch (thrown) {
      failures.push(`${vectorCase.name}: ${firstLine(thrown)}`);
    }
  }
  return {
    file,
    claimed: true,
    cases: Math.max(cases.length, failures.length),
    passed,
    failed: failures.length,
    failures,
  };
}

/** Registers one test per claimed file and one step per case with the test runner. */
export function registerVectorTests(claims: readonly VectorClaim[]): void {
  for (const claim of claims) {
    for (const file of claim.files) {
      Deno.test(`vectors ${file}`, async (t) => {
        const cases = casesOf(claim, file);
        if (cases.length === 0) throw new Error("the claim has no case");
        for (const vectorCase of cases) await t.step(vectorCase.name, () => vectorCase.check());
      });
    }
  }
}

function firstLine(thrown: unknown): string {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  return text.split("\n").slice(0, 2).join(" ").slice(0, 300);
}
