/**
 * The folder that is compiled: the sources with the manifest in its place, and a configuration whose only permission set is
 * the one to bake. The source tree itself stays untouched.
 */
import { dirname, join, normalize } from "node:path";
import { readSource } from "../layout/source.ts";
import type { PermissionSet } from "./compiler.ts";
import type { BakedManifest } from "../../../src/settings/manifest.ts";

/** Where the program reads its manifest; `null` in the source tree. */
export const MANIFEST_FILE = "src/settings/baked_manifest.json";

/** Name of the permission set in the staged configuration. */
export const SET_NAME = "baked";

/** Configuration that the compiler reads. */
const KEPT_CONFIGURATION = ["name", "version", "unstable", "imports", "compilerOptions"];

/** Copies what is compiled from `root` to `staging`. @returns the worker files, relative to the root. */
export async function stage(
  root: string,
  staging: string,
  permissions: PermissionSet,
  manifest: BakedManifest,
): Promise<string[]> {
  const workers = new Set<string>();
  const copy = async (path: string): Promise<void> => {
    const info = await Deno.lstat(join(root, path));
    if (info.isDirectory) {
      await Deno.mkdir(join(staging, path), { recursive: true });
      for await (const entry of Deno.readDir(join(root, path))) await copy(`${path}/${entry.name}`);
    } else if (info.isFile) {
      await Deno.copyFile(join(root, path), join(staging, path));
      if (path.endsWith(".ts")) { for (const worker of await workersOf(root, path)) workers.add(worker); }
    }
  };
  for (const path of ["main.ts", "src", "deno.lock"]) await copy(path);
  await Deno.writeTextFile(join(staging, MANIFEST_FILE), `${JSON.stringify(manifest, null, 2)}\n`);
  await Deno.writeTextFile(join(staging, "deno.json"), await stagedConfiguration(root, permissions));
  return [...workers].sort();
}

/** Files that a source starts as workers: `new URL("./worker.ts", import.meta.url)`. The module graph does not reach them. */
async function workersOf(root: string, path: string): Promise<string[]> {
  return readSource(path, await Deno.readTextFile(join(root, path))).imports
    .filter((entry) => entry.form === "worker")
    .map((entry) => normalize(join(dirname(path), entry.specifier)));
}

async function stagedConfiguration(root: string, permissions: PermissionSet): Promise<string> {
  const whole: unknown = JSON.parse(await Deno.readTextFile(join(root, "deno.json")));
  if (typeof whole !== "object" || whole === null) throw new Error("deno.json is not an object");
  const kept = Object.entries(whole).filter(([key]) => KEPT_CONFIGURATION.includes(key));
  return JSON.stringify({ ...Object.fromEntries(kept), permissions: { [SET_NAME]: permissions } }, null, 2);
}
