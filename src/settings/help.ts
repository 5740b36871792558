/** Texts of `--help`, `--version` and usage errors (runtime.md 1 and 2.1). No secret can be part of them. */
import { flagUsage } from "./arguments.ts";
import type { UsageError } from "./errors.ts";
import { type VariableName, variables } from "./table.ts";
import { printable } from "./text.ts";
import { ownValue } from "./values.ts";
import type { Variable } from "./variable.ts";
import { version } from "./version.ts";

/** `sie-server-sidecar 0.1.0` */
export function versionText(program: string): string {
  return `${program} ${version}\n`;
}

/** The usage line. */
export function usageText(program: string): string {
  const required = variables.flatMap(([, row]) => row.required === true ? [flagUsage(row.flag ?? "")] : []);
  return `Usage: ${program} [OPTIONS] ${required.join(" ")}`;
}

/** The help, one entry an option, with the current values of the environment where these are no secrets. */
export function helpText(program: string, environment: Readonly<Record<string, string>>): string {
  const entries = variables.flatMap(([name, row]) => row.flag === undefined ? [] : optionEntry(name, row, environment));
  return [
    "Takes inference work from NATS JetStream or a local socket, batches it and runs it on a model backend.",
    "",
    usageText(program),
    "",
    "Commands, as the first argument:",
    "  serve     run the sidecar (the default)",
    "  check     print every setting with its origin and the permissions that were baked, then exit",
    "  train     run the online trainer",
    "  feedback  send feedback to the online trainer",
    "",
    "Options:",
    ...entries,
    "  -h, --help",
    "          Print help",
    "  -V, --version",
    "          Print version",
    "",
    `Variables without an option are listed by \`${program} check\` and in docs/settings.md.`,
    "",
  ].join("\n");
}

/** A usage error as it is printed: the error, an empty line, the usage. */
export function usageErrorText(program: string, error: UsageError): string {
  const lines = [`error: ${error.message}`, ...error.details];
  return [...lines, "", usageText(program), "", "For more information, try '--help'.", ""].join("\n");
}

function optionEntry(
  name: VariableName,
  row: Variable<unknown>,
  environment: Readonly<Record<string, string>>,
): string[] {
  const current = ownValue(environment, name) ?? "";
  const env = row.hidden === undefined ? `[env: ${name}=${printable(current)}]` : `[env: ${name}]`;
  const fallback = row.fallbackText === "" ? "" : ` [default: ${row.fallbackText}]`;
  return [`      ${flagUsage(row.flag ?? "")}`, `          ${row.doc.replaceAll("`", "")} ${env}${fallback}`];
}
