/** The table of all variables, by name: one row a variable, and the types that follow from it. */
import type { Variable } from "./variable.ts";
import { batchingVariables } from "./variables_batching.ts";
import { environmentVariables } from "./variables_environment.ts";
import { flagVariables } from "./variables_flags.ts";
import { ownVariables } from "./variables_own.ts";

const table = { ...flagVariables, ...environmentVariables, ...batchingVariables, ...ownVariables };

/** Name of a variable of the table. */
export type VariableName = keyof typeof table;

/** The value of each variable, in its own unit; the default where it is not set or not usable. */
export type Values = { readonly [N in VariableName]: (typeof table)[N]["fallback"] };

/** All rows in the order of checking: those with a flag first. */
export const variables: readonly (readonly [VariableName, Variable<unknown>])[] = Object.entries(table) as [
  VariableName,
  Variable<unknown>,
][];

/** The row of `name`, if there is one. */
export function variableOf(name: string): Variable<unknown> | undefined {
  return Object.hasOwn(table, name) ? table[name as VariableName] : undefined;
}
