/**
 * The places that scripts work in. Nothing is ever written into the source tree by them, except what a script is asked to
 * write there: tools that are downloaded or built live in one cache folder, everything else in a temporary one.
 */
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the sources: where `deno.json` lies. */
export const sourceRoot: string = fileURLToPath(new URL("../../", import.meta.url)).replace(/\/$/, "");

/** Environment variables that are looked at; a plain record so that tests can pass their own. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The cache folder: `WORKER_SIDECAR_CACHE`, else `worker-sidecar` in the user's cache folder. An empty variable counts as
 * unset.
 */
export function cacheFolder(env: Environment): string {
  if (env["WORKER_SIDECAR_CACHE"]) return env["WORKER_SIDECAR_CACHE"];
  if (env["XDG_CACHE_HOME"]) return join(env["XDG_CACHE_HOME"], "worker-sidecar");
  return join(env["HOME"] || temporaryFolder(env), ".cache", "worker-sidecar");
}

/** Deno's own cache folder, where downloaded packages lie. */
export function denoFolder(env: Environment): string {
  if (env["DENO_DIR"]) return env["DENO_DIR"];
  return join(env["XDG_CACHE_HOME"] || join(env["HOME"] || "/", ".cache"), "deno");
}

/** The system's folder for temporary files. */
export function temporaryFolder(env: Environment): string {
  return (env["TMPDIR"] || "/tmp").replace(/(.)\/+$/, "$1");
}

/** The first file called `name` in the folders of `PATH` that this user may execute. */
export function findOnPath(name: string, env: Environment): string | undefined {
  for (const folder of (env["PATH"] ?? "").split(delimiter)) {
    if (folder === "") continue;
    const candidate = join(folder, name);
    if (isExecutable(candidate)) return candidate;
  }
  return undefined;
}

/** True for an existing regular file (or a link to one) with an execute bit. */
export function isExecutable(path: string): boolean {
  try {
    const info = Deno.statSync(path);
    return info.isFile && ((info.mode ?? 0) & 0o111) !== 0;
  } catch {
    return false;
  }
}
