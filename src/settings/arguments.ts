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
 * @throws UsageError for the first thing that is wrong with them.
 */
export function parseArguments(args: readonly string[]): CommandLine {
  const reader = new ArgumentReader();
  for (const [at, arg] of args.entries()) {
    if (arg === "--") {
      // Nothing may follow: there are no positional arguments.
      const extra = args[at + 1];
      if (extra !== undefined) throw unexpected(extra);
      break;
    }
    const asked = reader.take(arg);
    if (asked !== undefined) return { kind: asked };
  }
  return { kind: "run", flags: reader.finish() };
}

/**
 * Takes arguments one by one. A flag whose value is an argument of its own is judged only when the next flag, or the end,
 * comes: an argument that is no flag at all is complained about first.
 */
class ArgumentReader {
  readonly #flags = new Map<VariableName, string>();
  #open: { readonly name: VariableName; readonly flag: string; value?: string } | undefined;

  /** @returns what was asked for instead of running, if anything. */
  take(arg: string): "help" | "version" | undefined {
    if (!arg.startsWith("-") || arg === "-") {
      if (this.#open === undefined || this.#open.value !== undefined) throw unexpected(arg);
      this.#open.value = arg;
      return undefined;
    }
    return arg.startsWith("--") ? this.#long(arg) : this.#short(arg);
  }

  finish(): ReadonlyMap<VariableName, string> {
    this.#close();
    return this.#flags;
  }

  #long(arg: string): "help" | "version" | undefined {
    const equals = arg.indexOf("=");
    const flag = equals < 0 ? arg : arg.slice(0, equals);
    const inline = equals < 0 ? undefined : arg.slice(equals + 1);
    if (flag === "--help" || flag === "--version") {
      if (inline !== undefined) {
        throw new UsageError(`unexpected value '${printable(inline)}' for '${flag}' found; no more were expected`);
      }
      this.#close();
      return flag === "--help" ? "help" : "version";
    }
    const name = nameByFlag.get(flag);
    if (name === undefined) throw unexpected(flag);
    this.#close();
    this.#open = { name, flag };
    if (inline === undefined) return undefined;
    this.#open.value = inline;
    this.#close();
    return undefined;
  }

  /** A cluster of short flags: only `-h` and `-V` exist, and the first letter decides. */
  #short(arg: string): "help" | "version" {
    const letter = [...arg][1] ?? "";
    if (letter !== "h" && letter !== "V") throw unexpected(`-${letter}`);
    this.#close();
    return letter === "h" ? "help" : "version";
  }

  /** Judges the flag that is still open. */
  #close(): void {
    if (this.#open === undefined) return;
    const { name, flag, value } = this.#open;
    if (value === undefined) {
      throw new UsageError(`a value is required for '${flagUsage(flag)}' but none was supplied`);
    }
    if (this.#flags.has(name)) throw new UsageError(`the argument '${flagUsage(flag)}' cannot be used multiple times`);
    checkFlagValue(name, value);
    this.#flags.set(name, value);
    this.#open = undefined;
  }
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

function unexpected(arg: string): UsageError {
  return new UsageError(`unexpected argument '${printable(arg)}' found`);
}
