/** What the Deno that compiles can do. Versions differ in the permissions they know and in what they can leave out. */
import { capture } from "../run.ts";
import type { Grant, GrantKind } from "./grants.ts";

/** A Deno that compiles. */
export interface Compiler {
  readonly path: string;
  /** E.g. `2.9.6`. */
  readonly version: string;
  /** It checks connections over Unix sockets and the umask against their own permissions, and knows these. */
  readonly unixPermissions: boolean;
  /** It can leave out npm packages that the module graph does not reach. */
  readonly excludesUnusedPackages: boolean;
}

/** Asks a Deno what it can do. Its help text is the only place where it says so. */
export async function inspectCompiler(path: string): Promise<Compiler> {
  const version = await capture({ command: [path, "--version"] });
  const number = /^deno (\S+)/.exec(version.stdout)?.[1];
  if (version.code !== 0 || number === undefined) throw new Error(`${path} --version does not answer like Deno`);
  const help = await capture({ command: [path, "compile", "--help=full"], env: { NO_COLOR: "1" } });
  return {
    path,
    version: number,
    unixPermissions: help.stdout.includes("unix:"),
    excludesUnusedPackages: help.stdout.includes("--exclude-unused-npm"),
  };
}

/** A permission set of `deno.json`. */
export type PermissionSet = Partial<Record<GrantKind, true | string[]>>;

/**
 * Grants in the form of a permission set. A set, because the command line of 2.9 refuses `--allow-sys=umask`, which its
 * sets take; and because 2.6 refuses both that and `unix:` hosts, which it does not need.
 */
export function permissionSet(grants: readonly Grant[], compiler: Pick<Compiler, "unixPermissions">): PermissionSet {
  const set: PermissionSet = {};
  for (const { kind, value } of grants) {
    if (!compiler.unixPermissions && isUnixPermission(kind, value)) continue;
    const present = set[kind];
    if (value === true) set[kind] = true;
    else if (present === undefined) set[kind] = [value];
    else if (present !== true) present.push(value);
  }
  return set;
}

function isUnixPermission(kind: GrantKind, value: string | true): boolean {
  return value !== true && (kind === "net" ? value.startsWith("unix:") : kind === "sys" && value === "umask");
}
