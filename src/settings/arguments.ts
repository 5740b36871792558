/**
 * The command line (runtime.md 1 and 2.1): long flags with `--name value` or `--name=value`, full names only, each once.
 * Order of checks and texts are those of the reference's parser, tried case by case.
 */
import { UsageError } from "./errors.ts";
import { type VariableName, variableOf, variables } from "./table.ts";
import { printable } from "./text.ts";
import type { Variable } from "./variable.ts";

/** What a command line asks for. */
export type CommandLine =
  | { readonly kind: "help" }
  | { readonly kind: "version" }
  | { readonly kind: "run"; readonly flags: ReadonlyMap<VariableName, string> };

const nameByFlag: ReadonlyMap<string, VariableName> = new Map(
  variables.flatMap(([name, row]) => row.flag === undefined ? [] : [[row.flag, name] as const]),
);

/**
 * Reads the arguments after the program name.
 *
 * @throws UsageError for the first thing that is wrong with them, from left to right.
 */
export function parseArguments(args: readonly string[]): CommandLine {
  const flags = new Map<VariableName, string>();
  for (let at = 0; at < args.length; at++) {
    const arg = args[at] ?? "";
    if (arg === "--") {
      const extra = args[at + 1];
      if (extra !== undefined) throw unexpected(extra);
      break;
    }
    if (!arg.startsWith("-") || arg === "-") throw unexpected(arg);
    if (!arg.startsWith("--")) return shortFlags(arg);
    const { flag, inline } = splitLong(arg);
    const asked = helpOrVersion(flag);
    if (asked !== undefined) {
      if (inline === undefined) return { kind: asked };
      throw new UsageError(`unexpected value '${printable(inline)}' for '${flag}' found; no more were expected`);
    }
    const name = nameByFlag.get(flag);
    if (name === undefined) throw unexpected(flag);
    const value = inline ?? followingValue(flag, args, ++at);
    if (flags.has(name)) throw new UsageError(`the argument '${flagUsage(flag)}' cannot be used multiple times`);
    checkFlagValue(name, value);
    flags.set(name, value);
  }
  return { kind: "run", flags };
}

/**
 * Reads the value of a variable that has a flag, wherever it was given.
 *
 * @throws UsageError naming the flag.
 */
export function checkFlagValue(name: VariableName, value: string): unknown {
  const row = variableOf(name);
  if (row?.flag === undefined) throw new TypeError(`${name} has no flag`);
  const reading = row.read(value);
  if (reading.ok) return reading.value;
  const shown = row.hidden === undefined ? printable(value) : "<hidden>";
  throw new UsageError(`invalid value '${shown}' for '${flagUsage(row.flag)}': ${reading.why}`);
}

/** A flag with the name of its value, e.g. `--pool <POOL>`. */
export function flagUsage(flag: string): string {
  return `${flag} <${flag.slice(2).replaceAll("-", "_").toUpperCase()}>`;
}

/**
 * Complains about required variables that neither command line nor environment give.
 *
 * @throws UsageError naming all of them.
 */
export function checkRequired(isGiven: (name: VariableName) => boolean): void {
  const missing = variables.filter(([name, row]) => row.required === true && !isGiven(name)).map(([, row]) => row);
  if (missing.length === 0) return;
  throw new UsageError("the following required arguments were not provided:", missing.map(usageLine));
}

function usageLine(row: Variable<unknown>): string {
  return `  ${flagUsage(row.flag ?? "")}`;
}

function splitLong(arg: string): { flag: string; inline: string | undefined } {
  const equals = arg.indexOf("=");
  return equals < 0 ? { flag: arg, inline: undefined } : { flag: arg.slice(0, equals), inline: arg.slice(equals + 1) };
}

function helpOrVersion(flag: string): "help" | "version" | undefined {
  if (flag === "--help") return "help";
  return flag === "--version" ? "version" : undefined;
}

/** A cluster of short flags: only `-h` and `-V` exist, and the first letter decides. */
function shortFlags(arg: string): CommandLine {
  const letter = [...arg][1] ?? "";
  if (letter === "h") return { kind: "help" };
  if (letter === "V") return { kind: "version" };
  throw unexpected(`-${letter}`);
}

/** The argument at `at` as the value of `flag`. What begins with a dash is none: it is another flag, or a mistake. */
function followingValue(flag: string, args: readonly string[], at: number): string {
  const next = args[at];
  if (next !== undefined && (!next.startsWith("-") || next === "-")) return next;
  if (next === "--" && args[at + 1] !== undefined) throw unexpected(args[at + 1] ?? "");
  if (next !== undefined && next !== "--" && !isKnown(next)) {
    throw unexpected(next.startsWith("--") ? splitLong(next).flag : `-${[...next][1] ?? ""}`);
  }
  throw new UsageError(`a value is required for '${flagUsage(flag)}' but none was supplied`);
}

function isKnown(arg: string): boolean {
  if (!arg.startsWith("--")) return /^-[hV]/.test(arg);
  const { flag } = splitLong(arg);
  return nameByFlag.has(flag) || helpOrVersion(flag) !== undefined;
}

function unexpected(arg: string): UsageError {
  return new UsageError(`unexpected argument '${printable(arg)}' found`);
}
