/** From command line and environment to one value a variable, with its origin. */
import { checkFlagValue, checkRequired } from "./arguments.ts";
import { SettingsError } from "./errors.ts";
import type { Origin } from "./settings.ts";
import { type Values, type VariableName, variables } from "./table.ts";
import { printable } from "./text.ts";
import type { Shown, Variable } from "./variable.ts";

/** What was read, before anything is derived or compared. */
export interface ReadValues {
  readonly values: Values;
  /** Variables that were given and whose value is in use. */
  readonly origins: ReadonlyMap<VariableName, Origin>;
  readonly warnings: readonly string[];
}

/**
 * Reads every variable of the table: the flag wins over the environment, the empty text counts as a value.
 *
 * @throws UsageError for a variable with a flag, SettingsError for one of our own, whose text is unusable.
 */
export function readValues(
  flags: ReadonlyMap<VariableName, string>,
  environment: Readonly<Record<string, string>>,
): ReadValues {
  const values: Partial<Record<VariableName, unknown>> = {};
  const origins = new Map<VariableName, Origin>();
  const warnings: string[] = [];
  for (const [name, row] of variables) {
    const flagged = flags.get(name);
    const text = flagged ?? ownValue(environment, name);
    values[name] = row.fallback;
    if (text === undefined) continue;
    const origin: Origin = flagged !== undefined && row.flag !== undefined
      ? { kind: "flag", flag: row.flag }
      : { kind: "environment", name };
    if (row.flag !== undefined) {
      values[name] = checkFlagValue(name, text);
      origins.set(name, origin);
      continue;
    }
    const reading = row.read(text);
    if (reading.ok) {
      values[name] = reading.value;
      origins.set(name, origin);
      if (reading.note !== undefined) warnings.push(`${name}: ${reading.note}; using ${inWords(reading.value, row)}`);
    } else if (row.ours === true) {
      throw new SettingsError(`${name}: ${reading.why}, got ${quoted(text, row)}`);
    } else {
      const instead = row.fallbackText === "" ? "it is ignored" : `using ${row.fallbackText}`;
      warnings.push(`${name}: ${quoted(text, row)}: ${reading.why}; ${instead}`);
    }
  }
  checkRequired((name) => origins.has(name));
  // Every key of the table was assigned above, from its own row.
  return { values: values as Values, origins, warnings };
}

/** The variable's text; a name like `constructor` never reads what the object inherits. */
export function ownValue(environment: Readonly<Record<string, string>>, name: string): string | undefined {
  return Object.hasOwn(environment, name) ? environment[name] : undefined;
}

/** A given text for a message: quoted, without control characters, never a secret, never endless. */
export function quoted(text: string, row?: Pick<Variable<unknown>, "hidden">): string {
  if (row?.hidden !== undefined) return "<hidden>";
  return `"${printable(text.length > 200 ? `${text.slice(0, 200)}…` : text)}"`;
}

function inWords(value: unknown, row: Variable<unknown>): Shown {
  return row.hidden === undefined ? String(value) : "<hidden>";
}
