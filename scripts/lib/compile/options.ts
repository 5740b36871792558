/** The command line of `deno task compile`. */
import { parseArgs } from "node:util";
import { type Deployment, type Profile, PROFILES } from "./grants.ts";

/** What to compile. */
export interface CompileOptions {
  readonly profile: Profile;
  readonly generic: boolean;
  readonly target: string;
  readonly output: string;
  readonly deployment: Deployment;
  /** Permissions to leave out, as `KIND=VALUE`. */
  readonly without: readonly string[];
  /** Print the manifest and make nothing. */
  readonly dryRun: boolean;
}

/** Usage, printed for `--help` and after a mistake. */
export const USAGE = `usage: deno task compile --profile nats|local|train (--generic | STRICT) [OPTION…]

Makes one executable with exactly the permissions that a deployment needs.

  --generic             wildcards and the chart's folders: no rebuild per cluster
STRICT, any of:
  --deployment FILE     JSON: {"variables": {"SIE_NATS_URL": "…"}, "net": [], "read": [], "write": []}
  --set NAME=VALUE      one variable of the deployment; may be repeated and wins over the file
OPTION:
  --net HOST            one more host: HOST:PORT, *.DOMAIN, a CIDR block, unix:PATH; may be repeated
  --read PATH           one more file or folder to read; may be repeated
  --write PATH          one more file or folder to write; may be repeated
  --target ARCH         x86_64 (default) or aarch64
  --output FILE         default: dist/worker-sidecar
  --without KIND=VALUE  leave one permission out, to see what the executable says then
  --dry-run             print the manifest only

COMPILE_DENO names the Deno to compile with (default: the running one), DENORT_BIN its runtime part.`;

const TARGETS: Readonly<Record<string, string>> = {
  x86_64: "x86_64-unknown-linux-gnu",
  aarch64: "aarch64-unknown-linux-gnu",
};

/** A mistake on the command line or in the deployment file. */
export class UsageError extends Error {}

/**
 * Reads the command line.
 *
 * @param readText reads the deployment file.
 * @returns undefined when help is asked for.
 * @throws UsageError
 */
export function readOptions(args: readonly string[], readText: (path: string) => string): CompileOptions | undefined {
  const values = parse(args);
  if (values.help) return undefined;
  const profile = PROFILES.find((name) => name === values.profile);
  if (profile === undefined) throw new UsageError(`--profile must be one of ${PROFILES.join(", ")}`);
  const target = TARGETS[values.target] ?? Object.values(TARGETS).find((triple) => triple === values.target);
  if (target === undefined) throw new UsageError(`--target must be one of ${Object.keys(TARGETS).join(", ")}`);
  const strict = values.deployment !== undefined || values.set.length > 0;
  if (values.generic === strict) throw new UsageError("give either --generic or the deployment (--deployment, --set)");
  const file = values.deployment === undefined ? {} : readDeployment(values.deployment, readText);
  const variables: Record<string, string> = { ...file.variables };
  for (const assignment of values.set) {
    const at = assignment.indexOf("=");
    if (at < 1) throw new UsageError("--set needs NAME=VALUE");
    variables[assignment.slice(0, at)] = assignment.slice(at + 1);
  }
  return {
    profile,
    generic: values.generic,
    target,
    output: values.output,
    without: values.without,
    dryRun: values["dry-run"],
    deployment: {
      variables,
      net: [...file.net ?? [], ...values.net],
      read: [...file.read ?? [], ...values.read],
      write: [...file.write ?? [], ...values.write],
    },
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        profile: { type: "string" },
        generic: { type: "boolean", default: false },
        deployment: { type: "string" },
        set: { type: "string", multiple: true, default: [] },
        net: { type: "string", multiple: true, default: [] },
        read: { type: "string", multiple: true, default: [] },
        write: { type: "string", multiple: true, default: [] },
        without: { type: "string", multiple: true, default: [] },
        target: { type: "string", default: "x86_64" },
        output: { type: "string", default: "dist/worker-sidecar" },
        "dry-run": { type: "boolean", default: false },
        help: { type: "boolean", default: false },
      },
    }).values;
  } catch (thrown) {
    throw new UsageError(thrown instanceof Error ? thrown.message : String(thrown));
  }
}

function readDeployment(path: string, readText: (path: string) => string): Partial<Deployment> {
  let data: unknown;
  try {
    data = JSON.parse(readText(path));
  } catch (thrown) {
    throw new UsageError(`--deployment ${path}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
  if (typeof data !== "object" || data === null || Array.isArray(data)) {
    throw new UsageError(`--deployment ${path}: must hold an object`);
  }
  const unknown = Object.keys(data).filter((key) => !["variables", "net", "read", "write"].includes(key));
  if (unknown.length > 0) throw new UsageError(`--deployment ${path}: unknown key ${JSON.stringify(unknown[0])}`);
  const entries = new Map<string, unknown>(Object.entries(data));
  const texts = (key: string): string[] => {
    const value = entries.get(key) ?? [];
    if (!Array.isArray(value) || !value.every((entry) => typeof entry === "string")) {
      throw new UsageError(`--deployment ${path}: ${key} must be an array of texts`);
    }
    return value;
  };
  const variables = entries.get("variables") ?? {};
  if (!isTextRecord(variables)) throw new UsageError(`--deployment ${path}: variables must map names to texts`);
  return { variables, net: texts("net"), read: texts("read"), write: texts("write") };
}

function isTextRecord(value: unknown): value is Record<string, string> {
  return typeof value === "object" && value !== null && !Array.isArray(value) &&
    Object.values(value).every((entry) => typeof entry === "string");
}
