/** Files of npm packages that nothing loads at run time: type declarations, source maps, texts, minified doubles. */
import { join } from "node:path";

/** What no program loads. Licences stay: they belong to the copies that we ship. */
const NEVER_LOADED = [
  /\.map$/,
  /\.d\.[cm]?ts$/,
  /\.min\.[cm]?js$/,
  /(?:^|\/)(?!licen[cs]e)[^/]*\.md$/i,
  /\.(?:ts|tsx|flow|tsbuildinfo|png|svg|gif)$/,
  /(?:^|\/)(?:test|tests|docs|examples|benchmarks?)\//,
];

/** True when a program cannot need the file at `path`, relative to its package. */
export function isNeverLoaded(path: string): boolean {
  return NEVER_LOADED.some((form) => form.test(path));
}

/** The never-loaded files among the packages of a lock file, below the compiling Deno's npm cache. */
export async function neverLoadedFiles(lockFile: string, npmCache: string): Promise<string[]> {
  const found: string[] = [];
  const packages = lockedPackages(JSON.parse(await Deno.readTextFile(lockFile)));
  for await (const registry of Deno.readDir(npmCache)) {
    if (!registry.isDirectory) continue;
    for (const name of packages) await collect(join(npmCache, registry.name, name), "", found);
  }
  return found.sort();
}

/** Folders of the packages in a lock file: `NAME/VERSION`. Keys look like `NAME@VERSION` or `NAME@VERSION_PEER@VERSION`. */
function lockedPackages(lock: unknown): string[] {
  if (typeof lock !== "object" || lock === null || !("npm" in lock)) return [];
  const { npm } = lock;
  if (typeof npm !== "object" || npm === null) return [];
  const folders = Object.keys(npm).map((key) => {
    const at = key.indexOf("@", 1);
    return `${key.slice(0, at)}/${key.slice(at + 1).split("_")[0]}`;
  });
  return [...new Set(folders)];
}

async function collect(root: string, path: string, found: string[]): Promise<void> {
  let entries: Deno.DirEntry[];
  try {
    entries = await Array.fromAsync(Deno.readDir(join(root, path)));
  } catch (thrown) {
    // A package of another platform is in the lock file but not in the cache.
    if (thrown instanceof Deno.errors.NotFound) return;
    throw thrown;
  }
  for (const entry of entries) {
    const inner = path === "" ? entry.name : `${path}/${entry.name}`;
    if (entry.isDirectory) await collect(root, inner, found);
    else if (isNeverLoaded(inner)) found.push(join(root, inner));
  }
}
