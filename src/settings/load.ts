/** The way from a command line and an environment to settings, or to the text and exit code of why not. */
import { parseArguments } from "./arguments.ts";
import { buildSettings } from "./build.ts";
import { SettingsError, UsageError } from "./errors.ts";
import { helpText, usageErrorText, versionText } from "./help.ts";
import type { Settings } from "./settings.ts";
import { unknownVariables } from "./suggest.ts";
import { variables } from "./table.ts";
import { readValues } from "./values.ts";

/** What settings are made of. */
export interface LoadInput {
  /** Name of the program for texts. */
  readonly program: string;
  /** Arguments after the program name and the command. */
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** A fresh `worker-<uuid>`. */
  readonly newWorkerId: () => string;
}

/** Settings, or what to print instead and the exit code. */
export type Loaded =
  | { readonly kind: "settings"; readonly settings: Settings }
  | { readonly kind: "text"; readonly stdout: string; readonly stderr: string; readonly exitCode: 0 | 1 | 2 };

/** Reads and checks everything (runtime.md 1 and 2). Never throws for what users can get wrong. */
export function loadSettings(input: LoadInput): Loaded {
  const { program, environment } = input;
  try {
    const line = parseArguments(input.args);
    if (line.kind === "help") return said(helpText(program, environment));
    if (line.kind === "version") return said(versionText(program));
    const read = readValues(line.flags, environment);
    const unused = variables.filter(([name, row]) => row.later === true && read.origins.has(name));
    const warnings = [
      ...unused.map(([name]) => `${name} is set, but this version does not use it yet`),
      ...unknownVariables(environment),
    ];
    const settings = buildSettings({ program, read, environment, newWorkerId: input.newWorkerId, warnings });
    return { kind: "settings", settings };
  } catch (thrown) {
    if (thrown instanceof UsageError) return refused(usageErrorText(program, thrown), 2);
    if (thrown instanceof SettingsError) return refused(`Error: ${thrown.message}\n`, 1);
    throw thrown;
  }
}

function said(stdout: string): Loaded {
  return { kind: "text", stdout, stderr: "", exitCode: 0 };
}

function refused(stderr: string, exitCode: 1 | 2): Loaded {
  return { kind: "text", stdout: "", stderr, exitCode };
}
