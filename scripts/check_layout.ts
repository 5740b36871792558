/**
 * `deno task layout [ROOT]`: circular and backward imports, long files, default exports, barrel files, and time or randomness
 * that is not passed in. The rules are in `lib/layout/table.ts`.
 */
import { join } from "node:path";
import { checkLayout } from "./lib/layout/check.ts";
import { readSource, type SourceFile } from "./lib/layout/source.ts";
import { EXCEPTIONS } from "./lib/layout/table.ts";
import { sourceRoot } from "./lib/places.ts";
import { printLine } from "./lib/print.ts";

/** Folders with TypeScript of ours, and the one file beside them. */
const PLACES = ["main.ts", "src", "tests", "scripts", "demo", "bench"];

/** Reads every TypeScript file of the tree at `root`. */
function readTree(root: string): SourceFile[] {
  const files: SourceFile[] = [];
  const walk = (path: string) => {
    const info = Deno.lstatSync(join(root, path));
    if (info.isDirectory) {
      for (const entry of Deno.readDirSync(join(root, path))) walk(`${path}/${entry.name}`);
    } else if (info.isFile && path.endsWith(".ts")) {
      files.push(readSource(path, Deno.readTextFileSync(join(root, path))));
    }
  };
  const present = new Set([...Deno.readDirSync(root)].map((entry) => entry.name));
  for (const place of PLACES) if (present.has(place)) walk(place);
  return files;
}

const [root = sourceRoot] = Deno.args;
const files = readTree(root);
const findings = checkLayout(files, root === sourceRoot ? EXCEPTIONS : []);
for (const { path, line, rule, text, advice } of findings) {
  printLine(`${path}:${line}: ${advice ? "advice" : "error"} ${rule}: ${text}`);
}
const errors = findings.filter((finding) => !finding.advice).length;
printLine(`layout: ${files.length} files, ${errors} errors, ${findings.length - errors} pieces of advice`);
Deno.exitCode = errors > 0 || files.length === 0 ? 1 : 0;
