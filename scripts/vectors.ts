/**
 * `deno task vectors [--json]`: one row per vector file and a total. A file counts only when a claim in `tests/claims/` has
 * code under `src/` produce each value that is compared. Exit code 1 when a case fails.
 */
import { allClaims } from "../tests/claims/all.ts";
import { listVectorFiles, runFile, type VectorRow, vectorsDir } from "../tests/harness/vectors.ts";
import { printError, printLine } from "./lib/print.ts";

const json = Deno.args.includes("--json");
const unknown = Deno.args.filter((argument) => argument !== "--json");
if (unknown.length > 0) {
  printError(`vectors: unexpected argument ${JSON.stringify(unknown[0])}; the only option is --json`);
  Deno.exit(2);
}

const root = vectorsDir();
const claimOf = new Map(allClaims.flatMap((claim) => claim.files.map((file) => [file, claim] as const)));
const files = listVectorFiles(root);
const rows: VectorRow[] = [];
for (const file of files) rows.push(await runFile(claimOf.get(file), file, root));
// A claimed file that is missing is a failure too: its cases have silently stopped being checked.
for (const [file, claim] of claimOf) if (!files.includes(file)) rows.push(await runFile(claim, file, root));

if (json) printLine(JSON.stringify(rows.map(({ failures: _, ...row }) => row)));
else printTable(rows);
Deno.exitCode = rows.some((row) => row.failed > 0) || files.length === 0 ? 1 : 0;

function printTable(rows: readonly VectorRow[]): void {
  const width = Math.max(...rows.map((row) => row.file.length), 5);
  const line = (file: string, cases: string, passed: string, failed: string) =>
    printLine(`${file.padEnd(width)} ${cases.padStart(7)} ${passed.padStart(7)} ${failed.padStart(7)}`);
  line("file", "cases", "passed", "failed");
  const total = { files: 0, cases: 0, passed: 0, failed: 0 };
  for (const row of rows) {
    if (!row.claimed) {
      printLine(`${row.file.padEnd(width)} not claimed yet`);
      continue;
    }
    line(row.file, String(row.cases), String(row.passed), String(row.failed));
    for (const failure of row.failures) printLine(`    ${failure}`);
    total.files++;
    total.cases += row.cases;
    total.passed += row.passed;
    total.failed += row.failed;
  }
  line(
    `total: ${total.files} of ${rows.length} files`,
    String(total.cases),
    String(total.passed),
    String(total.failed),
  );
}
