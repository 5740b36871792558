/** The layout rules of the house over a set of source files. */
import { posix } from "node:path";
import { lineAt, type SourceFile } from "./source.ts";
import { findCycles } from "./cycles.ts";
import {
  AMBIENT,
  type Exception,
  FOREIGN_IMPORTS,
  LENGTH,
  MAY_IMPORT,
  NOT_IN_THE_PROGRAM,
  type RuleName,
  WIRING,
} from "./table.ts";

/** Something that a rule objects to. */
export interface Finding {
  readonly rule: RuleName;
  readonly path: string;
  readonly line: number;
  readonly text: string;
  /** True for advice that does not fail the check. */
  readonly advice: boolean;
}

/** Applies every rule. Findings that an exception covers are left out; an exception that covers none is a finding. */
export function checkLayout(files: readonly SourceFile[], exceptions: readonly Exception[]): Finding[] {
  const known = new Set(files.map((file) => file.path));
  const findings: Finding[] = [];
  for (const file of files) {
    findings.push(...checkLength(file), ...checkForm(file), ...checkImports(file, known), ...checkAmbient(file));
  }
  for (const cycle of findCycles(importGraph(files))) {
    const [first = ""] = cycle;
    findings.push(fail("cycle", first, 1, `imports form a circle: ${[...cycle, first].join(" → ")}`));
  }
  const covers = (exception: Exception, finding: Finding) =>
    exception.rule === finding.rule && exception.path === finding.path;
  const kept = findings.filter((finding) => !exceptions.some((exception) => covers(exception, finding)));
  for (const exception of exceptions) {
    if (findings.some((finding) => covers(exception, finding))) continue;
    kept.push(fail(exception.rule, exception.path, 1, `the exception is no longer needed: ${exception.reason}`));
  }
  return kept.sort((a, b) => a.path < b.path ? -1 : a.path > b.path ? 1 : a.line - b.line);
}

/** What each file imports from the given files. */
function importGraph(files: readonly SourceFile[]): Map<string, string[]> {
  const known = new Set(files.map((file) => file.path));
  return new Map(
    files.map((file) => [
      file.path,
      file.imports.map((entry) => resolve(file.path, entry.specifier)).filter((path) => path !== undefined)
        .filter((path) => known.has(path)),
    ]),
  );
}

/** Path of a relative specifier, relative to the root; undefined for packages. */
function resolve(from: string, specifier: string): string | undefined {
  if (!specifier.startsWith(".")) return undefined;
  return posix.normalize(posix.join(posix.dirname(from), specifier));
}

function checkLength(file: SourceFile): Finding[] {
  if (file.lines > LENGTH.most) {
    return [
      fail("length", file.path, LENGTH.most, `${file.lines} lines, at most ${LENGTH.most}: split it along its ideas`),
    ];
  }
  if (file.lines <= LENGTH.advised) return [];
  const text = `${file.lines} lines, more than ${LENGTH.advised}: it asks to be split`;
  return [{ rule: "length", path: file.path, line: LENGTH.advised, text, advice: true }];
}

function checkForm(file: SourceFile): Finding[] {
  const findings: Finding[] = [];
  for (const match of file.code.matchAll(/\bexport\s+default\b|\bexport\s*\{[^}]*\bas\s+default\b/g)) {
    findings.push(
      fail("default-export", file.path, lineAt(file.code, match.index), "default export: export it by name"),
    );
  }
  const name = posix.basename(file.path);
  const star = file.code.match(/\bexport\s+(?:type\s+)?\*/);
  const reexports = file.imports.filter((entry) => entry.form === "reexport").length;
  // What is left of a barrel after its imports and re-exports is nothing.
  const rest = file.code.replaceAll(
    /\b(?:import|export)\s+(?:type\s+)?(?:\*[^"']*|\{[^}]*\}\s*from\s*|)["'][^"']*["'];?/g,
    "",
  );
  if (name === "mod.ts" || name === "index.ts" || star !== null || (reexports > 0 && rest.trim() === "")) {
    findings.push(
      fail("barrel", file.path, 1, "a file that only passes on others' exports: import from where things are"),
    );
  }
  return findings;
}

function checkImports(file: SourceFile, known: ReadonlySet<string>): Finding[] {
  const findings: Finding[] = [];
  for (const { specifier, line } of file.imports) {
    const target = resolve(file.path, specifier);
    if (target === undefined) {
      findings.push(...checkForeign(file, specifier, line));
    } else if (!known.has(target)) {
      // JSON beside the code is data; anything else that is not there would fail at run time.
      if (!target.endsWith(".json")) findings.push(fail("unresolved", file.path, line, `there is no ${target}`));
    } else {
      const objection = directionObjection(file.path, target);
      if (objection !== undefined) findings.push(fail("direction", file.path, line, `${objection} (${target})`));
    }
  }
  return findings;
}

function checkForeign(file: SourceFile, specifier: string, line: number): Finding[] {
  const folder = sourceFolder(file.path);
  if (folder === undefined) return [];
  return FOREIGN_IMPORTS
    .filter((rule) => specifier.startsWith(rule.prefix) && !rule.onlyIn.includes(folder))
    .map((rule) => fail("foreign", file.path, line, `${rule.why} (${specifier})`));
}

/** Why `from` must not import `target`, or undefined. */
function directionObjection(from: string, target: string): string | undefined {
  const own = sourceFolder(from);
  const other = sourceFolder(target);
  const isProgram = own !== undefined || from === "main.ts";
  if (isProgram && own !== other && NOT_IN_THE_PROGRAM.includes(other ?? "")) {
    return `${other} is the other end's: the program must not contain it`;
  }
  if (own === undefined) {
    // Tests, scripts and benchmarks may look at everything; main.ts wires.
    return undefined;
  }
  if (other === undefined) return "src/ must not import what lies outside it";
  if (own === "" || own === other) return undefined;
  if (other === "") return "only main.ts may import the files that wire everything together";
  const allowed = MAY_IMPORT[own];
  if (allowed === undefined) return `the folder ${own} is not in the table of scripts/lib/layout/table.ts`;
  const inside = target.slice("src/".length);
  if (allowed.some((entry) => entry === other || entry === inside)) return undefined;
  return `${own} must not know ${other}`;
}

/** The folder below `src/`; empty for what wires everything together, undefined outside. */
function sourceFolder(path: string): string | undefined {
  const [top, folder] = path.split("/");
  if (top !== "src") return undefined;
  return folder === undefined || folder.endsWith(".ts") || folder === WIRING ? "" : folder;
}

function checkAmbient(file: SourceFile): Finding[] {
  if (sourceFolder(file.path) === undefined) return [];
  return AMBIENT.flatMap(({ pattern, name }) =>
    [...file.code.matchAll(pattern)].map((match) =>
      fail("ambient", file.path, lineAt(file.code, match.index), `${name}: time, timers and randomness are passed in`)
    )
  );
}

function fail(rule: RuleName, path: string, line: number, text: string): Finding {
  return { rule, path, line, text, advice: false };
}
