/** Builds the yardstick (bench/bare) with Cargo, in the cache folder, once per content of its sources. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { isExecutable, sourceRoot } from "../../scripts/lib/places.ts";
import { capture, run } from "../../scripts/lib/run.ts";

/** The programs of the yardstick; bench/bare/README.md says what each does. */
export interface Tools {
  readonly load: string;
  readonly stub: string;
  readonly bare: string;
}

const SOURCES = [
  "Cargo.toml",
  "locked.toml",
  "src/lib.rs",
  "src/bin/load.rs",
  "src/bin/stub-backend.rs",
  "src/bin/bare-sidecar.rs",
];

/** Builds what is missing. @throws Error when Cargo is missing or fails. */
export async function buildTools(cache: string, progress: (line: string) => void): Promise<Tools> {
  const target = join(cache, "bench-target");
  const staging = join(cache, "bench-bare");
  const release = join(target, "release");
  const tools = {
    load: join(release, "load"),
    stub: join(release, "stub-backend"),
    bare: join(release, "bare-sidecar"),
  };
  const stamp = join(target, "sources.sha256");
  const wanted = digestOfSources();
  if (readIfThere(stamp) === wanted && Object.values(tools).every(isExecutable)) return tools;
  progress("bench: building the yardstick with Cargo; about a minute and a half the first time");
  for (const source of SOURCES) {
    await Deno.mkdir(join(staging, source, ".."), { recursive: true });
    if (source !== "locked.toml") await Deno.copyFile(join(sourceRoot, "bench/bare", source), join(staging, source));
  }
  await writeLock(staging);
  const code = await run({
    command: ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", target],
    cwd: staging,
  });
  if (code !== 0) throw new Error(`cargo build ended with ${code}`);
  await Deno.writeTextFile(stamp, wanted);
  return tools;
}

/**
 * Makes `Cargo.lock` of `locked.toml`: the versions and checksums are ours, the registry's address is the one that this Cargo
 * writes into a lock file of its own.
 */
async function writeLock(staging: string): Promise<void> {
  const { code, stderr } = await capture({ command: ["cargo", "generate-lockfile", "--quiet"], cwd: staging });
  if (code !== 0) throw new Error(`cargo generate-lockfile ended with ${code}: ${stderr.trim()}`);
  const lock = join(staging, "Cargo.lock");
  const source = /^source = "(registry\+[^"]*)"$/m.exec(await Deno.readTextFile(lock))?.[1];
  if (source === undefined) throw new Error("cargo generate-lockfile wrote no registry into its lock file");
  const locked = await Deno.readTextFile(join(sourceRoot, "bench/bare/locked.toml"));
  await Deno.writeTextFile(lock, locked.replaceAll('source = "registry"', `source = "${source}"`));
}

function digestOfSources(): string {
  const hash = createHash("sha256");
  for (const source of SOURCES) hash.update(Deno.readFileSync(join(sourceRoot, "bench/bare", source)));
  return hash.digest("hex");
}

function readIfThere(path: string): string | undefined {
  try {
    return Deno.readTextFileSync(path);
  } catch (thrown) {
    if (thrown instanceof Deno.errors.NotFound) return undefined;
    throw thrown;
  }
}
