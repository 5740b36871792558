/**
 * What each script may do, beyond the set `scripts` of `deno.json`. A permission set cannot name what is only known at run
 * time (where Deno itself lies, the cache folder, the folder for temporary files), so `scripts/flags.ts` prints it as flags.
 * A flag replaces the set's entry of the same kind.
 */
import { join } from "node:path";
import { cacheFolder, denoFolder, type Environment, findOnPath, sourceRoot, temporaryFolder } from "./places.ts";

/** Commands that the scripts of a scope start, each allowed only where it is installed. */
const COMMANDS = {
  /** Reads and checks the sources. */
  tools: ["git"],
  /** Starts the tests; gets a nats-server when there is none. */
  test: ["nats-server", "python3", "go", "git"],
  /** Starts the demonstration. */
  demo: ["nats-server"],
  /** Everything that `ok` runs, by way of Deno itself. */
  ok: ["nats-server", "python3", "go", "git"],
  /** Installs the real Python backend and tests against it. */
  peers: ["nats-server", "python3", "go", "bash"],
  /** Compiles, and tests what came out. */
  compile: ["nats-server", "python3", "go", "bash", "npm"],
  /** Builds the yardstick and measures. */
  bench: ["nats-server", "python3", "go", "cargo"],
} as const satisfies Record<string, readonly string[]>;

/** Name of a scope. */
export type ScopeName = keyof typeof COMMANDS;

/** True for the name of a scope. */
export function isScopeName(name: string): name is ScopeName {
  return Object.hasOwn(COMMANDS, name);
}

/** All names, for messages. */
export function scopeNames(): string[] {
  return Object.keys(COMMANDS);
}

/**
 * The flags for a scope.
 *
 * @param denoPath the running Deno.
 * @throws Error when a path holds a comma or white space: neither a list of paths nor a task could carry it.
 */
export function scopeFlags(scope: ScopeName, env: Environment, denoPath: string): string[] {
  const cache = cacheFolder(env);
  const temporary = temporaryFolder(env);
  const run = [denoPath];
  for (const command of COMMANDS[scope]) {
    const path = findOnPath(command, env);
    if (path !== undefined) run.push(command);
  }
  // Programs that the scripts install or build themselves are started by way of these folders.
  const compiler = env["COMPILE_DENO"];
  if (scope === "compile" && compiler) run.push(compiler);
  // It starts the server that was installed, without a run of its own in between that has the cache on its PATH.
  if (scope === "demo") {
    run.push(join(cache, "bin", "nats-server"));
    return [flag("read", [sourceRoot, temporary]), flag("write", [temporary]), flag("run", run)];
  }
  const folders = [sourceRoot, temporary, cache];
  const read = [...folders, `${sourceRoot}/../shared`, "/proc"];
  if (scope === "compile") read.push(denoFolder(env));
  if (env["VECTORS_DIR"]) read.push(env["VECTORS_DIR"]);
  const write = scope === "compile" || scope === "ok" || scope === "tools" ? folders : [temporary, cache];
  return [flag("read", read), flag("write", write), flag("run", run)];
}

function flag(kind: string, values: readonly string[]): string {
  for (const value of values) {
    if (/[\s,]/.test(value)) {
      throw new Error(
        `a path with a comma or white space cannot be given to --allow-${kind}: ${JSON.stringify(value)}`,
      );
    }
  }
  return `--allow-${kind}=${values.join(",")}`;
}
